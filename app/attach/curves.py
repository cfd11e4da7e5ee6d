"""The curves of a run, for dashboards: which values an event adds to which charts. Pure; the bridges only pass them on."""

from collections.abc import Iterable
from typing import NamedTuple

from hindcast.api import events
from hindcast.core.rl.statistics import wilson
from hindcast.events.envelope import Fact


class Points(NamedTuple):
    """Values that share a place on a horizontal axis."""

    axis: str
    """`update`, `version` or `position`."""
    at: int
    values: dict[str, float]
    """By chart, such as `held_out/temperature_1/success`."""


def points_of(fact: Fact) -> Points | None:
    """What an event adds; None: nothing.

    Metrics of the policy's updates by update. Success on held-out tasks with its 95 % interval, over all families and for each,
    by policy version.
    """
    match fact:
        case events.UpdateApplied(model="policy", metrics=metrics, update=update):
            return Points("update", update, {f"update/{name}": value for name, value in metrics.items()})
        case events.EvaluationFinished(results=results, version=version):
            return Points("version", version, dict(_held_out(results)))
    return None


def _held_out(results: Iterable[events.EvaluationResult]) -> Iterable[tuple[str, float]]:
    totals: dict[str, tuple[int, int]] = {}
    for one in results:
        for name in (f"temperature_{one.temperature:g}", f"temperature_{one.temperature:g}/{one.family}"):
            won, tried = totals.get(name, (0, 0))
            totals[name] = won + one.successes, tried + one.successes + one.failures
    for name, (won, tried) in totals.items():
        if tried:
            interval = wilson(won, tried)
            yield f"held_out/{name}/success", won / tried
            yield f"held_out/{name}/low", interval.low
            yield f"held_out/{name}/high", interval.high
