"""Alarm for a mismatch between sampler and learner: compares an update's `mismatch_kl` with a limit."""

from hindcast.core.rl.combined_state import POLICY
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned, MismatchExceeded, UpdateApplied, UpdateSkipped


def mismatch_alarm(
    fact: UpdateApplied | UpdateSkipped, plan: BatchPlanned, settings: LearnerSettings
) -> MismatchExceeded | None:
    """The alarm to append with an update, or None. An update without tokens sampled from the plan's version raises none."""
    if not isinstance(fact, UpdateApplied) or fact.model != POLICY or not settings.mismatch_alarm:
        return None
    found = fact.metrics["mismatch_kl"]
    if found <= settings.mismatch_alarm:
        return None
    return MismatchExceeded(
        update=fact.update,
        batch=fact.batch,
        version=plan.version,
        mismatch_kl=found,
        mismatch_max=fact.metrics["mismatch_max"],
        limit=settings.mismatch_alarm,
    )
