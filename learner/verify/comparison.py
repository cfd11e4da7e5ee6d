"""Compares recorded events with recomputed ones. Exact: bits, not tolerances.

Reports all differences, not only the first: what agrees helps to locate the cause.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from hindcast.core.domain.arrays import unpack_positions
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped

What = Literal["inputs", "order", "advantages", "loss", "weights", "chain", "plan"]
UPDATE_STAGES: tuple[What, ...] = ("inputs", "order", "advantages", "loss", "weights")
"""Stages of an update, causes before effects; the order of its samples is its plan's."""
PLAN_STAGES: tuple[What, ...] = ("order", "advantages", "plan", "chain")
"""Stages of a plan, likewise."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between a recorded event and its recomputation."""

    what: What
    expected: str
    """Recorded value."""
    found: str
    """Recomputed value."""


def compare_updates(
    recorded: UpdateApplied | UpdateSkipped, again: UpdateApplied | UpdateSkipped
) -> Difference | None:
    """The first difference between updates, causes before effects; None: they are equal."""
    return next(update_differences(recorded, again), None)


def update_differences(
    recorded: UpdateApplied | UpdateSkipped, again: UpdateApplied | UpdateSkipped
) -> Iterator[Difference]:
    """All differences between updates except duration, causes before effects."""
    if isinstance(recorded, UpdateSkipped) or isinstance(again, UpdateSkipped):
        if type(recorded) is not type(again):
            yield Difference(what="loss", expected=_outcome(recorded), found=_outcome(again))
        elif isinstance(recorded, UpdateSkipped) and isinstance(again, UpdateSkipped):
            yield from _text("plan", place(recorded), place(again))
            yield from _text("loss", _outcome(recorded), _outcome(again))
            yield from _text("weights", recorded.state, again.state)
        return
    yield from _text("weights", f"before {recorded.before}", f"before {again.before}")
    yield from _text("plan", place(recorded), place(again))
    yield from _text("inputs", recorded.inputs, again.inputs)
    yield from _metrics(recorded.metrics, again.metrics)
    yield from _report(recorded, again)
    yield from _text("weights", recorded.after, again.after)


def plan_differences(recorded: BatchPlanned, again: BatchPlanned | None) -> Iterator[Difference]:
    """Differences between a plan and the one that follows from the log up to its `as_of`: order, advantages, then the rest."""
    if again is None:
        yield Difference(
            what="plan", expected=f"a plan of batch {recorded.batch}", found="no plan can be made there"
        )
        return
    named = False
    if recorded.positions != again.positions:
        named = True
        yield _order(recorded, again)
    for ours, theirs in zip(recorded.episodes, again.episodes, strict=False):
        if (ours.episode, ours.group, ours.samples) != (theirs.episode, theirs.group, theirs.samples):
            named = True
            yield Difference(what="order", expected=f"{ours}", found=f"{theirs}")
            break  # everything after it is shifted
        if (ours.reward, ours.advantage) != (theirs.reward, theirs.advantage):
            named = True
            yield Difference(
                what="advantages",
                expected=f"{ours.episode}: reward {ours.reward!r}, advantage {ours.advantage!r}",
                found=f"{theirs.episode}: reward {theirs.reward!r}, advantage {theirs.advantage!r}",
            )
    for name in recorded.__struct_fields__:
        if name not in ("positions", "episodes") and getattr(recorded, name) != getattr(again, name):
            yield Difference(
                what="chain" if name == "log_digest" else "plan",
                expected=f"{name} {_show(getattr(recorded, name))}",
                found=f"{name} {_show(getattr(again, name))}",
            )
    if recorded.episodes != again.episodes and not named:
        yield Difference(what="plan", expected=_show(recorded.episodes), found=_show(again.episodes))


def _order(recorded: BatchPlanned, again: BatchPlanned) -> Difference:
    ours, theirs = unpack_positions(recorded.positions).tolist(), unpack_positions(again.positions).tolist()
    for index, (left, right) in enumerate(zip(ours, theirs, strict=False)):
        if left != right:
            return Difference(
                what="order",
                expected=f"sample {index} is position {left}",
                found=f"sample {index} is position {right}",
            )
    return Difference(what="order", expected=f"{len(ours)} samples", found=f"{len(theirs)} samples")


def _metrics(recorded: dict[str, float], again: dict[str, float]) -> Iterator[Difference]:
    for name in sorted({*recorded, *again}, key=lambda name: (name != "loss", name)):
        if repr(recorded.get(name)) != repr(again.get(name)):  # so that nan equals nan
            yield Difference(
                what="loss", expected=f"{name} {recorded.get(name)!r}", found=f"{name} {again.get(name)!r}"
            )


def _report(recorded: UpdateApplied, again: UpdateApplied) -> Iterator[Difference]:
    for name in ("advantages", "weights", "ratios", "masks"):
        left, right = getattr(recorded.samples, name), getattr(again.samples, name)
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
