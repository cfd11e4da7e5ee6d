"""Titles: a relabeler as a plugin. Whatever an episode was to do, it opened the pages that it reached."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from hindcast.actors.relabelers.base import AchievedGoal, RelabelResult
from hindcast.actors.relabelers.plugin import RelabelerContext, RelabelerPlugin
from hindcast.api import AssembledEpisode, Page, events


class TitlesOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`relabeler.options`."""

    shortest: int = 1
    """Fewest characters of a title that is worth a goal."""


class TitlesRelabeler:
    """Says of each page that the episode reached that it was to open it."""

    def __init__(self, name: str, shortest: int) -> None:
        self.identity = events.JudgeIdentity(name=name, version=f"1-{shortest}")
        self._shortest = shortest

    async def goals(self, episode: AssembledEpisode, pages: Sequence[Page]) -> RelabelResult:
        """See `hindcast.api.Relabeler`; `pages` holds the page before each step."""
        reached: dict[str, int] = {}
        for steps, page in enumerate(pages):
            reached.setdefault(page.title, steps)
        goals = [
            AchievedGoal(f"Open the page {title!r}.", steps, (1.0,) * steps)
            for title, steps in reached.items()
            if steps and len(title) >= self._shortest
        ]
        return RelabelResult(tuple(goals))


@asynccontextmanager
async def _open(context: RelabelerContext) -> AsyncIterator[TitlesRelabeler]:
    yield TitlesRelabeler(context.name, context.options.shortest)


RELABELER = RelabelerPlugin(open=_open, options=TitlesOptions)
