"""Overview of a run: its progress, whether it learns, and what delays it."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection

from hindcast.app.alerts.report import alert_report
from hindcast.app.page.charts import (
    CurvePoint,
    EvaluationCurve,
    Span,
    evaluation_curves,
    pool_metric,
    pool_versions,
)
from hindcast.app.page.runs import PageQuery
from hindcast.app.page.views.axes import Axis, find_axis
from hindcast.app.runs.runs import RunHandle
from hindcast.core.rl.statistics import Interval, gap
from hindcast.storage.readmodel.evaluation_queries import (
    EvaluationRow,
    FamilyChange,
    changes_by_family,
    list_evaluations,
)
from hindcast.storage.readmodel.metrics import MetricColumn, Throughput, update_metrics
from hindcast.storage.readmodel.outcome_counts import families_by_version, training_origin, training_tallies
from hindcast.storage.readmodel.run_queries import RunStatus, run_status

METRICS = {
    "reward_mean": "mean reward of the episodes trained on",
    "loss": "loss",
    "kl": "KL to the reference, nats a token",
    "entropy_estimate": "entropy estimate, nats a token",
    "staleness_mean": "staleness, policy versions",
    "mismatch_kl": "sampler against learner at equal weights, KL",
    "gradient_norm": "norm of the gradient",
    "clip_fraction": "clipped tokens, share",
}
"""Metrics to draw, in this order, if an update has them."""
BUSY = 0.5
"""Share of computing time above which the learner is the bottleneck."""
ENDED = ("finished", "sealed")
"""States in which a run begins nothing more, unless it is started again with another goal."""
STEP_PARTS = {
    "mean_observe_ms": "reading the page",
    "mean_generate_ms": "the policy",
    "mean_act_ms": "the browser's actions",
}


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of the policy's updates."""

    name: str
    meaning: str
    updates: int
    """Number of updates with a value."""
    last: float
    columns: list[MetricColumn]


class LearningSign(msgspec.Struct, frozen=True, kw_only=True):
    """Whether success rose or fell from the first policy version to the newest."""

    measured: str
    """What `first` and `newest` are: `held-out tasks, greedy`, or `online episodes`."""
    first: CurvePoint
    newest: CurvePoint
    change: Interval
    """Newest minus first, with its 95 % interval."""


class OverviewPage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the overview page."""

    summary: RunStatus
    going_on: bool
    """Whether the home's system works on the run now."""
    pausable: bool
    """Whether there is work that a pause would hold back: the run has not ended."""
    health: str
    """What delays the run, in words."""
    learning: LearningSign | None
    """None: no two versions were measured yet."""
    alerts: int | None
    """Number of raised alerts; None: nobody watched the run, or it is not a run of this home."""
    family: str | None
    """Family that the evaluation's curves are limited to; None: all."""
    evaluations: list[EvaluationRow]
    """Evaluations on held-out tasks, in order; the last may be running."""
    evaluation_curves: list[EvaluationCurve]
    evaluated_families: list[FamilyChange]
    """Success of each family at each temperature, in the first and in the newest evaluation."""
    played_families: list[str]
    """Families with a judged online episode."""
    axis: Axis
    """What the charts are drawn over."""
    curve: list[CurvePoint]
    """Success of online episodes by policy version, with equal weights of families for all versions."""
    metrics: list[Metric]


def overview(ask: PageQuery) -> OverviewPage:
    """The whole run at a glance; `versions` and `updates` (`3-7`) limit the charts to a part, which is pooled less."""
    known = training_tallies(ask.connection, as_of=ask.position)
    summary = run_status(ask.connection, as_of=ask.position, tallied=known)
    going_on = isinstance(ask.run, RunHandle) and ask.run.is_running()
    family = ask.word("family")
    evaluations = list_evaluations(ask.connection, as_of=ask.position, family=family)
    versions, numbers = ask.span("versions"), ask.span("updates")
    curves = evaluation_curves(evaluations, span=versions)
    played = families_by_version(known, origin=training_origin(known))
    curve = pool_versions(played, span=versions)
    metrics = _metrics(ask.connection, ask.position, numbers)
    return OverviewPage(
        summary=summary,
        going_on=going_on,
        pausable=summary.state not in ENDED,
        health=health(summary, going_on=going_on),
        learning=_learning(curves, curve),
        alerts=_raised_alerts(ask),
        family=family,
        evaluations=evaluations,
        evaluation_curves=curves,
        evaluated_families=changes_by_family(ask.connection, as_of=ask.position),
        played_families=sorted({family for families in played.values() for family in families}),
        axis=find_axis(
            ask.connection,
            ask.position,
            ask.word("over") or "",
            versions={point.last for points in (curve, *(one.points for one in curves)) for point in points},
            numbers={column.last for metric in metrics for column in metric.columns},
        ),
        curve=curve,
        metrics=metrics,
    )


def _learning(evaluated: Sequence[EvaluationCurve], online: Sequence[CurvePoint]) -> LearningSign | None:
    if evaluated and len(evaluated[0].points) > 1:
        measured, points = f"held-out tasks, {evaluated[0].name}", evaluated[0].points
    elif len(online) > 1:
        measured, points = "online episodes", list(online)
    else:
        return None
    first, newest = points[0], points[-1]
    change = gap(*(Interval(rate=one.rate, low=one.low, high=one.high) for one in (first, newest)))
    return LearningSign(measured=measured, first=first, newest=newest, change=change)


def _raised_alerts(ask: PageQuery) -> int | None:
    if not isinstance(ask.run, RunHandle):
        return None
    report = alert_report(ask.run, as_of=ask.position if ask.word("as_of") else None)
    return len(report.raised) if report.watchers else None


def health(summary: RunStatus, *, going_on: bool) -> str:
    """Says who waits for whom in the newest part of the run, and whether the run is running."""
    said = _in_words(summary)
    if going_on or summary.state == "finished":
        return said
    return f"the run is not running now (hindcast start {summary.run}); at this position: {said}"


def _in_words(summary: RunStatus) -> str:
    speed = summary.throughput
    if summary.pauses:
        return "paused by " + "; ".join(
            f"{who}: {why}" if why else who for who, why in summary.pauses.items()
        )
    if summary.state == "finished":
        return f"finished: its goal was reached ({summary.finished_reason})"
    if not speed.steps and not speed.updates:
        return "nobody has acted yet" if not summary.steps else "nothing happened in the newest stretch"
    if not summary.updates:
        return "gathering episodes for the first update"
    if speed.learner_busy > BUSY:
        return f"the learner is the bottleneck: it computes {speed.learner_busy:.0%} of the time"
    return f"actors are the bottleneck: the learner waits {1 - speed.learner_busy:.0%} of the time{_where(speed)}"


def _where(speed: Throughput) -> str:
    """The largest part of a step."""
    parts = {name: getattr(speed, name) or 0.0 for name in STEP_PARTS}
    whole = sum(parts.values())
    if not whole:
        return ""
    part = max(parts, key=lambda name: parts[name])
    return f"; {parts[part] / whole:.0%} of a step is {STEP_PARTS[part]}"


def _metrics(connection: Connection, position: int, span: Span) -> list[Metric]:
    recorded = update_metrics(connection, as_of=position, names=tuple(METRICS))
    return [
        Metric(
            name=name,
            meaning=meaning,
            updates=sum(column.updates for column in recorded[name]),
            last=recorded[name][-1].value,
            columns=pool_metric(recorded[name], span=span),
        )
        for name, meaning in METRICS.items()
        if any(column.low or column.high for column in recorded.get(name, ()))
    ]
