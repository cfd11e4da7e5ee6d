"""Compares recorded events with recomputed ones: bit by bit, or by how far their numbers deviate.

Reports all differences, not only the first: what agrees helps to locate the cause.
Another processor or library release adds in another order. These must agree all the same: which samples went in, in which
order, with which advantages and shares (`inputs`, `plan`; except a critic's advantages), whether an update was applied or
skipped, and that each update begins with the state that the previous one ended in. State digests are not compared then.
The deviation of two numbers is |recorded - computed| / max(1, |recorded|): absolute for small ones, relative for large.
"""

from collections.abc import Iterator, Mapping
from math import fsum, inf, isnan, sqrt
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from hindcast.core.domain.arrays import unpack_floats, unpack_positions
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped

What = Literal["inputs", "order", "advantages", "loss", "weights", "chain", "plan"]
UPDATE_STAGES: tuple[What, ...] = ("inputs", "order", "advantages", "loss", "weights")
"""Stages of an update, causes before effects; the order of its samples is its plan's."""
PLAN_STAGES: tuple[What, ...] = ("order", "advantages", "plan", "chain")
"""Stages of a plan, likewise."""
REPORTED = ("advantages", "weights", "ratios", "masks")
"""Numbers per sample."""
LATER = frozenset({"auc", "calibration"})
"""Metrics that updates of older runs lack. They are compared where they were recorded; nothing is computed from them."""
POLICY_DISTANCE = "the policy's distance"
"""Value of `Deviation.where` if the weights themselves deviate most."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between a recorded event and its recomputation."""

    what: What
    expected: str
    """Recorded value."""
    found: str
    """Recomputed value."""


def compare_updates(
    recorded: UpdateApplied | UpdateSkipped, recomputed: UpdateApplied | UpdateSkipped
) -> Difference | None:
    """The first difference between updates, causes before effects; None: they are equal."""
    return next(update_differences(recorded, recomputed), None)


def update_differences(
    recorded: UpdateApplied | UpdateSkipped, recomputed: UpdateApplied | UpdateSkipped
) -> Iterator[Difference]:
    """All differences between updates except duration, causes before effects."""
    if isinstance(recorded, UpdateSkipped) or isinstance(recomputed, UpdateSkipped):
        if type(recorded) is not type(recomputed):
            yield Difference(what="loss", expected=_outcome(recorded), found=_outcome(recomputed))
        elif isinstance(recorded, UpdateSkipped) and isinstance(recomputed, UpdateSkipped):
            yield from _text("plan", place(recorded), place(recomputed))
            yield from _text("loss", _outcome(recorded), _outcome(recomputed))
            yield from _text("weights", recorded.state, recomputed.state)
        return
    yield from _text("weights", f"before {recorded.before}", f"before {recomputed.before}")
    yield from _text("plan", place(recorded), place(recomputed))
    yield from _text("inputs", recorded.inputs, recomputed.inputs)
    yield from _metrics(recorded.metrics, recomputed.metrics)
    yield from _report(recorded, recomputed)
    yield from _text("weights", recorded.after, recomputed.after)


def plan_differences(recorded: BatchPlanned, recomputed: BatchPlanned | None) -> Iterator[Difference]:
    """Differences between a plan and the one that follows from the log up to its `as_of`: order, advantages, then the rest."""
    if recomputed is None:
        yield Difference(
            what="plan", expected=f"a plan of batch {recorded.batch}", found="no plan can be made there"
        )
        return
    is_named = False
    if recorded.positions != recomputed.positions:
        is_named = True
        yield _order(recorded, recomputed)
    for expected, found in zip(recorded.episodes, recomputed.episodes, strict=False):
        if (expected.episode, expected.group, expected.samples) != (
            found.episode,
            found.group,
            found.samples,
        ):
            is_named = True
            yield Difference(what="order", expected=f"{expected}", found=f"{found}")
            break  # everything after it is shifted
        if (expected.reward, expected.advantage) != (found.reward, found.advantage):
            is_named = True
            yield Difference(
                what="advantages",
                expected=f"{expected.episode}: reward {expected.reward!r}, advantage {expected.advantage!r}",
                found=f"{found.episode}: reward {found.reward!r}, advantage {found.advantage!r}",
            )
    for name in recorded.__struct_fields__:
        if name not in ("positions", "episodes") and getattr(recorded, name) != getattr(recomputed, name):
            yield Difference(
                what="chain" if name == "log_digest" else "plan",
                expected=f"{name} {_show(getattr(recorded, name))}",
                found=f"{name} {_show(getattr(recomputed, name))}",
            )
    if recorded.episodes != recomputed.episodes and not is_named:
        yield Difference(what="plan", expected=_show(recorded.episodes), found=_show(recomputed.episodes))


def _order(recorded: BatchPlanned, recomputed: BatchPlanned) -> Difference:
    expected, found = (
        unpack_positions(recorded.positions).tolist(),
        unpack_positions(recomputed.positions).tolist(),
    )
    for index, (left, right) in enumerate(zip(expected, found, strict=False)):
        if left != right:
            return Difference(
                what="order",
                expected=f"sample {index} is position {left}",
                found=f"sample {index} is position {right}",
            )
    return Difference(what="order", expected=f"{len(expected)} samples", found=f"{len(found)} samples")


def _compared(recorded: dict[str, float], recomputed: dict[str, float]) -> set[str]:
    return {*recorded, *recomputed} - (LATER - recorded.keys())


def _metrics(recorded: dict[str, float], recomputed: dict[str, float]) -> Iterator[Difference]:
    for name in sorted(_compared(recorded, recomputed), key=lambda name: (name != "loss", name)):
        if repr(recorded.get(name)) != repr(recomputed.get(name)):  # so that nan equals nan
            yield Difference(
                what="loss",
                expected=f"{name} {recorded.get(name)!r}",
                found=f"{name} {recomputed.get(name)!r}",
            )


def _report(recorded: UpdateApplied, recomputed: UpdateApplied) -> Iterator[Difference]:
    for name in REPORTED:
        left, right = getattr(recorded.samples, name), getattr(recomputed.samples, name)
        if left != right:
            yield Difference(
                what="advantages" if name == "advantages" else "loss",
                expected=f"samples' {name} {_show(left)}",
                found=f"samples' {name} {_show(right)}",
            )


def _text(what: What, expected: str, found: str) -> Iterator[Difference]:
    if expected != found:
        yield Difference(what=what, expected=expected, found=found)


def place(fact: UpdateApplied | UpdateSkipped) -> str:
    """Names an update and its batch."""
    return f"update {fact.update} of the {fact.model}: batch {fact.batch}, mini-batch {fact.minibatch}"


def _outcome(fact: UpdateApplied | UpdateSkipped) -> str:
    return "applied" if isinstance(fact, UpdateApplied) else f"skipped: {fact.reason}"


def _show(value: object) -> str:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes> {value[:16].hex()}…"
    return f"{value}"[:200]


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
            self, policy=distance, largest=distance, where=POLICY_DISTANCE, recorded=0.0, computed=distance
        )


def incomparable(
    recorded: UpdateApplied | UpdateSkipped,
    recomputed: UpdateApplied | UpdateSkipped,
    *,
    valued: bool = False,
) -> Iterator[Difference]:
    """Differences that no tolerance permits. `valued`: advantages came from a critic, and are compared like other numbers."""
    if type(recorded) is not type(recomputed):
        yield Difference(what="loss", expected=type(recorded).__name__, found=type(recomputed).__name__)
        return
    yield from _text("plan", place(recorded), place(recomputed))
    if not isinstance(recorded, UpdateApplied) or not isinstance(recomputed, UpdateApplied):
        return
    yield from _text("inputs", recorded.inputs, recomputed.inputs)
    if recorded.samples.advantages != recomputed.samples.advantages and not valued:
        yield Difference(what="advantages", expected="samples' advantages", found="others")
    metric_names = _compared(recorded.metrics, recomputed.metrics)
    names = sorted(
        name for name in metric_names if (name in recorded.metrics) != (name in recomputed.metrics)
    )
    if names:
        yield Difference(
            what="loss", expected="the same metrics", found=f"only one side has {', '.join(names)}"
        )
    for name in REPORTED:
        sizes = (
            f"{name} of {len(getattr(update.samples, name)) // 4} samples"
            for update in (recorded, recomputed)
        )
        yield from _text("loss", *sizes)


def deviation(position: int, recorded: UpdateApplied, recomputed: UpdateApplied) -> Deviation:
    """Deviation of two comparable updates."""
    numbers = [
        (_apart(value, recomputed.metrics[name]), name, value, recomputed.metrics[name])
        for name, value in recorded.metrics.items()
        if name in recomputed.metrics
    ]
    metrics = max((number[0] for number in numbers), default=0.0)
    samples = {}
    for name in REPORTED:
        recorded_values = unpack_floats(getattr(recorded.samples, name)).tolist()
        recomputed_values = unpack_floats(getattr(recomputed.samples, name)).tolist()
        sample_numbers = [
            (_apart(left, right), f"samples' {name}", left, right)
            for left, right in zip(recorded_values, recomputed_values, strict=False)
        ]
        samples[name] = max((number[0] for number in sample_numbers), default=0.0)
        numbers += sample_numbers
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
    distance = abs(recorded - computed) / max(1.0, abs(recorded))
    return inf if isnan(distance) else distance


def weights_distance(recorded: bytes, recomputed: bytes, *, prefix: str = "") -> float:
    """Norm of the difference over the norm of the recorded weights; of safetensors files, tensors named `prefix`… only.

    Infinite if they hold other tensors.
    """
    recorded_tensors, recomputed_tensors = _tensors(recorded, prefix), _tensors(recomputed, prefix)
    if {name: value.shape for name, value in recorded_tensors.items()} != {
        n: v.shape for n, v in recomputed_tensors.items()
    }:
        return inf
    difference = fsum(_squares(value - recomputed_tensors[name]) for name, value in recorded_tensors.items())
    size = fsum(_squares(value) for value in recorded_tensors.values())
    if size == 0:
        return 0.0 if difference == 0 else inf
    return sqrt(difference / size)


def _squares(value: NDArray[np.float64]) -> float:
    return float(np.sum(np.square(value)))


def _tensors(content: bytes, prefix: str) -> Mapping[str, NDArray[np.float64]]:
    return {
        name: value.astype(np.float64) for name, value in load(content).items() if name.startswith(prefix)
    }
