"""What was recorded against what is computed again. Exact: bits, not tolerances."""

from typing import Literal

import msgspec

from core.arrays import unpack_positions
from events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped

What = Literal["inputs", "order", "advantages", "loss", "weights", "chain", "plan"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing that is not the same."""

    what: What
    expected: str
    """As the log records it."""
    found: str
    """As computed again."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where the log and its recomputation part."""

    position: int
    event: str
    """Type of the event there, such as `update.applied`."""
    what: What
    expected: str
    """As recorded."""
    found: str
    """As computed again."""
    cause: str
    """The likely cause, in words."""


def compare_updates(
    recorded: UpdateApplied | UpdateSkipped, again: UpdateApplied | UpdateSkipped
) -> Difference | None:
    """Everything about an update but the time it took, causes before effects."""
    if isinstance(recorded, UpdateSkipped) or isinstance(again, UpdateSkipped):
        if type(recorded) is not type(again):
            return Difference(what="loss", expected=_outcome(recorded), found=_outcome(again))
        assert isinstance(recorded, UpdateSkipped)
        assert isinstance(again, UpdateSkipped)
        return _text("weights", recorded.state, again.state)
    return (
        _text("weights", f"before {recorded.before}", f"before {again.before}")
        or _text("plan", _place(recorded), _place(again))
        or _text("inputs", recorded.inputs, again.inputs)
        or _metrics(recorded.metrics, again.metrics)
        or _report(recorded, again)
        or _text("weights", recorded.after, again.after)
    )


def compare_plans(recorded: BatchPlanned, again: BatchPlanned | None) -> Difference | None:
    """A plan and the one that follows from the log up to its `as_of`: order, advantages, then the rest."""
    if again is None:
        return Difference(
            what="plan", expected=f"a plan of batch {recorded.batch}", found="no plan can be made there"
        )
    if recorded.positions != again.positions:
        return _order(recorded, again)
    for ours, theirs in zip(recorded.episodes, again.episodes, strict=False):
        if (ours.episode, ours.group, ours.samples) != (theirs.episode, theirs.group, theirs.samples):
            return Difference(what="order", expected=f"{ours}", found=f"{theirs}")
        if (ours.reward, ours.advantage) != (theirs.reward, theirs.advantage):
            return Difference(
                what="advantages",
                expected=f"{ours.episode}: reward {ours.reward!r}, advantage {ours.advantage!r}",
                found=f"{theirs.episode}: reward {theirs.reward!r}, advantage {theirs.advantage!r}",
            )
    for name in recorded.__struct_fields__:
        if getattr(recorded, name) != getattr(again, name):
            what: What = "chain" if name == "log_digest" else "plan"
            return Difference(
                what=what,
                expected=f"{name} {_show(getattr(recorded, name))}",
                found=f"{name} {_show(getattr(again, name))}",
            )
    return None


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


def _metrics(recorded: dict[str, float], again: dict[str, float]) -> Difference | None:
    for name in sorted({*recorded, *again}, key=lambda name: (name != "loss", name)):
        if repr(recorded.get(name)) != repr(again.get(name)):  # so that nan equals nan
            return Difference(
                what="loss", expected=f"{name} {recorded.get(name)!r}", found=f"{name} {again.get(name)!r}"
            )
    return None


def _report(recorded: UpdateApplied, again: UpdateApplied) -> Difference | None:
    for name in ("advantages", "weights", "ratios", "masks"):
        left, right = getattr(recorded.samples, name), getattr(again.samples, name)
        if left != right:
            what: What = "advantages" if name == "advantages" else "loss"
            return Difference(
                what=what, expected=f"samples' {name} {_show(left)}", found=f"samples' {name} {_show(right)}"
            )
    return None


def _text(what: What, expected: str, found: str) -> Difference | None:
    return None if expected == found else Difference(what=what, expected=expected, found=found)


def _place(fact: UpdateApplied) -> str:
    return f"update {fact.update} of the {fact.model}: batch {fact.batch}, mini-batch {fact.minibatch}"


def _outcome(fact: UpdateApplied | UpdateSkipped) -> str:
    return "applied" if isinstance(fact, UpdateApplied) else f"skipped: {fact.reason}"


def _show(value: object) -> str:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes> {value[:16].hex()}…"
    return f"{value}"[:200]
