"""Evidence of an episode and a judge's judgment. Evaluators read only evidence, so any episode can be re-scored."""

from typing import Any, Literal

import msgspec


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Evaluator inputs, recorded in `episode.ended`."""

    answer: str | None
    """The message given to `exit`; None if the agent never exited."""
    final_url: str
    """Address of the page on which the episode ended."""
    probes: dict[str, Any]
    """The site's state at the end, in plain values: session state, raw reward, journal."""


Outcome = Literal["success", "failure", "undecided"]


class Judgment(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one judge on one episode."""

    outcome: Outcome
    """`undecided` after an outage or without evidence; it never counts as failure."""
    reward: float
    """In [0, 1]; 0 if undecided."""
    reason: str
    """One sentence that names the deciding check."""
