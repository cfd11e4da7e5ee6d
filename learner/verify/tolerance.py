"""Deviation of recomputed numbers from recorded ones, where bits cannot be expected to agree.

Another processor or library release adds in another order. These must agree all the same: which samples went in, in which
order, with which advantages and shares (`inputs`, `plan`; except a critic's advantages), whether an update was applied or
skipped, and that each update begins with the state that the previous one ended in. State digests are not compared.
The deviation of two numbers is |recorded - computed| / max(1, |recorded|): absolute for small ones, relative for large.
"""

from collections.abc import Iterator, Mapping
from math import fsum, inf, isnan, sqrt

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from hindcast.core.domain.arrays import unpack_floats
from hindcast.events.catalogue import UpdateApplied, UpdateSkipped
from hindcast.learner.verify.comparison import Difference, place

REPORTED = ("advantages", "weights", "ratios", "masks")
"""Numbers per sample."""
POLICY = "the policy's distance"
"""Value of `Deviation.where` if the weights themselves deviate most."""


class Deviation(msgspec.Struct, frozen=True, kw_only=True):
    """How far one update deviates from the recorded one."""

    position: int
    update: int
    largest: float
    """Maximum of all deviations below."""
    where: str
    """The number with that deviation, such as `gradient_norm` or `samples' ratios`; empty if nothing differs."""
    recorded: float
    """Recorded value of that number."""
    computed: float
    metrics: float
    """Largest deviation among the update's metrics."""
    samples: dict[str, float]
    """Largest deviation among `advantages`, `weights` (shares of the loss), `ratios` and `masks` of its samples."""
    policy: float | None = None
    """Norm of the policy weights' difference over the norm of the recorded ones, if those are available."""

    def with_policy(self, distance: float) -> "Deviation":
        """A copy with the policy's distance after this update."""
        if distance <= self.largest:
            return msgspec.structs.replace(self, policy=distance)
        return msgspec.structs.replace(
            self, policy=distance, largest=distance, where=POLICY, recorded=0.0, computed=distance
        )


def incomparable(
    recorded: UpdateApplied | UpdateSkipped, again: UpdateApplied | UpdateSkipped, *, valued: bool = False
) -> Iterator[Difference]:
    """Differences that no tolerance permits. `valued`: advantages came from a critic, and are compared like other numbers."""
    if type(recorded) is not type(again):
        yield Difference(what="loss", expected=type(recorded).__name__, found=type(again).__name__)
        return
    if place(recorded) != place(again):
        yield Difference(what="plan", expected=place(recorded), found=place(again))
    if not isinstance(recorded, UpdateApplied) or not isinstance(again, UpdateApplied):
        return
    if recorded.inputs != again.inputs:
        yield Difference(what="inputs", expected=recorded.inputs, found=again.inputs)
    if recorded.samples.advantages != again.samples.advantages and not valued:
        yield Difference(what="advantages", expected="samples' advantages", found="others")
    if recorded.metrics.keys() != again.metrics.keys():
        names = sorted(recorded.metrics.keys() ^ again.metrics.keys())
        yield Difference(
            what="loss", expected="the same metrics", found=f"only one side has {', '.join(names)}"
        )
    for name in REPORTED:
        lengths = len(getattr(recorded.samples, name)), len(getattr(again.samples, name))
        if lengths[0] != lengths[1]:
            yield Difference(
                what="loss",
                expected=f"{name} of {lengths[0] // 4} samples",
                found=f"{name} of {lengths[1] // 4} samples",
            )


def deviation(position: int, recorded: UpdateApplied, again: UpdateApplied) -> Deviation:
    """Deviation of two comparable updates."""
    numbers = [
        (_apart(value, again.metrics[name]), name, value, again.metrics[name])
        for name, value in recorded.metrics.items()
        if name in again.metrics
    ]
    metrics = max((number[0] for number in numbers), default=0.0)
    samples = {}
    for name in REPORTED:
        ours = unpack_floats(getattr(recorded.samples, name)).tolist()
        theirs = unpack_floats(getattr(again.samples, name)).tolist()
        listed = [
            (_apart(left, right), f"samples' {name}", left, right)
            for left, right in zip(ours, theirs, strict=False)
        ]
        samples[name] = max((number[0] for number in listed), default=0.0)
        numbers += listed
    largest = max(numbers, key=lambda number: number[0], default=(0.0, "", 0.0, 0.0))
    return Deviation(
        position=position,
        update=recorded.update,
        largest=largest[0],
        where=largest[1] if largest[0] > 0 else "",
        recorded=largest[2],
        computed=largest[3],
        metrics=metrics,
        samples=samples,
    )


def _apart(recorded: float, computed: float) -> float:
    if isnan(recorded) or isnan(computed):
        return 0.0 if isnan(recorded) and isnan(computed) else inf
    if recorded == computed:
        return 0.0
    apart = abs(recorded - computed) / max(1.0, abs(recorded))
    return inf if isnan(apart) else apart


def weights_distance(recorded: bytes, again: bytes, *, prefix: str = "") -> float:
    """Norm of the difference over the norm of the recorded weights; of safetensors files, tensors named `prefix`… only.

    Infinite if they hold other tensors.
    """
    ours, theirs = _tensors(recorded, prefix), _tensors(again, prefix)
    if {name: value.shape for name, value in ours.items()} != {n: v.shape for n, v in theirs.items()}:
        return inf
    apart = fsum(_squares(value - theirs[name]) for name, value in ours.items())
    size = fsum(_squares(value) for value in ours.values())
    if size == 0:
        return 0.0 if apart == 0 else inf
    return sqrt(apart / size)


def _squares(value: NDArray[np.float64]) -> float:
    return float(np.sum(np.square(value)))


def _tensors(content: bytes, prefix: str) -> Mapping[str, NDArray[np.float64]]:
    return {
        name: value.astype(np.float64) for name, value in load(content).items() if name.startswith(prefix)
    }
