"""What the plans of a log say about the events before them, gathered before those are folded."""

from dataclasses import dataclass, field

from core.arrays import unpack_positions
from core.errors import HindcastError
from events.catalogue import BatchPlanned
from events.codec import decode
from events.log import EventLog
from events.subjects import family_of

READ_EVENTS = 1000
"""Events per request."""


@dataclass(slots=True)
class Claims:
    """Recorded when a batch was planned; must hold for the log as it stands now."""

    points: set[int] = field(default_factory=set)
    """Positions that plans were made at."""
    steps: dict[int, bytes] = field(default_factory=dict)
    """Position of a trained step: first 8 bytes of the sha256 of its stored bytes."""
    rewards: dict[str, float] = field(default_factory=dict)
    """Of trained episodes."""


async def gather_claims(log: EventLog, end: int) -> Claims:
    """Read the learner's events up to `end`. Damaged ones are left to the reader that follows."""
    claims = Claims()
    after = 0
    while after < end:
        stored = await log.read(after=after, limit=READ_EVENTS)
        if not stored:
            break
        for entry in stored:
            if family_of(entry.subject) == "learner":
                try:
                    recorded = decode(entry, strict=False)
                except HindcastError:
                    continue
                if recorded is not None and isinstance(recorded.fact, BatchPlanned):
                    _add(claims, recorded.fact)
        after = stored[-1].position
    return claims


def _add(claims: Claims, plan: BatchPlanned) -> None:
    claims.points.add(plan.as_of)
    for index, position in enumerate(unpack_positions(plan.positions).tolist()):
        claims.steps.setdefault(position, plan.sample_digests[8 * index : 8 * index + 8])
    for planned in plan.episodes:
        claims.rewards.setdefault(planned.episode, planned.reward)
