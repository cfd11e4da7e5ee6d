"""Upcasters: read old payloads as new ones, by one pure step per version on the raw decoded form.

A fact whose shape changes gets a new version in `@fact(..., version=n + 1)` and a step from n here. Steps are never changed
or removed: every version ever written stays readable, and the golden corpus in the tests holds one of each.
"""

from collections.abc import Callable
from typing import Any

from hindcast.core.errors import UnknownVersion

Raw = dict[str, Any]
Step = Callable[[Raw], Raw]

STEPS: dict[tuple[str, int], Step] = {}
"""(type, version n) -> step from n to n + 1."""


def step(name: str, *, since: int) -> Callable[[Step], Step]:
    """Declare the step of a fact type from version `since` to `since + 1`. The function must be pure."""

    def register(function: Step) -> Step:
        if (name, since) in STEPS:
            raise ValueError(f"{name} has two upcasting steps from version {since}")
        STEPS[name, since] = function
        return function

    return register


def upcast(name: str, version: int, current: int, raw: Raw) -> Raw:
    """Bring a raw payload from `version` to `current`.

    Raises:
        UnknownVersion: a step is missing.

    """
    for since in range(version, current):
        function = STEPS.get((name, since))
        if function is None:
            raise UnknownVersion(
                f"{name} version {since} cannot be read as version {since + 1}: no upcasting step is declared. "
                "Use a Hindcast that knows this version, or declare the step in events/upcasters.py."
            )
        raw = function(raw)
    return raw


def added(name: str, *, since: int, **defaults: Any) -> None:
    """Declare a step that adds fields with the values for older events. No fields: an existing field allows more values."""
    step(name, since=since)(lambda raw: raw | defaults)


def added_to_each(name: str, of: str, *, since: int, **defaults: Any) -> None:
    """Declare a step that adds fields to each item of the list in the field `of`."""
    step(name, since=since)(lambda raw: raw | {of: [item | defaults for item in raw[of]]})


def _with_processor(raw: Raw) -> Raw:
    """The processor's model is part of the fingerprint; before, it was not recorded."""
    return raw | {"fingerprint": raw["fingerprint"] | {"processor": ""}}


# Comments say what was the case before, where the added values do not.
added("run.started", since=2)  # names the plugins in use; before, all were built in
step("run.started", since=1)(_with_processor)
step("run.resumed", since=1)(_with_processor)
added("run.forked", since=1, start=None)  # no command ever wrote version 1
added("run.forked", since=3)  # its start names the plugins in use
# fingerprints have details
added("run.started", since=3)
added("run.resumed", since=2)
added("run.forked", since=4)
added("run.forked", since=5)  # nothing was derived


@step("run.forked", since=2)
def _forked_with_processor(raw: Raw) -> Raw:
    return raw | {"start": None if raw["start"] is None else _with_processor(raw["start"])}


added("task.proposed", since=1, phase=None, generator="", change="", prompt="")  # no tasks were generated
added("task.proposed", since=2, consulted=None)
added("state.valued", since=1, model="critic")
added("episode.requested", since=1, revisits=False)  # there was only one phase
added("episode.requested", since=2, hasty=False)
added("episode.requested", since=3, branch=None)
added(
    "episode.requested", since=4, request_lease_s=0.0
)  # both leases were the same, and a branch named no position

added("step.taken", since=1, answer_from=0)  # no answer had a thought
added("step.taken", since=2, allowed=b"", scaffold=None)  # every token was allowed
added("step.taken", since=3, touched=None, screenshot=None)
added("step.taken", since=4, pictures=[])
added("step.taken", since=5, context=0)  # contexts of agents had no numbers
added("episode.ended", since=1)  # a new reason, `unparsable`
added("episode.ended", since=2, screenshot=None)
added("episode.ended", since=3)  # a new reason, `repeated`

added("episode.judged", since=1, reading=None)  # only rules judged
added("episode.judged", since=2, consulted=None)
added("episode.relabeled", since=2, consulted=None)
added("episode.relabeled", since=3, reading=None)
added_to_each("episode.relabeled", "relabels", since=4, stop=None)


@step("episode.relabeled", since=1)
def _relabeled_by_no_role(raw: Raw) -> Raw:
    """Version 2 has the goal's family and the steps' rewritten prompts; no role ever wrote version 1."""
    relabels = [relabel | {"prompts": [], "family": "", "goal": None} for relabel in raw["relabels"]]
    return raw | {"relabels": relabels, "task_id": "", "failure": ""}


added_to_each("batch.planned", "episodes", since=1, rehearsed=False)
added_to_each("batch.planned", "episodes", since=2, format_term=0.0, replaces=None)
added("batch.planned", since=3, model="policy")  # only the policy was trained
added_to_each("batch.planned", "episodes", since=4, kept=None)  # all steps were trained on
added_to_each("batch.planned", "episodes", since=5, relabel=None, step_weights=None)
added_to_each("batch.planned", "episodes", since=6, length_term=0.0)
added_to_each("batch.planned", "episodes", since=7, step_advantages=None)


@step("decision.kept", since=1)
def _kept_without_step_advantages(raw: Raw) -> Raw:
    """Version 2 may keep a plan with advantages of steps."""
    plan = raw["plan"]
    return raw if plan is None else raw | {"plan": STEPS["batch.planned", 7](plan)}


added("samples.swept", since=1, as_of=None)  # up to the event before this one
added("checkpoint.saved", since=1, shards=[])  # one process wrote all
added("blob.released", since=1, page=False)  # only weights, checkpoints and state snapshots were released
