"""When a window is photographed: by the setting `actors.screenshots`, of some episodes, never at an episode's cost.

Invariant: at most `actors.screenshot_rate` pictures a second and actor on average, and an episode has all that are due
to it or none, so that those that can be looked at can be looked at whole. Where the policy is shown them
(`actors.screenshot_observation`), the rate does not hold: every step of every episode is photographed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from hindcast.actors.environments.base import EpisodeWorld, WindowImage
from hindcast.core.errors import DiskFull
from hindcast.core.settings.schema import ActorSettings
from hindcast.events.catalogue.episode import Screenshot, StepResult
from hindcast.events.envelope import BlobRef

MAX_MISSING = 2
"""After so many pictures of an episode that could not be had no more are tried: each may have used up its time."""
MAX_SAVED_S = 10.0
"""An actor that took no pictures for a while may take those of so many seconds at once."""
WENT_WELL = ("ok", "exit")

Keep = Callable[[bytes], Awaitable[BlobRef]]


class ScreenshotBudget:
    """What an actor may still photograph; every episode asks once, and pays for what it takes."""

    def __init__(self, settings: ActorSettings) -> None:
        self._rate = settings.screenshot_rate
        self._on = settings.screenshots != "off"
        self._saved = 1.0
        self._at: float | None = None

    def admit(self) -> bool:
        """Whether an episode that begins now is photographed."""
        now = asyncio.get_running_loop().time()
        if self._at is not None:
            self._saved = min(max(1.0, MAX_SAVED_S * self._rate), self._saved + self._rate * (now - self._at))
        self._at = now
        return self._on and self._saved > 0

    def pay(self) -> None:
        """One picture was tried; an episode may owe some, which later ones wait for."""
        self._saved -= 1.0


class EpisodeScreenshots:
    """The pictures of one episode."""

    def __init__(
        self, world: EpisodeWorld, *, keep: Keep, settings: ActorSettings, allowance: ScreenshotBudget
    ) -> None:
        """`keep` stores an image beside the log."""
        self._world = world
        self._keep = keep
        self._allowance = allowance
        observed = settings.screenshot_observation != "off"
        self._each = settings.screenshots == "all" or observed
        self._admitted = allowance.admit() or observed
        self.image = b""
        """That of the page that the step under way began with; empty: there is none."""
        self._missing = 0
        self._before: Screenshot | None = None
        """Of the page that the step under way began with."""
        self._present: Screenshot | None = None
        """Of the page as it stands; None: none was taken since the last action."""

    async def before(self, index: int) -> Screenshot | None:
        """Of the page that a step begins with, where it is due."""
        self.image = b""
        self._before = await self._take("before") if self._each or index == 0 else None
        return self._before

    async def after(self, result: StepResult) -> Screenshot | None:
        """Of what a step led to that failed, unless the page that it began with has its picture."""
        self._present = None
        return None if self._before is not None or result in WENT_WELL else await self._take("after")

    async def final(self) -> Screenshot | None:
        """Of the page that the episode ends on."""
        shown = self._present or await self._take("after")
        return None if shown is None else msgspec.structs.replace(shown, when="after")

    async def _take(self, when: Literal["before", "after"]) -> Screenshot | None:
        if not self._admitted or self._missing >= MAX_MISSING:
            return None
        self._allowance.pay()
        picture = await self._world.picture()
        image: BlobRef | None = None
        if not picture.missing:
            try:
                image = await self._keep(picture.image)
            except DiskFull as error:
                picture = WindowImage(missing=str(error))
        self._missing += image is None
        self.image = b"" if image is None else picture.image
        self._present = Screenshot(
            image=image,
            missing=picture.missing,
            when=when,
            width=picture.width,
            height=picture.height,
            scale=picture.scale,
            marks=picture.marks,
        )
        return self._present
