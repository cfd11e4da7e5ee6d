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


@step("batch.planned", since=1)
def _compared_episodes_only(raw: Raw) -> Raw:
    """Version 2 marks rehearsed successes; version 1 had none."""
    return raw | {"episodes": [episode | {"rehearsed": False} for episode in raw["episodes"]]}


@step("batch.planned", since=2)
def _compared_as_played(raw: Raw) -> Raw:
    """Version 3 has the format term of a reward and the member that a replayed success replaces; version 2 had neither."""
    return raw | {
        "episodes": [episode | {"format_term": 0.0, "replaces": None} for episode in raw["episodes"]]
    }


@step("batch.planned", since=3)
def _of_the_policy(raw: Raw) -> Raw:
    """Version 4 names the model that a batch trains; before, only the policy was trained."""
    return raw | {"model": "policy"}


@step("step.taken", since=2)
def _unconstrained(raw: Raw) -> Raw:
    """Version 3 has the allowed tokens and the scaffold's state; in version 2 every token was allowed."""
    return raw | {"allowed": b"", "scaffold": None}


@step("batch.planned", since=4)
def _of_whole_episodes(raw: Raw) -> Raw:
    """Version 5 marks the steps of a replayed episode that are trained on; before, all were."""
    return raw | {"episodes": [episode | {"kept": None} for episode in raw["episodes"]]}


@step("blob.released", since=1)
def _never_a_page(raw: Raw) -> Raw:
    """Version 2 marks page snapshots; before, only weights, checkpoints and state snapshots were released."""
    return raw | {"page": False}


@step("episode.judged", since=1)
def _judged_by_rules(raw: Raw) -> Raw:
    """Version 2 has the prompt of a judge that is a language model; before, only rules judged."""
    return raw | {"reading": None}


@step("run.forked", since=1)
def _as_its_parent(raw: Raw) -> Raw:
    """Version 2 has the fork's own settings; no command ever wrote version 1."""
    return raw | {"start": None}


@step("step.taken", since=1)
def _without_a_thought(raw: Raw) -> Raw:
    """Version 2 has the index of the answer after its thought; before, no answer had a thought."""
    return raw | {"answer_from": 0}


@step("episode.ended", since=1)
def _never_unparsable(raw: Raw) -> Raw:
    """Version 2 adds the reason `unparsable`; nothing else changed."""
    return raw


@step("task.proposed", since=1)
def _not_generated(raw: Raw) -> Raw:
    """Version 2 has a generated task's phase, generator, change and prompt; before, no tasks were generated."""
    return raw | {"phase": None, "generator": "", "change": "", "prompt": ""}


@step("episode.requested", since=1)
def _revisiting_nothing(raw: Raw) -> Raw:
    """Version 2 marks tasks of earlier phases; before, there was only one phase."""
    return raw | {"revisits": False}


@step("episode.relabeled", since=1)
def _told_by_nobody(raw: Raw) -> Raw:
    """Version 2 has the goal's family and the steps' rewritten prompts; no role ever wrote version 1."""
    relabels = [relabel | {"prompts": [], "family": "", "goal": None} for relabel in raw["relabels"]]
    return raw | {"relabels": relabels, "task_id": "", "failure": ""}


def _no_processor(raw: Raw) -> Raw:
    """The next version has the processor's model; before, it was not recorded."""
    return raw | {"fingerprint": raw["fingerprint"] | {"processor": ""}}


@step("run.started", since=1)
def _started_somewhere(raw: Raw) -> Raw:
    """Version 2 has the processor's model."""
    return _no_processor(raw)


@step("run.resumed", since=1)
def _resumed_somewhere(raw: Raw) -> Raw:
    """Version 2 has the processor's model."""
    return _no_processor(raw)


@step("run.forked", since=2)
def _forked_somewhere(raw: Raw) -> Raw:
    """Version 3 has the processor's model in the fork's start."""
    return raw | {"start": None if raw["start"] is None else _no_processor(raw["start"])}


@step("run.started", since=2)
@step("run.forked", since=3)
def _with_built_in_plugins(raw: Raw) -> Raw:
    """The next version names the plugins of the run, or of the fork's start; before it there were but built-in ones."""
    return raw


@step("samples.swept", since=1)
def _as_of_where_it_stands(raw: Raw) -> Raw:
    """Version 2 has the position up to which the log was read; in version 1 it is that of the event before."""
    return raw | {"as_of": None}


@step("batch.planned", since=5)
def _as_it_was_asked(raw: Raw) -> Raw:
    """Version 6 has the goal that an episode demonstrates and its step weights; before, no episode was relabeled."""
    episodes = [episode | {"relabel": None, "step_weights": None} for episode in raw["episodes"]]
    return raw | {"episodes": episodes}


def _asked_nobody(raw: Raw) -> Raw:
    """The next version has the question to an endpoint; before, none was asked."""
    return raw | {"consulted": None}


@step("episode.judged", since=2)
def _judged_at_home(raw: Raw) -> Raw:
    """Version 3 has the question to an endpoint."""
    return _asked_nobody(raw)


@step("episode.relabeled", since=2)
def _relabeled_at_home(raw: Raw) -> Raw:
    """Version 3 has the question to an endpoint."""
    return _asked_nobody(raw)


@step("state.valued", since=1)
def _valued_by_a_critic(raw: Raw) -> Raw:
    """Version 2 names the model that valued a state; before, it was always the critic."""
    return raw | {"model": "critic"}


@step("episode.relabeled", since=3)
def _relabeled_by_no_model(raw: Raw) -> Raw:
    """Version 4 has prompt and output of the learned relabeler; before, there was none."""
    return raw | {"reading": None}


@step("task.proposed", since=2)
def _generated_at_home(raw: Raw) -> Raw:
    """Version 3 has the question to an endpoint."""
    return _asked_nobody(raw)


@step("step.taken", since=3)
def _never_photographed(raw: Raw) -> Raw:
    """Version 4 has the position of the action's element and a screenshot; before, there were none."""
    return raw | {"touched": None, "screenshot": None}


@step("episode.ended", since=2)
def _ended_unseen(raw: Raw) -> Raw:
    """Version 3 has a screenshot of the final page; before, there was none."""
    return raw | {"screenshot": None}


@step("episode.ended", since=3)
def _never_repeated(raw: Raw) -> Raw:
    """Version 4 adds the reason `repeated`; nothing else changed."""
    return raw


@step("step.taken", since=4)
def _read_without_pictures(raw: Raw) -> Raw:
    """Version 5 names the pictures that the policy read; before, there were none."""
    return raw | {"pictures": []}


@step("checkpoint.saved", since=1)
def _saved_in_one_piece(raw: Raw) -> Raw:
    """Version 2 names the shard of each learner process; before, one process wrote all."""
    return raw | {"shards": []}
