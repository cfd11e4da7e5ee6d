"""Rows for questions to models behind endpoints, which several kinds of facts are based on."""

from collections.abc import Iterable
from typing import Literal

from hindcast.events.catalogue.consulted import Consulted
from hindcast.events.envelope import Recorded
from hindcast.storage.readmodel.column_values import clean_text, finite, small_integer
from hindcast.storage.readmodel.row_operations import Insert

Purpose = Literal["verdict", "relabel", "task", "feasibility"]


def consultation(
    recorded: Recorded, purpose: Purpose, about: str, consulted: Consulted | None
) -> Iterable[Insert]:
    """The row of a fact's question; none if no model was asked."""
    if consulted is None:
        return
    yield Insert(
        "consultations",
        {
            "purpose": purpose,
            "about": clean_text(about),
            "model": clean_text(consulted.model),
            "prompt_tokens": small_integer(consulted.prompt_tokens),
            "answer_tokens": small_integer(consulted.answer_tokens),
            "requests": small_integer(consulted.tries),
            "occurred_ns": recorded.envelope.occurred_ns,
            "cost_usd": finite(consulted.cost_usd),
        },
    )
