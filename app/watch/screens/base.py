"""What the screens have in common: they ask again and again while they are shown, and say in words what cannot be had."""

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
    """What a screen asks of the app that shows it."""

    handle: RunHandle
    run_name: str
    interval_s: float
    """Between two looks."""
    model: WatchReadModel
    view: RunView | None
    """The newest look at the run; None before the first."""
    caught_up: tuple[int, int]
    """Events read of those that there were."""


class LiveScreen(Screen[None]):
    """A screen that `renew`s itself every interval, one question at a time."""

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
        """Show something at once, then again every interval."""
        self.set_interval(self.terminal.interval_s, self.ask)
        self.ask()

    def on_screen_resume(self) -> None:
        """Whoever comes back sees this moment."""
        self.ask()

    def ask(self) -> None:
        """Renew, unless that is under way or nobody looks."""
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
        """Ask and show. A HindcastError from here becomes the status line.

        The screen may be gone when an answer comes: widgets are held, not looked for.
        """

    @abstractmethod
    def action_move(self, by: int) -> None:
        """Up or down by one."""
