"""A group while it is under way: which of its members still owe an episode, and what became of the others.

A member goes through one or more attempts. `owed` is what the curriculum has promised and not requested yet; it takes
up room like a running episode, so that a group once opened can always be completed.
"""

from typing import Literal

import msgspec

from hindcast.core.domain.task import Task

Standing = Literal["owed", "running", "ended", "decided", "trained", "lost"]
"""`ended`: waits for its verdict; `decided`: has one; `trained`: stands in a batch whose weights are not out yet."""


class Member(msgspec.Struct):
    """One place in a group."""

    standing: Standing = "owed"
    attempt: int = 0
    """Of the episode named, or of the one that is owed."""
    started: int = 0
    """Attempts that an actor really began: only these are tries of the task."""
    episode: str | None = None
    """Latest episode requested for this place."""
    reward: float = 0.0
    oldest_version: int = 0
    """Lowest policy version that sampled a token of it."""


class Group(msgspec.Struct):
    """Episodes of one task that are compared with each other."""

    id: str
    task: Task
    origin: str
    members: list[Member]
    revisits: bool = False
    """Whether its task is one of an earlier phase, drawn so that it is not forgotten."""
    batch: int | None = None
    """The batch it was planned into. From then on nothing more is requested for it."""

    def standing(self, *standings: Standing) -> int:
        """How many members stand like this."""
        return sum(member.standing in standings for member in self.members)

    @property
    def family(self) -> str:
        """`store/find_price`."""
        return f"{self.task.environment}/{self.task.family}"

    @property
    def unfinished(self) -> bool:
        """Whether an episode or a verdict is still to come."""
        return self.standing("owed", "running", "ended") > 0
