"""When to take screenshots: by the setting `actors.screenshots`, of some episodes, never at an episode's cost.

Invariant: on average at most `actors.screenshot_rate` pictures per second and actor. An episode has all of its due
pictures or none, so that an episode with pictures can be viewed whole. Where the policy reads pictures
(`actors.screenshot_observation`), the rate does not apply: every step of every episode has one.
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
"""After this many failed pictures an episode tries no more: each may have used up its time limit."""
MAX_SAVED_S = 10.0
"""How many seconds of unused rate an actor may save up and spend at once."""
WENT_WELL = ("ok", "exit")

Keep = Callable[[bytes], Awaitable[BlobRef]]


class ScreenshotBudget:
    """Token bucket for the screenshots of an actor; every episode asks once and pays per picture."""

    def __init__(self, settings: ActorSettings) -> None:
        self._rate = settings.screenshot_rate
        self._on = settings.screenshots != "off"
        self._saved = 1.0
        self._at: float | None = None

    def admit(self) -> bool:
        """Whether an episode that begins now is photographed."""
        now_s = asyncio.get_running_loop().time()
        if self._at is not None:
            self._saved = min(
                max(1.0, MAX_SAVED_S * self._rate), self._saved + self._rate * (now_s - self._at)
            )
        self._at = now_s
        return self._on and self._saved > 0

    def pay(self) -> None:
        """Pay for one attempted picture; the balance may become negative, and later episodes wait for it."""
        self._saved -= 1.0


class EpisodeScreenshots:
    """The screenshots of one episode."""

    def __init__(
        self, world: EpisodeWorld, *, keep: Keep, settings: ActorSettings, allowance: ScreenshotBudget
    ) -> None:
        """`keep` stores an image as a blob."""
        self._world = world
        self._keep = keep
        self._allowance = allowance
        observed = settings.screenshot_observation != "off"
        self._every_step = settings.screenshots == "all" or observed
        self._admitted = allowance.admit() or observed
        self.image = b""
        """Image of the page at the start of the current step; empty: none."""
        self._missing = 0
        self._before: Screenshot | None = None
        """Screenshot of the page at the start of the current step."""
        self._present: Screenshot | None = None
        """Screenshot of the current page; None: none since the last action."""

    async def take_before(self, index: int) -> Screenshot | None:
        """Take a screenshot of the page at the start of a step, if due."""
        self.image = b""
        self._before = await self._take("before") if self._every_step or index == 0 else None
        return self._before

    async def take_after(self, result: StepResult) -> Screenshot | None:
        """Take a screenshot after a failed step, unless the page at its start has one."""
        self._present = None
        return None if self._before is not None or result in WENT_WELL else await self._take("after")

    async def final(self) -> Screenshot | None:
        """Take a screenshot of the final page, or reuse the present one."""
        screenshot = self._present or await self._take("after")
        return None if screenshot is None else msgspec.structs.replace(screenshot, when="after")

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
