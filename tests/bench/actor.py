"""Environment steps per second with scripted actions and no model: ours, a bare Playwright loop, BrowserGym.

All sides play the same clicks on the same problems of MiniWoB++ (`actor_plays`) in the same Chromium, with resets in the
time and the start of the first browser not. A side that wins fewer plays than were recorded did not do the same work:
its figure is refused.
"""

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from bench.actor_bare import bare_pages, play_bare, record
from bench.actor_browsergym import NAME, REQUIREMENTS, VERSION, play_browsergym
from bench.actor_plays import Play, Tally, spread
from bench.actor_world import play_worlds
from bench.comparison import Comparison, compare
from bench.peers import peer_python
from hindcast.actors.environments.browser import BrowserHost
from hindcast.core.errors import HindcastError
from hindcast.core.settings.schema import ActorSettings

FIGURE = "environment steps, resets counted"
UNIT = "steps/s"
BARE_GOAL = 0.8
BROWSERGYM_GOAL = 15.0

Say = Callable[[str], None]


class DifferentWork(HindcastError):
    """A side did not do what was recorded, so that its figure says nothing."""


class ActorBench:
    """The plays and the three ways of playing them."""

    def __init__(self, *, home: Path, settings: ActorSettings, said: Say) -> None:
        self._home = home
        self._settings = settings
        self._said = said
        self._plays: list[Play] = []
        self._contents: dict[str, str] = {}
        """By side, what one observation of it holds."""

    async def record(self, episodes: int) -> None:
        """Let the demonstrators play once."""
        async with bare_pages(1, browser_path=self._settings.browser_path) as pages:
            self._plays = await record(pages[0], episodes)
        steps = sum(len(play.clicks) for play in self._plays)
        self._said(f"recorded {episodes} episodes with {steps} steps")

    async def compare_bare(self, *, repeats: int) -> Comparison:
        """Ours beside the limit."""
        found = await compare(
            self._ours,
            self._bare,
            figure=FIGURE,
            unit=UNIT,
            peer_name="bare Playwright loop",
            goal=BARE_GOAL,
            repeats=repeats,
            said=self._said,
        )
        return replace(
            found, detail=f"{self._describe()} on both sides; an observation holds {self._contents['ours']}"
        )

    async def compare_browsergym(
        self, *, repeats: int, episodes: int, processes: int, raw: bool
    ) -> Comparison:
        """Ours beside BrowserGym, which plays a share of the same episodes; `raw`: it observes as little as it can."""
        python = peer_python(NAME, REQUIREMENTS, home=self._home)
        few = spread(self._plays, episodes)
        name = f"BrowserGym {VERSION}{', raw page' if raw else ''}"

        async def browsergym() -> float:
            tally = await play_browsergym(
                python, few, processes=processes, raw=raw, browser_path=self._settings.browser_path
            )
            return self._rate(name, tally)

        found = await compare(
            self._ours,
            browsergym,
            figure=FIGURE,
            unit=UNIT,
            peer_name=name,
            goal=None if raw else BROWSERGYM_GOAL,
            repeats=repeats,
            said=self._said,
        )
        return replace(
            found,
            detail=f"{self._describe()}; {len(few)} of the episodes in {processes} processes of {name}, no delays; "
            f"an observation of it holds {self._contents[name]}",
        )

    async def _ours(self) -> float:
        contexts = self._settings.contexts
        async with BrowserHost(self._settings) as host:
            await play_worlds(host, self._plays[:contexts], contexts=contexts)
            tally = await play_worlds(host, self._plays, contexts=contexts)
        return self._rate("ours", tally)

    async def _bare(self) -> float:
        async with bare_pages(self._settings.contexts, browser_path=self._settings.browser_path) as pages:
            await play_bare(pages, self._plays[: len(pages)])
            tally = await play_bare(pages, self._plays)
        return self._rate("the bare loop", tally)

    def _describe(self) -> str:
        return f"{len(self._plays)} episodes in {self._settings.contexts} contexts"

    def _rate(self, side: str, tally: Tally) -> float:
        if tally.won < tally.episodes:
            raise DifferentWork(
                f"{side} won {tally.won} of {tally.episodes} recorded episodes, all of which were won when they were "
                "recorded: it did something else than the others, so that its figure means nothing. Pages that depend "
                "on the clock or on the browser's version can be the cause."
            )
        self._contents[side] = "; ".join(f"{name}: {words}" for name, words in tally.contents.items())
        return tally.rate
