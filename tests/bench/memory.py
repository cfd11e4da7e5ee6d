"""The memory of every process of a running system over time, and whether it grows.

Samples are resident sizes: what other processes share or give up does not change them, as it does the proportional ones
(PSS), and so sums of them mean little. A process counts with everything below it: an actor with its browser.

Neighbouring samples resemble each other, so a line through all of them would pretend to know its slope far too well. The
slope is fitted through the means of `BLOCKS` stretches of time, and its interval is Student's with the degrees of freedom
that these leave.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from hindcast.app.system.processes import list_processes

MIB = 1024 * 1024
BLOCKS = 12
STUDENT_95 = 2.228
"""Two-sided 95 % quantile of Student's distribution with `BLOCKS - 2` degrees of freedom."""
ALLOWANCE_MIB = 4.0
"""Growth in an hour that counts as flat for a small process …"""
ALLOWANCE_SHARE = 0.02
"""… and for a large one, as a share of its mean: what allocators take and give back."""
HOUR_S = 3600.0
BARS = "▁▂▃▄▅▆▇█"

Verdict = Literal["flat", "growing", "unclear"]
"""`unclear`: the interval holds both; the run was too short, or the sizes swing too much."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """All sizes at one moment."""

    at_s: float
    """Since the first sample."""
    sizes_mib: dict[str, float]
    """By process, such as `learner.1`; `actor.1 (browser)` is a part of `actor.1`."""
    pids: dict[str, int]


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one process' memory after the warm-up."""

    process: str
    first_mib: float
    """Mean of the first block."""
    last_mib: float
    """Mean of the last block."""
    peak_mib: float
    slope: float
    """MiB per hour."""
    low: float
    """Lower end of the slope's 95 % interval."""
    high: float
    verdict: Verdict
    restarts: int
    """Times it was another process than at the sample before: then the slope says little."""
    shape: str
    """Block means as bars from smallest to largest."""


def take_sample(folder: Path, *, at_s: float, others: Mapping[str, int]) -> Sample:
    """Sizes of all processes that `folder` names, and of `others` (name -> pid), whose children are not counted in."""
    sizes: dict[str, float] = {}
    pids: dict[str, int] = {}
    for entry in list_processes(folder):
        try:
            process = psutil.Process(entry.pid)
            children = process.children(recursive=True)
        except psutil.NoSuchProcess:
            continue
        own, below = size_mib(entry.pid), sum(size_mib(child.pid) for child in children)
        sizes[entry.name], pids[entry.name] = own + below, entry.pid
        if entry.name.startswith("actor"):
            sizes[f"{entry.name} (browser)"] = below
            sizes[f"{entry.name} (Python)"] = own
    for name, pid in others.items():
        sizes[name], pids[name] = size_mib(pid), pid
    return Sample(at_s=at_s, sizes_mib=sizes, pids=pids)


def size_mib(pid: int) -> float:
    """Resident size of one process in MiB; 0 when it is gone."""
    try:
        return float(psutil.Process(pid).memory_info().rss) / MIB
    except psutil.NoSuchProcess:
        return 0.0


def growths(samples: Sequence[Sample], *, warm_up_s: float) -> list[Growth]:
    """One entry per process that was there from the end of the warm-up on; at least `BLOCKS` samples are needed."""
    counted = [sample for sample in samples if sample.at_s >= warm_up_s]
    if len(counted) < BLOCKS:
        raise ValueError(
            f"{len(counted)} samples after the warm-up of {warm_up_s:.0f} s are too few: {BLOCKS} are needed"
        )
    names = [name for name in counted[0].sizes_mib if all(name in sample.sizes_mib for sample in counted)]
    return [_growth(name, counted) for name in names]


def _growth(name: str, samples: Sequence[Sample]) -> Growth:
    values = [(sample.at_s, sample.sizes_mib[name]) for sample in samples]
    blocks = [_mean(block) for block in _split(values)]
    slope, margin = fit(blocks)
    sizes = [size for _, size in blocks]
    pids = [sample.pids.get(name.split(" ")[0], 0) for sample in samples]
    return Growth(
        process=name,
        first_mib=sizes[0],
        last_mib=sizes[-1],
        peak_mib=max(size for _, size in values),
        slope=slope,
        low=slope - margin,
        high=slope + margin,
        verdict=judge(slope - margin, slope + margin, mean_mib=sum(sizes) / len(sizes)),
        restarts=sum(one != other for one, other in pairwise(pids)),
        shape=bars(sizes),
    )


def judge(low: float, high: float, *, mean_mib: float) -> Verdict:
    """Whether a slope known to lie between these (MiB per hour) is growth."""
    allowed = max(ALLOWANCE_MIB, ALLOWANCE_SHARE * mean_mib)
    if low > allowed:
        return "growing"
    return "flat" if high <= allowed else "unclear"


def fit(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least squares through (seconds, MiB): the slope per hour and half the width of its 95 % interval."""
    count = len(points)
    mid_x, mid_y = _mean(points)
    spread = sum((x - mid_x) ** 2 for x, _ in points)
    slope = sum((x - mid_x) * (y - mid_y) for x, y in points) / spread
    residual = sum((y - mid_y - slope * (x - mid_x)) ** 2 for x, y in points)
    return slope * HOUR_S, STUDENT_95 * sqrt(residual / (count - 2) / spread) * HOUR_S


def bars(sizes: Sequence[float]) -> str:
    """A line of bars; all low when nothing changes by a MiB."""
    low, height = min(sizes), max(max(sizes) - min(sizes), 1.0)
    return "".join(BARS[min(len(BARS) - 1, int((size - low) / height * len(BARS)))] for size in sizes)


def to_csv(samples: Iterable[Sample]) -> str:
    """One line per sample and process."""
    lines = ["at_s,process,mib"]
    lines += [
        f"{sample.at_s:.1f},{name},{size:.2f}"
        for sample in samples
        for name, size in sample.sizes_mib.items()
    ]
    return "\n".join(lines) + "\n"


def _split(values: Sequence[tuple[float, float]]) -> list[Sequence[tuple[float, float]]]:
    edges = [len(values) * block // BLOCKS for block in range(BLOCKS + 1)]
    return [values[start:end] for start, end in pairwise(edges)]


def _mean(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    count = len(points)
    return sum(x for x, _ in points) / count, sum(y for _, y in points) / count
