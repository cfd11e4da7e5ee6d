"""Old payloads read as new ones: one pure step per version, on the raw decoded form.

A fact whose shape changes gets a new version in `@fact(..., version=n + 1)` and a step here from n. Steps are never
changed or removed: every version ever written stays readable, and the golden corpus in the tests holds one of each.
"""

from collections.abc import Callable
from typing import Any

from hindcast.core.errors import UnknownVersion

Raw = dict[str, Any]
Step = Callable[[Raw], Raw]

STEPS: dict[tuple[str, int], Step] = {}
"""(type, version n) -> the step from n to n + 1."""


def step(name: str, *, since: int) -> Callable[[Step], Step]:
    """Declare the step of a type from version `since` to `since + 1`. The function must be pure."""

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
    """Version 2 says of each episode whether it is a remembered success; version 1 knew none."""
    return raw | {"episodes": [episode | {"rehearsed": False} for episode in raw["episodes"]]}


@step("batch.planned", since=2)
def _compared_as_played(raw: Raw) -> Raw:
    """Version 3 says what the format added to a reward and whom a replayed success replaces; version 2 knew neither."""
    return raw | {
        "episodes": [episode | {"format_term": 0.0, "replaces": None} for episode in raw["episodes"]]
    }


@step("batch.planned", since=3)
def _of_the_policy(raw: Raw) -> Raw:
    """Version 4 says which model a batch trains; before it there was but the policy."""
    return raw | {"model": "policy"}


@step("step.taken", since=2)
def _unconstrained(raw: Raw) -> Raw:
    """Version 3 says which tokens were allowed, and what a scaffold saw; in version 2 every token was."""
    return raw | {"allowed": b"", "scaffold": None}


@step("batch.planned", since=4)
def _of_whole_episodes(raw: Raw) -> Raw:
    """Version 5 says which steps of a replayed episode are trained on; before it all of every episode were."""
    return raw | {"episodes": [episode | {"kept": None} for episode in raw["episodes"]]}


@step("blob.released", since=1)
def _never_a_page(raw: Raw) -> Raw:
    """Version 2 says whether it was a snapshot of a page; before it only weights, checkpoints and folds were let go of."""
    return raw | {"page": False}


@step("episode.judged", since=1)
def _judged_by_rules(raw: Raw) -> Raw:
    """Version 2 says what a language model read before it judged; before it only rules did."""
    return raw | {"reading": None}


@step("run.forked", since=1)
def _as_its_parent(raw: Raw) -> Raw:
    """Version 2 says under which settings the fork goes on; no command ever wrote version 1."""
    return raw | {"start": None}


@step("step.taken", since=1)
def _without_a_thought(raw: Raw) -> Raw:
    """Version 2 says where the answer begins behind its thought; before it no answer had one."""
    return raw | {"answer_from": 0}


@step("episode.ended", since=1)
def _never_unparsable(raw: Raw) -> Raw:
    """Version 2 knows one more reason, `unparsable`; nothing else changed."""
    return raw


@step("task.proposed", since=1)
def _not_generated(raw: Raw) -> Raw:
    """Version 2 says for which phase, by what and how a task was generated; before it nothing generated any."""
    return raw | {"phase": None, "generator": "", "change": "", "prompt": ""}


@step("episode.requested", since=1)
def _revisiting_nothing(raw: Raw) -> Raw:
    """Version 2 says whether a task of an earlier phase is revisited; before it there was but one phase."""
    return raw | {"revisits": False}


@step("episode.relabeled", since=1)
def _told_by_nobody(raw: Raw) -> Raw:
    """Version 2 says whose goal it is and what its steps would have read; no role ever wrote version 1."""
    relabels = [relabel | {"prompts": [], "family": "", "goal": None} for relabel in raw["relabels"]]
    return raw | {"relabels": relabels, "task_id": "", "failure": ""}


def _no_processor(raw: Raw) -> Raw:
    """The next version notes the processor's model; before it was not known."""
    return raw | {"fingerprint": raw["fingerprint"] | {"processor": ""}}


@step("run.started", since=1)
def _started_somewhere(raw: Raw) -> Raw:
    """Version 2 notes the processor's model."""
    return _no_processor(raw)


@step("run.resumed", since=1)
def _resumed_somewhere(raw: Raw) -> Raw:
    """Version 2 notes the processor's model."""
    return _no_processor(raw)


@step("run.forked", since=2)
def _forked_somewhere(raw: Raw) -> Raw:
    """Version 3 notes the processor's model in what it says of the fork's start."""
    return raw | {"start": None if raw["start"] is None else _no_processor(raw["start"])}


@step("run.started", since=2)
@step("run.forked", since=3)
def _with_built_in_plugins(raw: Raw) -> Raw:
    """The next version names the plugins of the run, or of the fork's start; before it there were but built-in ones."""
    return raw


@step("samples.swept", since=1)
def _as_of_where_it_stands(raw: Raw) -> Raw:
    """Version 2 says up to where the log was read; version 1 was judged by what stands before it."""
    return raw | {"as_of": None}


@step("batch.planned", since=5)
def _as_it_was_asked(raw: Raw) -> Raw:
    """Version 6 says which goal an episode demonstrates, and what its steps count; before it none was relabelled."""
    episodes = [episode | {"relabel": None, "step_weights": None} for episode in raw["episodes"]]
    return raw | {"episodes": episodes}


def _asked_nobody(raw: Raw) -> Raw:
    """The next version says what a model behind an endpoint was asked; before it none was."""
    return raw | {"consulted": None}


@step("episode.judged", since=2)
def _judged_at_home(raw: Raw) -> Raw:
    """Version 3 says what an endpoint was asked."""
    return _asked_nobody(raw)


@step("episode.relabeled", since=2)
def _relabeled_at_home(raw: Raw) -> Raw:
    """Version 3 says what an endpoint was asked."""
    return _asked_nobody(raw)


@step("state.valued", since=1)
def _valued_by_a_critic(raw: Raw) -> Raw:
    """Version 2 says which model valued a state; before it only the critic did."""
    return raw | {"model": "critic"}


@step("episode.relabeled", since=3)
def _relabeled_by_no_model(raw: Raw) -> Raw:
    """Version 4 says what a model of the run's own read and wrote; before it there was none."""
    return raw | {"reading": None}


@step("task.proposed", since=2)
def _generated_at_home(raw: Raw) -> Raw:
    """Version 3 says what an endpoint was asked."""
    return _asked_nobody(raw)


@step("step.taken", since=3)
def _never_photographed(raw: Raw) -> Raw:
    """Version 4 says where the element was that was acted upon, and has a screenshot; before it there were none."""
    return raw | {"touched": None, "screenshot": None}


@step("episode.ended", since=2)
def _ended_unseen(raw: Raw) -> Raw:
    """Version 3 has a screenshot of the page that it ended on; before it there was none."""
    return raw | {"screenshot": None}


@step("episode.ended", since=3)
def _never_repeated(raw: Raw) -> Raw:
    """Version 4 knows one more reason, `repeated`; nothing else changed."""
    return raw


@step("step.taken", since=4)
def _read_without_pictures(raw: Raw) -> Raw:
    """Version 5 names the pictures that the policy read; before it there were none."""
    return raw | {"pictures": []}


@step("checkpoint.saved", since=1)
def _saved_in_one_piece(raw: Raw) -> Raw:
    """Version 2 names what each process of a learner wrote; before it one process wrote all."""
    return raw | {"shards": []}
