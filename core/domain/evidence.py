"""What an episode leaves for its judges, and what a judge says. A re-score is a replay: evaluators read only this."""

from typing import Any, Literal

import msgspec


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Evaluator inputs, stored in `episode.ended`."""

    answer: str | None
    """The message given to `exit`, or None when the agent never exited."""
    final_url: str
    """Address of the page the episode ended on."""
    probes: dict[str, Any]
    """What the site said about itself at the end, in plain values: session state, raw reward, journal."""


Outcome = Literal["success", "failure", "undecided"]


class Judgment(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one judge on one episode."""

    outcome: Outcome
    """`undecided` when the judge could not tell (outage, missing evidence): never counted as failure."""
    reward: float
    """In [0, 1]; 0 when undecided."""
    reason: str
    """One sentence naming the check that decided."""
