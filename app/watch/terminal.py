"""The app behind `hindcast watch` on a terminal, and its screens: overview, episodes, one episode, one step.

    log ── look ──> RunView ──> OverviewScreen
    read model ── WatchReadModel ──> EpisodesScreen, EpisodeScreen
    log, blobs ── step_detail ──> StepScreen

Consumes what the run records; produces nothing. Works at 80 by 24, over ssh, in the terminal's own colors and without color
(NO_COLOR): no meaning depends on color alone. A screen refreshes while it is shown, and says in words what is unavailable.
Keys are those of the page.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, cast

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from hindcast.app.page.step_detail import StepDetail, step_detail
from hindcast.app.runs.runs import RunHandle
from hindcast.app.watch.follower import WatchReadModel, look
from hindcast.app.watch.rendering import as_screen, seconds
from hindcast.app.watch.view import RunView
from hindcast.core.errors import HindcastError
from hindcast.core.text.counts import count_of
from hindcast.core.text.printable import one_line, printable
from hindcast.storage.readmodel.episode_queries import EpisodeDetail, EpisodeRow, StepRow

Row = tuple[str, tuple[str, ...]]
"""Key and cells of a row."""
STEP_HEADS = (("step", 5), ("action", 32), ("result", 12), ("ms", 7), ("url", 24))
WIDTH = 300
"""Characters shown of an instruction or a reason: about four lines."""
PAGE = 50
"""Rows loaded first, and again each time that the end is reached."""
OUTCOMES = (None, "success", "failure", "undecided")
EPISODE_HEADS = (
    ("episode", 21),
    ("task", 24),
    ("outcome", 10),
    ("steps", 6),
    ("policy", 8),
    ("took", 9),
)
PAGES: tuple[str, ...] = ("overview", "episodes")
"""Pages in the order of `[` and `]`."""


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
    def terminal(self) -> "WatchTerminal":
        """The app."""
        return cast(WatchTerminal, self.app)

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


class Rows(DataTable[Text]):
    """Shows the cursor by reversed text, never by color alone."""

    DEFAULT_CSS: ClassVar[str] = """
    Rows { height: 1fr; }
    Rows > .datatable--cursor { text-style: reverse; }
    """

    def __init__(self, *heads: tuple[str, int]) -> None:
        """`heads`: names and widths of the columns."""
        super().__init__(cursor_type="row", cell_padding=0, zebra_stripes=False)
        self._heads = heads
        self._shown: list[Row] = []

    def on_mount(self) -> None:
        """Make the columns."""
        for name, width in self._heads:
            self.add_column(Text(name, "underline"), width=width)

    def show(self, rows: Sequence[Row]) -> None:
        """Replace the rows."""
        if list(rows) == self._shown:
            return
        chosen, place = self.chosen, self.cursor_row
        self._shown = list(rows)
        with self.app.batch_update():
            self.clear()
            for key, cells in rows:
                fitted = zip(cells, self._heads, strict=True)
                self.add_row(*(_cell(text, width) for text, (_, width) in fitted), key=key)
            keys = [key for key, _ in rows]
            if rows:
                self.move_cursor(row=keys.index(chosen) if chosen in keys else min(place, len(keys) - 1))

    @property
    def chosen(self) -> str | None:
        """Key of the selected row."""
        return self._shown[self.cursor_row][0] if 0 <= self.cursor_row < len(self._shown) else None

    @property
    def at_end(self) -> bool:
        """Whether the cursor is on the last row."""
        return bool(self._shown) and self.cursor_row == len(self._shown) - 1

    def move(self, by: int) -> None:
        """The cursor up or down."""
        if self._shown:
            self.move_cursor(row=max(0, min(len(self._shown) - 1, self.cursor_row + by)))


def _cell(text: str, width: int) -> Text:
    """Text cut to its column, marked with an ellipsis, and a blank before the next column."""
    line = Text(one_line(text), no_wrap=True, overflow="ellipsis")
    line.truncate(width - 1, overflow="ellipsis")
    return line


class TextScreen(LiveScreen):
    """A screen of one text that can be scrolled."""

    def __init__(self, shown: Static) -> None:
        super().__init__()
        self._shown = shown

    def compose(self) -> ComposeResult:
        """The text."""
        with VerticalScroll():
            yield self._shown
        yield self.status
        yield Footer()

    def action_move(self, by: int) -> None:
        """Scroll by lines."""
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)


class TableScreen(LiveScreen):
    """A screen of a heading and a table, whose rows can be opened."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("o,enter", "open", "open", key_display="o")]

    def __init__(self, *heads: tuple[str, int]) -> None:
        """`heads`: names and widths of the columns."""
        super().__init__()
        self._what = Static(id="what", markup=False)
        self._rows = Rows(*heads)

    def compose(self) -> ComposeResult:
        """The heading and the table."""
        yield self._what
        yield self._rows
        yield self.status
        yield Footer()

    def action_move(self, by: int) -> None:
        """Move to another row."""
        self._rows.move(by)

    def action_open(self) -> None:
        """Open the selected row."""
        if self._rows.chosen is not None:
            self.app.push_screen(self.detail(self._rows.chosen))

    def on_data_table_row_selected(self) -> None:
        """A row was clicked."""
        self.action_open()

    @abstractmethod
    def detail(self, key: str) -> LiveScreen:
        """The screen of one row."""


class OverviewScreen(TextScreen):
    """What `hindcast watch --once` prints, live."""

    def __init__(self) -> None:
        super().__init__(Static(id="overview"))

    async def renew(self) -> None:
        """Show the newest view, with the whole run's curve if the read model has it."""
        view = self.terminal.view
        if view is None:
            done, total = self.terminal.caught_up
            self._shown.update(f"reading the log of {self.terminal.run_name}: {done} of {total} events")
            return
        self._shown.update(as_screen(view))
        self._shown.update(as_screen(view, await self.terminal.model.curve()))


class StepScreen(TextScreen):
    """A scrollable text. A step never changes, so it is loaded once."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,o", "back", "back", key_display="esc"),
        Binding("space,pagedown", "move(20)", "a screen down", key_display="space"),
    ]

    def __init__(self, position: int) -> None:
        super().__init__(Static("reading the log …", id="step", markup=False))
        self._position = position
        self._is_told = False

    async def renew(self) -> None:
        """Read the step from the log."""
        if not self._is_told:
            detail = await step_detail(self.terminal.handle, self._position)
            self._shown.update(in_words(detail))
            self._is_told = True

    def action_back(self) -> None:
        """The episode."""
        self.app.pop_screen()


def in_words(step: StepDetail) -> str:
    """The whole step; each token is followed by its log-probability."""
    answer = " ".join(f"{one_line(one.text) or '␠'}({one.logprob:.2f})" for one in step.tokens)
    surprise = "" if step.perplexity is None else f", perplexity {step.perplexity:.2f}"
    parts = (
        f"step {step.index} of {step.episode} · position {step.position}\n{printable(step.url)}",
        f"ANSWER, {len(step.tokens)} tokens with their log-probabilities{surprise}\n{answer}",
        f"PAGE\n{printable(step.page) or step.page_missing}",
        f"PROMPT, {step.prompt_tokens} tokens\n{printable(step.prompt)}",
    )
    return "\n\n".join(parts)


class EpisodeScreen(TableScreen):
    """A row for each step; a running episode grows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back", key_display="esc"),
    ]

    def __init__(self, episode: str) -> None:
        super().__init__(*STEP_HEADS)
        self._episode = episode

    async def renew(self) -> None:
        """Load the episode's current state."""
        detail = await self.terminal.model.episode(self._episode)
        self._what.update(head(detail))
        self._rows.show([(str(step.position), step_cells(step)) for step in detail.steps])

    def detail(self, key: str) -> LiveScreen:
        """The screen of a step."""
        return StepScreen(int(key))

    def action_back(self) -> None:
        """Return to the previous screen."""
        self.app.pop_screen()


def head(detail: EpisodeDetail) -> str:
    """Task, state and verdicts, one line each, without control characters from pages."""
    one = detail.episode
    took = seconds(None if one.duration_ms is None else one.duration_ms / 1000)
    lines = [
        f"{one.episode} · {one.environment}/{one.family} · {one.origin} · {one.state} {one.reason or ''}".rstrip(),
        _cut(detail.instruction or "the page gives the instruction"),
        f"{one.actor or 'nobody yet'}, {took}, trained on in {count_of(len(detail.batches), 'batch')}",
    ]
    lines += [f"{said.outcome} by {said.judge}: {_cut(said.reason or '-')}" for said in detail.verdicts]
    return "\n".join(lines if detail.verdicts else [*lines, "no verdict yet"])


def step_cells(step: StepRow) -> tuple[str, ...]:
    """One row."""
    element = "" if step.element is None else f" [{step.element}]"
    argument = f" {step.argument}" if step.argument else ""
    spent = (step.observe_ms or 0) + (step.generate_ms or 0) + (step.act_ms or 0)
    action = f"{step.action or 'unparsable'}{element}{argument}"
    return (str(step.step), action, step.result or "-", f"{spent:.0f}", step.url or "-")


def _cut(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


class EpisodesScreen(TableScreen):
    """A row for each episode."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "filter", "filter by outcome"),
    ]

    def __init__(self) -> None:
        super().__init__(*EPISODE_HEADS)
        self._outcome: str | None = None
        self._limit = PAGE

    async def renew(self) -> None:
        """Load the latest episodes."""
        if self._rows.at_end and self._rows.row_count == self._limit:
            self._limit += PAGE
        outcome, limit = self._outcome, self._limit  # a key may change them while the answer is on its way
        found = await self.terminal.model.episodes(outcome=outcome, limit=limit)
        self._rows.show([(one.episode, episode_cells(one)) for one in found])
        which = "episodes" if outcome is None else f"episodes that came out as {outcome}"
        more = "; further ones below" if len(found) == limit else ""
        self._what.update(f"run {self.terminal.run_name} · {len(found)} latest {which}{more}")

    def action_move(self, by: int) -> None:
        """Move to another row; the end of the table loads more."""
        super().action_move(by)
        if self._rows.at_end:
            self.ask()

    def detail(self, key: str) -> LiveScreen:
        """The screen of an episode."""
        return EpisodeScreen(key)

    def action_filter(self) -> None:
        """Cycle through all, successes, failures and undecided episodes."""
        self._outcome = OUTCOMES[(OUTCOMES.index(self._outcome) + 1) % len(OUTCOMES)]
        self._limit = PAGE
        self.ask()


def episode_cells(one: EpisodeRow) -> tuple[str, ...]:
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
