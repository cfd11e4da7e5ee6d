"""First screen: success, learner, actors, consumers, and what delays the run."""

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from hindcast.app.watch.rendering import as_screen
from hindcast.app.watch.screens.base import LiveScreen


class OverviewScreen(LiveScreen):
    """What `hindcast watch --once` prints, live."""

    def __init__(self) -> None:
        super().__init__()
        self._shown = Static(id="overview")

    def compose(self) -> ComposeResult:
        """One text that can be scrolled."""
        with VerticalScroll():
            yield self._shown
        yield self.status
        yield Footer()

    async def renew(self) -> None:
        """Show the newest view, with the whole run's curve if the read model has it."""
        view = self.terminal.view
        if view is None:
            done, total = self.terminal.caught_up
            self._shown.update(f"reading the log of {self.terminal.run_name}: {done} of {total} events")
            return
        self._shown.update(as_screen(view))
        self._shown.update(as_screen(view, await self.terminal.model.curve()))

    def action_move(self, by: int) -> None:
        """Scroll by a line."""
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)
