"""The place of tasks that agents bring along: there is nothing to open, and nothing to read."""

from typing import Any

from hindcast.actors.environments.base import EpisodeWorld, Visit
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed


class OwnTasks:
    """A `Visitable` without an address. Without an agent there is nothing to play."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open_world(self) -> EpisodeWorld:
        """See `Browserless`. Raises EnvironmentFailed."""
        raise EnvironmentFailed(f"tasks of {self.name!r} are an agent's own: set actors.agent")

    async def open_visit(self, task: Task) -> Visit:
        """See `Visitable`."""
        return Visit(url="", token="")

    async def read_visit(self, visit: Visit, task: Task) -> dict[str, Any]:
        """See `Visitable`."""
        return {}

    async def close_visit(self, visit: Visit) -> None:
        """See `Visitable`."""
