"""Screen of the latest episodes, a table that grows at its end."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from hindcast.app.watch.rendering import seconds
from hindcast.app.watch.screens.episode import EpisodeScreen
from hindcast.app.watch.terminal import LiveScreen, Rows
from hindcast.storage.readmodel.episode_queries import EpisodeRow

PAGE = 50
"""Rows loaded first, and again each time that the end is reached."""
OUTCOMES = (None, "success", "failure", "undecided")
HEADS = (
    ("episode", 21),
    ("task", 24),
    ("outcome", 10),
    ("steps", 6),
    ("policy", 8),
    ("took", 9),
)


class EpisodesScreen(LiveScreen):
    """A row for each episode."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o,enter", "open", "open", key_display="o"),
        Binding("f", "filter", "filter by outcome"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._what = Static(id="what", markup=False)
        self._rows = Rows(*HEADS)
        self._outcome: str | None = None
        self._limit = PAGE

    def compose(self) -> ComposeResult:
        """What is shown, and the table."""
        yield self._what
        yield self._rows
        yield self.status
        yield Footer()

    async def renew(self) -> None:
        """Load the latest episodes."""
        if self._rows.at_end and self._rows.row_count == self._limit:
            self._limit += PAGE
        outcome, limit = self._outcome, self._limit  # a key may change them while the answer is on its way
        found = await self.terminal.model.episodes(outcome=outcome, limit=limit)
        self._rows.show([(one.episode, cells(one)) for one in found])
        which = "episodes" if outcome is None else f"episodes that came out as {outcome}"
        more = "; further ones below" if len(found) == limit else ""
        self._what.update(f"run {self.terminal.run_name} · {len(found)} latest {which}{more}")

    def action_move(self, by: int) -> None:
        """Move to another row; the end of the table loads more."""
        self._rows.move(by)
        if self._rows.at_end:
            self.ask()

    def action_open(self) -> None:
        """Open the selected episode."""
        chosen = self._rows.chosen
        if chosen is not None:
            self.app.push_screen(EpisodeScreen(chosen))

    def on_data_table_row_selected(self) -> None:
        """A row was clicked."""
        self.action_open()

    def action_filter(self) -> None:
        """Cycle through all, successes, failures and undecided episodes."""
        self._outcome = OUTCOMES[(OUTCOMES.index(self._outcome) + 1) % len(OUTCOMES)]
        self._limit = PAGE
        self.ask()


def cells(one: EpisodeRow) -> tuple[str, ...]:
    """One row: the verdict if there is one, else the episode's state."""
    outcome = one.outcome if one.outcome is not None else one.state
    versions = (one.version_low, one.version_high)
    policy = "-" if None in versions else "-".join(str(v) for v in dict.fromkeys(versions))
    if one.version_low is not None and one.version_low < 0:
        policy = "shown"
    return (
        one.episode,
        f"{one.environment or '?'}/{one.family or '?'}",
        outcome,
        "-" if one.steps is None else str(one.steps),
        policy,
        seconds(None if one.duration_ms is None else one.duration_ms / 1000),
    )
