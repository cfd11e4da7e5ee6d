"""A view as a line, and as what fills a terminal."""

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from app.watch.view import LearnerView, RateView, View

EPISODES = 4
"""Episodes shown of one actor."""


def seconds(value: float | None) -> str:
    """A duration in the unit that people would say it in."""
    if value is None:
        return "-"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.1f} s"


def rate_in_words(rate: RateView) -> str:
    """No rate without its interval and n."""
    return f"{rate.rate:.0%} [{rate.low:.0%}, {rate.high:.0%}] n={rate.n}"


def as_line(view: View) -> str:
    """All that matters on one line, for logs and pipes."""
    learner = view.learner
    success = f"{view.success[0].of} {rate_in_words(view.success[0])}" if view.success else "no verdict"
    return " · ".join(
        (
            f"position {view.position}",
            f"success {success}",
            f"policy {_number(learner.policy_version)}",
            f"{learner.updates} updates, {_loss(learner)}",
            *(f"{count} of the {model}" for model, count in learner.beside.items()),
            f"{view.running} episodes running, {view.episodes_per_minute:.1f}/min",
            view.bottleneck,
        )
    )


def as_screen(view: View) -> RenderableType:
    """Tables for a terminal."""
    head = Text(f"run {view.run}  position {view.position}  ", style="bold")
    head.append(view.bottleneck, style="bold yellow")
    figures = Text(
        f"{view.requested} requested  {view.running} running  {view.unjudged} unjudged  "
        f"{view.episodes_per_minute:.1f} episodes/min  {view.steps_per_second:.1f} steps/s  over {view.window_s:.0f} s"
    )
    parts: list[RenderableType] = [head, figures, _actors(view), Columns((_success(view), _learner(view)))]
    if view.consumers:
        parts.append(_consumers(view))
    parts += [Text(notice, style="red") for notice in view.notices]
    return Group(*parts)


def _actors(view: View) -> RenderableType:
    table = Table(
        "actor", "policy", "idle", "now", "task", "step", "for", title="actors", title_justify="left"
    )
    for actor in view.actors:
        state = f"idle {seconds(actor.idle_s)}" if not actor.episodes else f"{len(actor.episodes)} episodes"
        lines = actor.episodes[:EPISODES]
        table.add_row(
            actor.name,
            _number(actor.policy_version),
            f"{actor.idle:.0%}",
            state,
            "\n".join(one.family for one in lines),
            "\n".join(str(one.step) for one in lines),
            "\n".join(seconds(one.age_s) for one in lines),
        )
    return table


def _success(view: View) -> RenderableType:
    table = Table("success", "rate", "95 %", "n")
    for rate in view.success:
        table.add_row(rate.of, f"{rate.rate:.0%}", f"[{rate.low:.0%}, {rate.high:.0%}]", str(rate.n))
    return table


def _learner(view: View) -> RenderableType:
    learner = view.learner
    lines = (
        f"{learner.updates} updates, {learner.updates_per_minute:.1f}/min, the last {seconds(learner.quiet_s)} ago",
        f"{_loss(learner)}, newest policy {_number(learner.policy_version)}",
        *(f"{count} updates of the {model}" for model, count in learner.beside.items()),
        f"computes {learner.busy:.0%} of the time; {view.agreed:.0%} of the groups agreed",
    )
    return Panel("\n".join(lines), title="learner", title_align="left")


def _consumers(view: View) -> RenderableType:
    table = Table("consumer", "state", "lag", "events", "set aside", "detail")
    for row in view.consumers:
        table.add_row(
            row.name,
            row.state,
            seconds(row.lag_s),
            _number(row.lag_events),
            str(row.dead_letters),
            Text(row.detail, overflow="ellipsis", no_wrap=True),
        )
    return table


def _loss(learner: LearnerView) -> str:
    if learner.loss is None:
        return "no loss yet"
    stale = "-" if learner.staleness is None else f"{learner.staleness:.2f}"
    return f"loss {learner.loss:+.4f}, staleness {stale}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
