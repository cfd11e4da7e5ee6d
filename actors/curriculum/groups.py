"""A running group: which members still owe an episode, and what became of the others.

A member has one or more attempts. An `owed` episode is promised but not requested yet. It counts like a running episode
in admission, so that an opened group can always be completed.
"""

from typing import Literal

import msgspec

from hindcast.core.domain.task import Task

Standing = Literal["owed", "running", "ended", "decided", "trained", "lost"]
"""`ended`: waits for its verdict; `decided`: has one; `trained`: is in a batch whose weights are not published yet."""


class Member(msgspec.Struct):
    """One place in a group."""

    standing: Standing = "owed"
    attempt: int = 0
    """Attempt number of the episode, or of the owed one."""
    started: int = 0
    """Attempts that an actor began: only these count as attempts of the task."""
    episode: str | None = None
    """Latest episode requested for this place."""
    reward: float = 0.0
    oldest_version: int = 0
    """Lowest policy version that sampled a token of the episode."""


class Group(msgspec.Struct):
    """Episodes of one task that are compared with each other."""

    id: str
    task: Task
    origin: str
    members: list[Member]
    revisits: bool = False
    """Whether its task is from an earlier phase, drawn again against forgetting."""
    batch: int | None = None
    """The batch it was planned into; from then on no episode is requested for it."""

    def standing(self, *standings: Standing) -> int:
        """Number of members with one of the given standings."""
        return sum(member.standing in standings for member in self.members)

    @property
    def family(self) -> str:
        """The task family, such as `store/find_price`."""
        return f"{self.task.environment}/{self.task.family}"

    @property
    def unfinished(self) -> bool:
        """Whether an episode or a verdict is still to come."""
        return self.standing("owed", "running", "ended") > 0
