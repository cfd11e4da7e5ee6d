"""Where a log and its recomputation part, what came out the same before that, and why it probably happened."""

from collections.abc import Iterable, Sequence
from functools import cache

import msgspec

from hindcast.core.plugins import PluginIdentity, changed_plugins
from hindcast.core.rl.algorithm import ALGORITHMS
from hindcast.core.settings.computing import Device, WantedPrecision
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.envelope import Recorded
from hindcast.learner.distributed.ranks import is_emulated
from hindcast.learner.numerics import device_then, differences, fingerprint
from hindcast.learner.verify.comparison import Difference, What

CLOSE = 1e-3
"""Numbers no further apart than this were probably computed from the same inputs, in another order of addition."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where the log and its recomputation part."""

    position: int
    event: str
    """Type of the event there, such as `update.applied`."""
    what: What
    """The first thing that is not the same, causes before effects."""
    expected: str
    """As recorded."""
    found: str
    """As computed again."""
    cause: str
    """The likely cause, in words."""
    same: tuple[What, ...] = ()
    """What of this event came out the same."""
    differing: tuple[What, ...] = ()
    """What of it did not."""
    apart: float | None = None
    """Largest difference among its numbers (see `learner.verify.comparison`), where there are any to compare."""
    entity: str = ""
    """What the event is about: a batch, a policy version, an episode."""
    code_then: str = ""
    """Revision of the code that recorded the event."""
    code_now: str = ""
    machine_then: Fingerprint | None = None
    """That computed it, as recorded."""
    machine_now: Fingerprint | None = None


class ComparedEnvironments(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about then and now."""

    code_now: str
    """Empty: not known."""
    machine_then: Fingerprint | None
    machine_now: Fingerprint | None
    earlier_changes: tuple[str, ...] = ()
    """In words, what differed from now on the machines of the updates that the results follow from."""
    changed_plugins: tuple[str, ...] = ()
    """In words, those whose source is another."""


def witness_of(
    machine_then: Fingerprint | None,
    *,
    settings: LearnerSettings,
    code_rev: str,
    plugins: Sequence[PluginIdentity] = (),
    earlier: Iterable[Fingerprint] = (),
) -> ComparedEnvironments:
    """This machine, with as many threads as then, this code, and the algorithms of the run as they are installed.

    `settings`: the run's; emulated ranks count as processes. `earlier`: machines of the updates that the results follow from.
    """
    changes = (differences(machine, machine_now(machine, settings)) for machine in earlier)
    return ComparedEnvironments(
        code_now=code_rev,
        machine_then=machine_then,
        machine_now=None if machine_then is None else machine_now(machine_then, settings),
        earlier_changes=tuple(dict.fromkeys(change for found in changes for change in found)),
        changed_plugins=tuple(changed_plugins(plugins, ALGORITHMS)),
    )


def machine_now(machine_then: Fingerprint, settings: LearnerSettings) -> Fingerprint:
    """This machine, where it repeats what the other one computed: on the same kind of device, with as many threads."""
    ranks = settings.processes if is_emulated(settings) else 1
    return _machine(machine_then.threads, device_then(machine_then), ranks, settings.precision)


@cache
def _machine(threads: int, device: Device, processes: int, precision: WantedPrecision) -> Fingerprint:
    return fingerprint(threads, device, processes, precision)


def diagnose(
    recorded: Recorded,
    differences: Iterable[Difference],
    *,
    stages: Sequence[What],
    witness: ComparedEnvironments,
    apart: float | None = None,
) -> Divergence | None:
    """The divergence at an event whose recomputation differs from it; None where nothing does.

    `stages`: what of such an event is compared, causes before effects.
    """
    found_differences = list(differences)
    if not found_differences:
        return None
    kinds = {difference.what for difference in found_differences}
    first = found_differences[0]
    return Divergence(
        position=recorded.position,
        event=recorded.envelope.type,
        what=first.what,
        expected=first.expected,
        found=first.found,
        cause=_cause(recorded, first.what, witness, apart),
        same=tuple(stage for stage in stages if stage not in kinds),
        differing=tuple(dict.fromkeys(difference.what for difference in found_differences)),
        apart=apart,
        entity=recorded.envelope.entity,
        code_then=recorded.envelope.code_rev,
        code_now=witness.code_now,
        machine_then=witness.machine_then,
        machine_now=witness.machine_now,
    )


def _cause(recorded: Recorded, what: What, witness: ComparedEnvironments, apart: float | None) -> str:
    recorded_on, verified_on = witness.machine_then, witness.machine_now
    changed = (
        differences(recorded_on, verified_on) if recorded_on is not None and verified_on is not None else []
    )
    numeric = what in ("loss", "weights")
    if numeric and changed:
        return (
            f"Recorded with other libraries or on another processor: {'; '.join(changed)}. Verify where these are the same, "
            "or up to rounding: hindcast verify --tolerance 1e-5"
        )
    if numeric and witness.earlier_changes:
        return (
            "Earlier updates, which this one follows from, were recorded with other libraries or on another processor: "
            f"{'; '.join(witness.earlier_changes)}. Verify where these are the same, from a checkpoint after those updates on "
            "(hindcast verify --from checkpoint=N), or up to rounding: hindcast verify --tolerance 1e-5"
        )
    if what == "chain":
        return "Events before the plan were altered after it was made."
    if witness.changed_plugins:
        return (
            f"Recorded with another source of these plugins: {'; '.join(witness.changed_plugins)}; else the event was altered. "
            "Verify with what recorded it to tell which."
        )
    revision = recorded.envelope.code_rev
    if witness.code_now and revision != witness.code_now:
        return (
            f"Recorded by code {revision}, verified by code {witness.code_now}; else the event was altered. Verify with the "
            "revision that recorded it to tell which."
        )
    if numeric and apart is not None and 0 < apart <= CLOSE:
        return (
            f"Same code, versions, processor and threads, and the numbers are close (apart by {apart:.1e}): an environment "
            "variable may have told the matrix library to choose other kernels; else numbers of the event were altered afterwards. Up to rounding: hindcast verify --tolerance 1e-5"
        )
    return "Same code, versions, processor and threads: the event, or one it follows from, was altered afterwards."
