"""Two runs side by side: where they part, settings that differ, success by version, updates after that."""

import msgspec

from app.page.asking import Ask
from app.page.charts import CurvePoint, pool_versions
from storage.readmodel.comparison import Comparison, Point, compare_runs

METRICS = ("loss", "kl", "entropy_estimate", "gradient_norm", "reward_mean")
"""Of updates, where both runs have them."""
MOST_UPDATES = 60
"""The first after the runs part."""


class ComparePage(msgspec.Struct, frozen=True, kw_only=True):
    """The page's answer; both runs as they stand now."""

    others: list[str]
    """Runs of this home to compare with."""
    comparison: Comparison | None
    """None: no other run was chosen, and this one is no fork."""
    left: list[CurvePoint]
    right: list[CurvePoint]
    metrics: list[str]
    """Names that occur in the updates shown."""
    updates_shown: int


def compare(ask: Ask) -> ComparePage:
    """This run to the right, the chosen one, or the one it was forked from, to the left.

    Raises:
        NoSuchRun, ReadModelUnavailable: of the other run.

    """
    fork = ask.run.fork
    others = [name for name in ask.runs.names() if name != ask.run.name]
    chosen = ask.word("with") or (fork.parent if fork is not None and fork.parent in others else None)
    if chosen is None:
        return ComparePage(others=others, comparison=None, left=[], right=[], metrics=[], updates_shown=0)
    with ask.runs.asking(chosen, None) as (_, left, _place):
        found = compare_runs(left, ask.connection)
    shown = found.updates[:MOST_UPDATES]
    return ComparePage(
        others=others,
        comparison=msgspec.structs.replace(found, updates=shown),
        left=_curve(found.success, "left"),
        right=_curve(found.success, "right"),
        metrics=[
            n for n in METRICS if any(n in (step.left or {}) or n in (step.right or {}) for step in shown)
        ],
        updates_shown=len(shown),
    )


def _curve(points: tuple[Point, ...], side: str) -> list[CurvePoint]:
    sides = [(point.version, getattr(point, side)) for point in points]
    return pool_versions([(version, one.successes, one.judged) for version, one in sides if one is not None])
