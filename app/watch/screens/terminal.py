"""The app behind `hindcast watch` on a terminal.

    log ── look ──> View ──> Overview
    read model ── Model ──> Episodes, EpisodeScreen
    log, blobs ── step_detail ──> StepScreen

Consumes what the run records; produces nothing. Works at 80 by 24, over ssh, in the terminal's own colors and without color
(NO_COLOR): no meaning depends on color alone.
"""

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen

from hindcast.app.runs.runs import RunHandle
from hindcast.app.watch.follower import look
from hindcast.app.watch.read_model import WatchReadModel
from hindcast.app.watch.screens.episodes import EpisodesScreen
from hindcast.app.watch.screens.overview import OverviewScreen
from hindcast.app.watch.view import RunView

PAGES: tuple[str, ...] = ("overview", "episodes")
"""Pages in the order of `[` and `]`."""


class WatchTerminal(App[Exception | None]):
    """The live view. Returns the error that ended it, or None if the user quit."""

    ENABLE_COMMAND_PALETTE = False
    MODES: ClassVar[dict[str, str | Callable[[], Screen[None]]]] = {
        "overview": OverviewScreen,
        "episodes": EpisodesScreen,
    }
    DEFAULT_MODE = "overview"
    CSS: ClassVar[str] = "#status, #what { height: auto; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "beside(-1)", "page before", key_display="["),
        Binding("right_square_bracket", "beside(1)", "next page", key_display="]"),
        Binding("q,ctrl+c", "quit", "leave", key_display="q", priority=True),
    ]

    def __init__(self, handle: RunHandle, *, interval_s: float) -> None:
        """`interval_s`: seconds between two refreshes."""
        super().__init__(ansi_color=True)
        self.handle = handle
        self.run_name = handle.name
        self.interval_s = interval_s
        self.model = WatchReadModel(handle)
        self.view: RunView | None = None
        self.caught_up = (0, 0)
        """Events read, and events in the log."""
        self._following: asyncio.Task[None] | None = None

    def on_mount(self) -> None:
        """Start following the log."""
        self.theme = "ansi-dark"
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        try:
            await look(self.handle, self._show, interval_s=self.interval_s, on_catching_up=self._catching_up)
        except Exception as error:
            # task boundary: the caller of the app raises the error after the terminal is restored
            self.exit(error)

    def _show(self, view: RunView) -> bool:
        first, self.view = self.view is None, view
        if first and isinstance(self.screen, OverviewScreen):
            self.screen.ask()
        return True

    def _catching_up(self, done: int, total: int) -> None:
        self.caught_up = (done, total)

    def action_beside(self, by: int) -> None:
        """Switch to the next or previous page."""
        place = PAGES.index(self.current_mode) + by
        if 0 <= place < len(PAGES):
            self.switch_mode(PAGES[place])

    async def on_unmount(self) -> None:
        """Close log and read model; the connection must close before the loop does."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        self.model.close()
