"""Lineage: what something came from, and what it led to."""

import msgspec

from hindcast.app.page.runs import PageQuery, whole_number
from hindcast.core.errors import SettingsError
from hindcast.core.text.nearest import advice
from hindcast.storage.readmodel.lineage.graph import Lineage
from hindcast.storage.readmodel.lineage.lineage import lineage
from hindcast.storage.readmodel.query_parts import NotInReadModel

KINDS = ("step", "episode", "batch", "update", "task", "policy")
DEPTH = 3
MOST = 8
"""Most entries of one branch."""


class LineagePage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the lineage page."""

    lineage: Lineage


def lineage_of(ask: PageQuery) -> LineagePage:
    """The tree around the thing that the address names. Raises NotInReadModel, SettingsError for an unknown kind."""
    kind, name = ask.parts["kind"], ask.parts["name"]
    if kind not in KINDS:
        raise SettingsError(f"there is no lineage of a {kind!r}; {advice(kind, KINDS)}")
    number = name.rpartition("/")[2]
    if number.isdigit() and whole_number(number) is None:
        raise NotInReadModel(f"there is no {kind} {name[:40]!r}")
    return LineagePage(
        lineage=lineage(ask.connection, kind, name, as_of=ask.position, depth=DEPTH, limit=MOST)
    )
