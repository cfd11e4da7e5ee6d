"""Faults for a running system, chosen by a seed: who, what, for how long, and how long after the one before."""

import random
from typing import Literal, NamedTuple

ROLES = ("bus", "site", "curriculum", "actor", "judge", "learner", "projector")
Kind = Literal["kill", "stop"]
KINDS: tuple[Kind, ...] = ("kill", "stop")
SHORT_S = (0.5, 4.0)
LONG_S = {"actor": 45.0, "bus": 12.0}
"""Longer than an episode's lease in these tests, and than one attempt to append."""
LONGER_S = 8.0
EVERY_LONG = 3
"""One stop in so many is a long one; the first of an actor and of the bus is, too."""
GAP_S = (0.5, 4.0)


class Fault(NamedTuple):
    """Signal 9, or a stop of a while."""

    role: str
    kind: Kind
    held_s: float
    """How long a stopped process stays stopped; 0 for one that is killed."""
    after_s: float
    """Since the fault before."""

    @property
    def victim(self) -> str:
        """The process."""
        return f"{self.role}.1"


def schedule(seed: int, count: int) -> list[Fault]:
    """Every role is killed once and stopped once before anything comes twice, in an order of the seed's own."""
    chance = random.Random(seed)
    faults: list[Fault] = []
    stops = 0
    while len(faults) < count:
        turn: list[tuple[str, Kind]] = [(role, kind) for role in ROLES for kind in KINDS]
        chance.shuffle(turn)
        for role, kind in turn:
            held_s = 0.0
            if kind == "stop":
                first = not any(fault.role == role and fault.kind == "stop" for fault in faults)
                stops += 1
                long = (first and role in LONG_S) or stops % EVERY_LONG == 0
                held_s = LONG_S.get(role, LONGER_S) if long else chance.uniform(*SHORT_S)
            faults.append(Fault(role, kind, held_s, chance.uniform(*GAP_S)))
    return faults[:count]
