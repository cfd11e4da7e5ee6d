"""Screen of one step: the answer token by token, the page, and exactly what the policy read."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from hindcast.app.page.step_detail import StepDetail, step_detail
from hindcast.app.watch.screens.base import LiveScreen
from hindcast.core.text.printable import one_line, printable


class StepScreen(LiveScreen):
    """A scrollable text. A step never changes, so it is loaded once."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,o", "back", "back", key_display="esc"),
        Binding("space,pagedown", "move(20)", "a screen down", key_display="space"),
    ]

    def __init__(self, position: int) -> None:
        super().__init__()
        self._position = position
        self._told = Static("reading the log …", id="step", markup=False)
        self._is_told = False

    def compose(self) -> ComposeResult:
        """The text."""
        with VerticalScroll():
            yield self._told
        yield self.status
        yield Footer()

    async def renew(self) -> None:
        """Read the step from the log."""
        if not self._is_told:
            detail = await step_detail(self.terminal.handle, self._position)
            self._told.update(in_words(detail))
            self._is_told = True

    def action_move(self, by: int) -> None:
        """Scroll."""
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)

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
