"""Screen of one episode: its task, verdicts and steps."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from hindcast.app.watch.rendering import seconds
from hindcast.app.watch.terminal import LiveScreen, Rows, StepScreen
from hindcast.core.text.printable import one_line
from hindcast.storage.readmodel.episode_queries import EpisodeDetail, StepRow

HEADS = (("step", 5), ("action", 32), ("result", 12), ("ms", 7), ("url", 24))
WIDTH = 300
"""Characters shown of an instruction or a reason: about four lines."""


class EpisodeScreen(LiveScreen):
    """A row for each step; a running episode grows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o,enter", "open", "open", key_display="o"),
        Binding("escape", "back", "back", key_display="esc"),
    ]

    def __init__(self, episode: str) -> None:
        super().__init__()
        self._what = Static(id="what", markup=False)
        self._rows = Rows(*HEADS)
        self._episode = episode

    def compose(self) -> ComposeResult:
        """What it is about, and its steps."""
        yield self._what
        yield self._rows
        yield self.status
        yield Footer()

    async def renew(self) -> None:
        """Load the episode's current state."""
        detail = await self.terminal.model.episode(self._episode)
        self._what.update(head(detail))
        self._rows.show([(str(step.position), cells(step)) for step in detail.steps])

    def action_move(self, by: int) -> None:
        """Another step."""
        self._rows.move(by)

    def action_open(self) -> None:
        """Open the selected step."""
        chosen = self._rows.chosen
        if chosen is not None:
            self.app.push_screen(StepScreen(int(chosen)))

    def on_data_table_row_selected(self) -> None:
        """A row was clicked."""
        self.action_open()

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
        f"{one.actor or 'nobody yet'}, {took}, trained on in {len(detail.batches)} batches",
    ]
    lines += [f"{said.outcome} by {said.judge}: {_cut(said.reason or '-')}" for said in detail.verdicts]
    return "\n".join(lines if detail.verdicts else [*lines, "no verdict yet"])


def cells(step: StepRow) -> tuple[str, ...]:
    """One row."""
    element = "" if step.element is None else f" [{step.element}]"
    argument = f" {step.argument}" if step.argument else ""
    spent = (step.observe_ms or 0) + (step.generate_ms or 0) + (step.act_ms or 0)
    action = f"{step.action or 'unparsable'}{element}{argument}"
    return (str(step.step), action, step.result or "-", f"{spent:.0f}", step.url or "-")


def _cut(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"
