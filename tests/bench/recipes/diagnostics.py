"""What a run's log tells of its training beside success: why a recipe worked, or did not."""

from collections import Counter, defaultdict
from statistics import fmean

from hindcast.app.runs.runs import RunHandle
from hindcast.core.rl.combined_state import CRITIC, POLICY
from hindcast.events.catalogue import (
    BatchPlanned,
    RunForked,
    SamplesSwept,
    TaskAdmitted,
    TaskRejected,
    UpdateApplied,
)
from hindcast.events.log.reader import read

OF_POLICY = (
    "kl",
    "clip_fraction",
    "staleness_mean",
    "ratio_mean",
    "replayed_steps",
    "replayed_episodes",
    "gradient_norm",
)
OF_CRITIC = ("auc", "calibration", "value_of_successes", "value_of_failures")
"""Metrics whose means over a run's own updates are kept, where the updates have them."""


async def diagnose(handle: RunHandle) -> dict[str, float]:
    """Means of metrics, and shares, over the part of the log that is the run's own."""
    metrics: dict[str, list[float]] = defaultdict(list)
    counts: Counter[str] = Counter()
    async with handle.connect_log() as log:
        async for recorded in read(log, after=0):
            match recorded.fact:
                case RunForked():
                    metrics.clear()
                    counts.clear()
                case UpdateApplied(model=model) as fact:
                    names = {POLICY: OF_POLICY, CRITIC: OF_CRITIC}.get(model, ())
                    for name in names:
                        if name in fact.metrics:
                            metrics[f"{model} {name}"].append(fact.metrics[name])
                case BatchPlanned(model=model) as fact if model == POLICY:
                    own = [one for one in fact.episodes if not one.rehearsed]
                    counts["planned"] += len(own)
                    counts["replayed"] += sum(one.replaces is not None or one.kept is not None for one in own)
                    counts["without advantage"] += sum(one.advantage == 0 for one in own)
                case SamplesSwept(reason=reason) as fact:
                    counts[f"swept: {reason}"] += len(fact.episodes)
                case TaskAdmitted(value=value) if value is not None:
                    counts["admitted by value"] += 1
                case TaskRejected():
                    counts["rejected"] += 1
                case _:
                    pass
    found = {name: round(fmean(values), 5) for name, values in metrics.items()}
    return found | {name: float(count) for name, count in counts.items()}
