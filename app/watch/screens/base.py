"""Base of the screens: they refresh while they are shown, and say in words what is unavailable."""

from abc import abstractmethod
from typing import ClassVar, Protocol, cast

from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from hindcast.app.runs.runs import RunHandle
from hindcast.app.watch.read_model import WatchReadModel
from hindcast.app.watch.view import RunView
from hindcast.core.errors import HindcastError


class Terminal(Protocol):
    """The app, as its screens see it."""

    handle: RunHandle
    run_name: str
    interval_s: float
    """Seconds between two refreshes."""
    model: WatchReadModel
    view: RunView | None
    """The newest view; None before the first."""
    caught_up: tuple[int, int]
    """Events read, and events in the log."""


class LiveScreen(Screen[None]):
    """A screen that refreshes every interval, with one query at a time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", key_display="j"),
        Binding("k,up", "move(-1)", "up", key_display="k"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.status = Static(id="status", markup=False)
        """Why something is missing, in words."""
        self._asking = False

    @property
    def terminal(self) -> Terminal:
        """The app."""
        return cast(Terminal, self.app)

    def on_mount(self) -> None:
        """Refresh now and then every interval."""
        self.set_interval(self.terminal.interval_s, self.ask)
        self.ask()

    def on_screen_resume(self) -> None:
        """Refresh when the screen is shown again."""
        self.ask()

    def ask(self) -> None:
        """Refresh, unless a refresh is running or the screen is hidden."""
        if self.is_current and not self._asking:
            self._asking = True
            self.run_worker(self._renewed())

    async def _renewed(self) -> None:
        try:
            await self.renew()
        except HindcastError as error:
            self.status.update(str(error))
        else:
            self.status.update("")
        finally:
            self._asking = False

    @abstractmethod
    async def renew(self) -> None:
        """Query and show. A HindcastError from here becomes the status line.

        The screen may be gone when an answer comes: widgets are held, not looked for.
        """

    @abstractmethod
    def action_move(self, by: int) -> None:
        """Move up or down by one."""
