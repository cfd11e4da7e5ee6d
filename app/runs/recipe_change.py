"""A recipe changed while its run goes on: `recipe.changed`, from whose position on other settings hold.

Only what the learner alone or the curriculum alone reads may change, since these two follow the settings in the log: the
learner looks at them anew for every plan and every batch, the curriculum for every request. The other processes have theirs
from the run's start. A fork may change anything (`hindcast fork --set`).
Two changes at once are told apart by the log: each expects the last fact about the run, so that one of them is refused.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from hindcast.actors.curriculum.task_pools import held_out, pools, require_demonstrations
from hindcast.actors.environments.plugin import DEMONSTRATORS
from hindcast.app.runs.runs import RunHandle
from hindcast.app.settings.checks.names import task_conflicts
from hindcast.app.settings.configuration import Layer, flatten_recorded, from_override, merge_recorded
from hindcast.app.system.sites import task_sources
from hindcast.core.errors import ExpectationFailed, ForeignLog, SettingsError
from hindcast.core.rl.algorithm import find_algorithm, traits_of
from hindcast.core.settings.changes import TABLE, decode_settings, flatten_settings, merge, nest, upcast
from hindcast.core.settings.old_names import translate
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import EpisodeRequested, RecipeChanged, RunForked, RunStarted
from hindcast.events.catalogue.curriculum import DEMONSTRATION, ONLINE
from hindcast.events.codec import decode
from hindcast.events.log.port import EventLog, Expectation
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.events.subjects import family_wildcard

PRODUCER = "change.1"
OF_CURRICULUM = frozenset(
    {
        "curriculum.families",
        "curriculum.tasks",
        "curriculum.task_pool",
        "curriculum.revisit_share",
        "evaluation.every",
        "evaluation.episodes",
        "evaluation.families",
        "evaluation.temperatures",
        "evaluation.max_running",
        "evolution.tasks_per_phase",
        "evolution.value_low",
        "evolution.value_high",
        "evolution.feasibility",
    }
)
TASKS = frozenset({"curriculum.families", "curriculum.tasks", "curriculum.task_pool"})
HELD_OUT = TASKS | {"evaluation.every", "evaluation.episodes", "evaluation.families"}
"""Settings that say which tasks evaluations play."""
CHANGEABLE = OF_CURRICULUM | frozenset(
    f"learner.{name}"
    for name in [
        "loss_mean",
        "correction",
        "ratio_cap",
        "icepop_alpha",
        "icepop_beta",
        "mask_difference",
        "minibatches",
        "cloning_minibatches",
        "epochs",
        "critic_epochs",
        "critic_head_rate",
        "critic_learning_rate",
        "learning_rate",
        "warmup_updates",
        "weight_decay",
        "max_gradient_norm",
        "cloning_epochs",
        "cloning_failures",
        "cloning_rate",
        "orm_every",
        "orm_epochs",
        "orm_batch",
        "orm_rate",
        "orm_memory",
        "relabeler_every",
        "relabeler_epochs",
        "relabeler_batch",
        "relabeler_rate",
        "relabeler_memory",
        "tokens_per_forward",
        "mismatch_alarm",
        "batch_wait_s",
        "checkpoint_every",
        "keep_checkpoints",
        "keep_weights",
        "keep_weights_every",
    ]
)
"""Left out: what another process reads, what decides how long the fold keeps what a plan may name, what is fixed at a first
batch, and what says on which tasks a model is measured."""


class RecipeChangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What holds from a position on."""

    run: str
    position: int
    author: str
    changes: dict[str, tuple[Any, Any]]
    """Setting -> its value before, and now."""


class _Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The settings as the log has them now."""

    values: dict[str, Any]
    """By dotted key."""
    recipe: str
    last: int
    """Position of the last fact about the run."""


async def change_recipe(
    run: RunHandle, overrides: Sequence[str], *, author: str, reason: str
) -> RecipeChangeResult:
    """Append the change, having checked that what then holds goes together.

    Raises:
        SettingsError: a setting that is unknown, cannot change in a running run, has a wrong value or keeps its own.
        ExpectationFailed: another change came first.
        ForeignLog: the log does not say what the run began with.

    """
    layers = [from_override(text) for text in overrides]
    wanted = {key: value for layer in layers for key, value in layer.values.items()}
    if not wanted:
        raise SettingsError(
            "nothing is to be changed: give --set section.key=value, for instance --set learner.learning_rate=1e-5"
        )
    for key in wanted:
        _require_changeable(key, run.settings)
    async with run.connect_log("admin") as log:
        now = await recorded_settings(log)
        changes = resolve_change(now.values, layers, recipe=now.recipe)
        after = decode_settings(nest(now.values | {key: value for key, (_, value) in changes.items()}))
        if TASKS & changes.keys():
            begun = await _demonstrations_begun(log, most=after.curriculum.demonstrations)
            _require_tasks(after, begun=begun, run=run.name)
        if HELD_OUT & changes.keys():
            _require_held_out(after)
        fact = RecipeChanged(
            author=author, reason=reason, changes=nest({key: after for key, (_, after) in changes.items()})
        )
        async with Publisher(
            log, producer=PRODUCER, code_rev=run.code_rev, settings=run.settings.log
        ) as publisher:
            expect = Expectation(subject=family_wildcard(run.name, "run"), last=now.last)
            try:
                position = await publisher.decide(fact, entity=run.name, expect=expect)
            except ExpectationFailed as error:
                raise ExpectationFailed(
                    f"run {run.name} was started, finished or changed by somebody else in the same moment; nothing was "
                    f"changed here. See what holds with: hindcast run show {run.name}"
                ) from error
    return RecipeChangeResult(run=run.name, position=position, author=author, changes=changes)


async def _demonstrations_begun(log: EventLog, *, most: int) -> int:
    """How many demonstrations the run has begun, `most` at most. They come before all else, so that few events are read."""
    groups: set[str] = set()
    if not most:
        return 0
    async with aclosing(read(log)) as recordeds:
        async for recorded in recordeds:
            if isinstance(recorded.fact, EpisodeRequested) and recorded.fact.origin == DEMONSTRATION:
                groups.add(recorded.fact.group)
            began = isinstance(recorded.fact, EpisodeRequested) and recorded.fact.origin == ONLINE
            if began or len(groups) == most:
                break
    return len(groups)


def _require_tasks(settings: Settings, *, begun: int, run: str) -> None:
    """Assert that the curriculum will find its tasks: it would stop at what it cannot. `begun`: demonstrations so far."""
    if traits_of(settings.learner.algorithm).compares == "pairs":
        raise SettingsError(
            f"the tasks of a {settings.learner.algorithm} run are those that were demonstrated as it began: others cannot be named. Fork it"
        )
    if wrong := list(task_conflicts(settings)):
        raise SettingsError("\n".join(wrong))
    pool, demonstrable = pools(task_sources(settings), DEMONSTRATORS.keys(), settings)
    require_demonstrations(pool, demonstrable, settings=settings, recorded=begun, run=run)


def _require_held_out(settings: Settings) -> None:
    """Assert that the tasks of the evaluations exist. Raises SettingsError."""
    if wrong := list(task_conflicts(settings)):
        raise SettingsError("\n".join(wrong))
    sources = task_sources(settings)
    held_out(sources, settings, pools(sources, DEMONSTRATORS.keys(), settings)[0])


async def settings_now(log: EventLog) -> Settings:
    """The settings that hold at the end of a log. Raises as `recorded_settings`."""
    return decode_settings(nest((await recorded_settings(log)).values))


def resolve_change(
    values: Mapping[str, Any], layers: Sequence[Layer], *, recipe: str
) -> dict[str, tuple[Any, Any]]:
    """What a change comes to: by dotted key, the value before and after it, as the log records values.

    Raises:
        SettingsError: what then holds does not go together, or nothing is other than before.

    """
    before = Layer(source="the run", values=dict(values))
    held = flatten_settings(merge_recorded([before], recipe=recipe).settings)
    holding = flatten_settings(merge_recorded([before, *layers], recipe=recipe).settings)
    changes = {key: (held[key], holding[key]) for key in holding if held[key] != holding[key]}
    if not changes:
        same = ", ".join(sorted(key for layer in layers for key in layer.values))
        raise SettingsError(f"nothing would change: {same} has this value already")
    return changes


async def recorded_settings(log: EventLog) -> _Recorded:
    """The settings that hold at the end of a log, from its facts about the run, looked up from the last one back."""
    subject = family_wildcard(log.run, "run")
    changes: list[RecipeChanged] = []
    until: int | None = None
    last = 0
    while (stored := await log.last_under(subject, until=until)) is not None:
        recorded = decode(stored)
        assert recorded is not None
        last, fact = last or recorded.position, recorded.fact
        started = fact.start if isinstance(fact, RunForked) else fact
        if isinstance(fact, RecipeChanged):
            changes.append(fact)
        elif isinstance(started, RunStarted):
            settings = upcast(started.settings)
            for change in reversed(changes):
                settings = merge(settings, translate(change.changes))
            return _Recorded(values=flatten_recorded(settings, "the run"), recipe=started.recipe, last=last)
        until = recorded.position - 1
    raise ForeignLog(
        f"the log of run {log.run} does not say what the run began with. Run: hindcast audit {log.run}"
    )


def _require_changeable(key: str, settings: Settings) -> None:
    options = find_algorithm(settings.learner.algorithm).changeable
    changeable = CHANGEABLE | {f"{TABLE}.{name}" for name in options}
    if key not in changeable:
        raise SettingsError(
            f"{key} cannot change in a running run: only what the learner alone or the curriculum alone reads can ({', '.join(sorted(changeable))}). "
            f"To go on under another value from a position on: hindcast fork --set {key}=…"
        )
