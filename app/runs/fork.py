"""A fork: a new run whose log begins with another run's log, by reference, and continues under its own settings.

    parent's log up to P ──fold──> digest, settings, open episodes
                                      │
    fork's stream, from P + 1:     run.forked, then the ends of the open episodes, then the fork's own events

The fork links only those weights, checkpoints and snapshots of the parent that the parent may delete later. No process of
the fork would end the episodes that were open at P, so its first events do: it abandons open episodes (the curriculum
requests them again) and judges ended ones that may still be trained on and lack a verdict of one of its judges. The run
becomes part of the home last: after an interruption, the same command repeats the work.
"""

import asyncio
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hindcast.actors.curriculum.leases import LeaseBook
from hindcast.actors.episodes.recorder import decide_if_absent
from hindcast.actors.judges.base import Judge, reach_verdict
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.actors.judges.role import configured_judges
from hindcast.actors.queue_worker import OUTAGE_PAUSES_S, append_once, author_key
from hindcast.app.plugins import plugins_in_use
from hindcast.app.runs.archive_source import ArchiveSource
from hindcast.app.runs.import_archive import HERE
from hindcast.app.runs.open_log import PACKAGES, behaviour_of
from hindcast.app.runs.runs import Fork, RunHandle, plan_run, write_down
from hindcast.app.settings.configuration import (
    ALGORITHM,
    Layer,
    Resolved,
    flatten,
    flatten_recorded,
    from_override,
    merge,
)
from hindcast.app.system.home import home_folder
from hindcast.app.system.join import JOINED
from hindcast.app.system.judges import open_judges, shelf_for
from hindcast.core.domain.task import Task
from hindcast.core.errors import (
    BlobCorrupt,
    BlobMissing,
    ExpectationFailed,
    ForeignLog,
    JudgeUnavailable,
    SettingsError,
)
from hindcast.core.models.folders import policy_folder
from hindcast.core.models.vision import ImageProcessor
from hindcast.core.rl.combined_state import CRITIC
from hindcast.core.settings.changes import TABLE, decode_settings, flatten_settings
from hindcast.events.catalogue import (
    BatchPlanned,
    BlobReleased,
    EpisodeAbandoned,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    RunForked,
    RunStarted,
    SamplesSwept,
)
from hindcast.events.catalogue.run import Derivation
from hindcast.events.codec import decode
from hindcast.events.envelope import BlobRef, Fact, Recorded
from hindcast.events.log.port import EventLog, Expectation
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.events.log.run_identity import beginning
from hindcast.events.subjects import family_wildcard
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.numerics import fingerprint_of
from hindcast.learner.recipes import load_recipe, recipe_names
from hindcast.learner.restore import recompute_weights
from hindcast.storage.readmodel.address import parse

FIXED = (
    "policy.base",
    "log.url",
    "storage.blobs",
    "learner.lora_rank",
    "learner.lora_alpha",
    "learner.lora_targets",
    "learner.arithmetic",
    "learner.digest_every",
)
"""Settings that a fork cannot change. The prefix's weights belong to the first group; the fork's stream and blobs must be
where the parent's are; its checkpoints hold adapters of this form or none, and digests of this arithmetic and at these updates."""
PRODUCER = "fork.1"
FORKED = "forked"
"""Reason of abandoned open episodes."""
RELEASED = "the run that it was forked from has let go of it"


@dataclass(slots=True)
class Prefix:
    """State of a log up to the fork position, as far as the fork must act on it."""

    buffer: BufferState
    leases: LeaseBook = field(default_factory=LeaseBook)
    tasks: dict[str, Task] = field(default_factory=dict)
    unjudged: dict[str, Recorded] = field(default_factory=dict)
    """Ended episodes that may be trained on, or that lack a verdict of one of the run's judges: episode -> its end."""
    spoken: dict[str, set[str]] = field(default_factory=dict)
    """Names of the judges with a verdict, by episode of `unjudged`."""


async def fold_prefix(log: EventLog, *, at: int) -> Prefix:
    """Fold a log up to position `at`.

    Raises:
        ForeignLog: it does not begin with run.started, or ends before.

    """
    projection = ReplayBuffer()
    prefix = Prefix(projection.initial())
    async with aclosing(read(log, after=0, until=at, strict=True)) as recordeds:
        async for recorded in recordeds:
            prefix.buffer = projection.apply(prefix.buffer, recorded)
            prefix.leases.apply(recorded)
            _take(prefix, recorded)
    _forget(prefix)
    if prefix.buffer.started is None or prefix.buffer.position != at:
        raise ForeignLog(
            f"run {log.run} cannot be forked at position {at}: its log goes up to {prefix.buffer.position}. "
            f"Run: hindcast run show {log.run}"
        )
    return prefix


def _take(prefix: Prefix, recorded: Recorded) -> None:
    match recorded.fact:
        case EpisodeRequested() as fact:
            prefix.tasks[fact.task.id] = fact.task
        case EpisodeEnded() as fact:
            prefix.unjudged[fact.episode] = recorded
        case EpisodeJudged() as fact if fact.episode in prefix.unjudged:
            spoken = prefix.spoken.setdefault(fact.episode, set())
            spoken.add(fact.judge.name)
        case BatchPlanned() | SamplesSwept():
            _forget(prefix)


def _forget(prefix: Prefix) -> None:
    """Drop episodes that need no verdict any more: judged, and no longer candidates for training."""
    judges = set(prefix.buffer.settings.judge.judges)
    for episode in [name for name in prefix.unjudged if name not in prefix.buffer.episodes]:
        if prefix.spoken.get(episode, set()) >= judges:
            del prefix.unjudged[episode], prefix.spoken[episode]


class ForkResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a fork."""

    run: str
    parent: str
    at: int
    """Position of the last event of the parent that belongs to the fork."""
    update: int
    """Updates up to that position."""
    version: int
    """Policy version that the fork continues from."""
    changed: dict[str, tuple[Any, Any]]
    """Setting -> its value in the parent at that position, and in the fork."""
    abandoned: int
    """Number of open episodes that were abandoned."""
    judged: int
    """Verdicts given at the fork, on ended episodes that lacked one of its judges."""
    recomputed: int
    """Updates recomputed because the parent had deleted the weights; 0 if they were there."""


async def fork_run(
    parent: RunHandle | ArchiveSource,
    *,
    at: int,
    name: str | None,
    overrides: Sequence[str],
    said: Callable[[str], None],
    recipe: str | None = None,
    watching: Callable[[EventLog], EventLog] = lambda log: log,
) -> ForkResult:
    """Fork `parent` in its home. `overrides`: `section.key=value` that hold in the fork; `recipe`: see `settings_of_fork`.

    `watching` observes the reading of the parent's log.

    Raises:
        SettingsError: an invalid setting, one that a fork cannot change, or a name that is taken.
        ForeignLog, CorruptEvent: the parent's log cannot be folded up to the position.
        ReplayDiverged: recomputed weights differ from the published ones.
        JudgeUnavailable: a judge's endpoint does not answer; repeat the same command later.

    """
    if isinstance(parent, RunHandle) and (parent.folder / JOINED).exists():
        raise SettingsError(
            f"{parent.home} is one of the machines that joined run {parent.name}, and a fork links to its parent's files: make "
            "it where the run was started"
        )
    while isinstance(parent, RunHandle) and parent.parent is not None and parent.fork is not None:
        if at > parent.fork.at:
            break
        parent = parent.parent  # this position is in the grandparent's log
    async with parent.connect_log() as log:
        owner = next((ancestor.run for ancestor in log.lineage if at <= ancestor.until), log.run)
        ancestors = {log.run, *(ancestor.run for ancestor in log.lineage)}
        before = (await beginning(log)).recipe
        prefix = await fold_prefix(watching(log), at=at)
    archive = str(parent.folder.absolute()) if isinstance(parent, ArchiveSource) else ""
    here = HERE if archive else {}
    resolved = settings_of_fork(prefix.buffer, overrides, recipe=before, into=recipe, here=here)
    home = parent.home if isinstance(parent, RunHandle) else home_folder()
    origin = Fork(parent=owner, at=at, archive=archive)
    fork = plan_run(resolved, name=name, home=home, fork=origin, ancestors=ancestors)
    gone, recomputed = await keep_blobs(fork, prefix.buffer, said)
    await record_fork(fork, prefix.buffer, gone)
    async with fork.connect_log("curriculum") as log, fork.publisher(log, PRODUCER) as publisher:
        abandoned = await _abandon(prefix, publisher)
    async with fork.connect_log("judge") as log, fork.publisher(log, PRODUCER) as publisher:
        judged = await _judge(fork, log, prefix, publisher)
    write_down(fork)
    return ForkResult(
        run=fork.name,
        parent=owner,
        at=at,
        update=prefix.buffer.updates,
        version=prefix.buffer.version,
        changed=changes(prefix.buffer, resolved),
        abandoned=abandoned,
        judged=judged,
        recomputed=recomputed,
    )


def settings_of_fork(
    state: BufferState,
    overrides: Sequence[str],
    *,
    recipe: str,
    here: Mapping[str, Any],
    into: str | None = None,
) -> Resolved:
    """The parent's settings at the fork position, with the chosen overrides.

    `recipe`: the parent's. `into`: a recipe that replaces it: its values hold, and those that the parent had from its own recipe
    do not. `here`: settings that say where the run is stored, if the parent is stored elsewhere.

    Raises:
        SettingsError: see `fork_run`.
        ModelFileError: the settings show screenshots to a policy that cannot read them.

    """
    # also what the parent did before there was a setting: today's default would compute its last updates otherwise
    decoded = flatten_settings(decode_settings(state.resolved))
    known = {key: value for key, value in decoded.items() if not key.startswith(f"{TABLE}.")}
    values = known | flatten_recorded(state.resolved, "the parent")
    parents, chosen_recipe = Layer(source="the parent", values=values), Layer(source="", values={})
    if into is not None:
        given = _values_of_recipe(into)  # first, because it may be no recipe
        own = _values_of_recipe(recipe) if recipe in recipe_names() else {}
        # with the algorithm, so that options which only it declares are left out
        stays = (*FIXED, ALGORITHM)
        left = {key: value for key, value in values.items() if key in stays or own.get(key) != value}
        parents = Layer(source="the parent", values=left)
        kept = {key: value for key, value in given.items() if key not in FIXED}
        chosen_recipe = Layer(source=f"recipe {into}", values=kept)
    chosen = [from_override(text) for text in overrides]
    for layer in chosen:
        for key in layer.values:
            if key in FIXED:
                raise SettingsError(
                    f"--set {key}: a fork has its parent's ({parents.values.get(key)!r}). Start a new run for another one: "
                    "hindcast start NEW_NAME --set …"
                )
    own = {"storage.database": ""} if _is_file(parents.values.get("storage.database")) else {}
    elsewhere = Layer(source="hindcast fork", values=own | dict(here))
    resolved = merge([parents, chosen_recipe, elsewhere, *chosen], recipe=into or recipe)
    then, now = state.settings.learner.critic_heads, resolved.settings.learner.critic_heads
    if now != then and CRITIC in state.models:
        raise SettingsError(
            f"--set learner.critic_heads: the critic was trained with heads of the form {then!r} before the fork, and has no "
            f"others. Leave the setting out, or fork before the critic's first update; there {now!r} can be chosen."
        )
    if resolved.settings.actors.screenshot_observation != "off":
        # raises if the parent's policy reads no images
        ImageProcessor(policy_folder(resolved.settings.policy.base))
    return resolved


def _values_of_recipe(name: str) -> dict[str, Any]:
    return flatten(load_recipe(name), f"recipe {name}")


def _is_file(database: Any) -> bool:
    """Whether a database holds the read model of one run alone."""
    return bool(database) and parse(str(database)).get_backend_name() == "sqlite"


def changes(state: BufferState, resolved: Resolved) -> dict[str, tuple[Any, Any]]:
    """Settings in which the fork differs from its parent: name -> (parent's value, fork's value)."""
    then, now = flatten_settings(state.settings), flatten_settings(resolved.settings)
    return {key: (then.get(key), value) for key, value in now.items() if then.get(key) != value}


async def keep_blobs(
    fork: RunHandle, state: BufferState, said: Callable[[str], None]
) -> tuple[list[BlobRef], int]:
    """Link or copy into the fork's folder the blobs that its prefix keeps, so that the parent may delete them.

    Returns the blobs that the parent has deleted already, and the number of updates recomputed because the weights that
    actors first sample from were among them.

    Raises:
        BlobMissing, BlobCorrupt: the base policy is not there or damaged.

    """
    assert state.started is not None
    blobs, gone, damaged = fork.blobs, dict[str, BlobRef](), set[str]()
    await asyncio.to_thread(blobs.keep, state.started.base_policy)
    wanted = [published.weights for published in state.weights.values()]
    wanted += [one.weights for beside in state.models.values() for one in beside.weights.values()]
    wanted += [part for saved in state.checkpoints for part in saved.parts]
    wanted += [saved.blob for kept in state.snapshots.values() for saved in kept]
    for ref in wanted:
        try:
            await asyncio.to_thread(blobs.keep, ref)
        except BlobMissing:
            gone[ref.sha256] = ref
        except BlobCorrupt as error:
            damaged.add(ref.sha256)
            said(f"not taken over: {error}")
    published = state.weights.get(state.version)
    if published is None or published.weights.sha256 not in gone.keys() | damaged:
        return list(gone.values()), 0
    said(
        f"the parent does not have the weights of version {state.version} any more: they are computed again from the log"
    )
    async with fork.connect_log("admin") as log:
        weights, recomputed = await recompute_weights(
            log, blobs, policy=policy_folder(state.settings.policy.base)
        )
    await asyncio.to_thread(blobs.put, weights)
    gone.pop(published.weights.sha256, None)
    return list(gone.values()), recomputed


async def record_fork(
    fork: RunHandle, state: BufferState, gone: Sequence[BlobRef], *, derived: Derivation | None = None
) -> None:
    """Record run.forked, and that the blobs `gone` are; skip what an interrupted attempt has recorded.

    Raises:
        SettingsError: the broker holds another log under this name.

    """
    assert fork.fork is not None
    async with fork.connect_log("admin") as log, fork.publisher(log, PRODUCER) as publisher:
        await _begin(fork, log, publisher, state, derived)
    async with fork.connect_log("learner") as log, fork.publisher(log, PRODUCER) as publisher:
        await _release(gone, log, publisher, at=fork.fork.at)


async def _begin(
    fork: RunHandle, log: EventLog, publisher: Publisher, state: BufferState, derived: Derivation | None
) -> None:
    """Record run.forked, unless an interrupted attempt has recorded it.

    Raises:
        SettingsError: the broker holds another log under this name.

    """
    assert fork.fork is not None
    assert state.started is not None
    settings = fork.settings
    start = RunStarted(
        settings=settings.model_dump(mode="json"),
        recipe=fork.recipe,
        run_seed=settings.run.seed,
        packages={name: importlib.metadata.version(name) for name in PACKAGES},
        fingerprint=fingerprint_of(settings.learner),
        base_policy=state.started.base_policy,
        base_policy_name=state.started.base_policy_name,
        behaviour=state.started.behaviour | behaviour_of(settings.actors),
        plugins=plugins_in_use(settings),
    )
    fact = RunForked(
        parent=fork.fork.parent,
        at_position=fork.fork.at,
        parent_digest=state.digest.value,
        start=start,
        derived=derived,
    )
    subject = family_wildcard(fork.name, "run")
    before = await log.last_under(subject)
    with suppress(ExpectationFailed):
        if before is None or before.position <= fork.fork.at:
            expect = Expectation(subject=subject, last=before.position if before else 0)
            await publisher.decide(fact, entity=fork.name, expect=expect)
    stored = await log.read(after=fork.fork.at, limit=1)
    begun = decode(stored[0], strict=True) if stored else None
    if begun is None or not _same_fork(begun.fact, fact):
        raise SettingsError(
            f"the broker holds another log of a run {fork.name!r}, which this home does not know: perhaps an interrupted fork. "
            "Choose another name with --name."
        )


def _same_fork(begun: Fact, fact: RunForked) -> bool:
    """Whether the first event is the one that an interrupted attempt of the same command recorded."""
    if not isinstance(begun, RunForked) or begun.start is None or fact.start is None:
        return False
    origin = (fact.parent, fact.at_position, fact.parent_digest, fact.start.settings, fact.derived)
    return (
        begun.parent,
        begun.at_position,
        begun.parent_digest,
        begun.start.settings,
        begun.derived,
    ) == origin


async def _release(gone: Sequence[BlobRef], log: EventLog, publisher: Publisher, *, at: int) -> None:
    """Record that blobs which the prefix keeps, and the parent has deleted, are gone; skips those recorded already."""
    async with aclosing(read(log, after=at)) as recordeds:
        said = {r.fact.blob.sha256 async for r in recordeds if isinstance(r.fact, BlobReleased)}
    for ref in gone:
        if ref.sha256 not in said:
            fact = BlobReleased(blob=ref, reason=RELEASED)
            await publisher.decide(fact, entity=ref.sha256)


async def _abandon(prefix: Prefix, publisher: Publisher) -> int:
    """Abandon the episodes that were requested and had not ended."""
    open_ones = prefix.leases.all_open()
    for lease in open_ones:
        fact = EpisodeAbandoned(
            episode=lease.episode,
            task_id=lease.task_id,
            reason=FORKED,
            detail="it was under way where the run was forked, and goes on in the parent alone",
            steps=lease.steps,
        )
        await decide_if_absent(publisher, fact, causation=lease.causation)
    return len(open_ones)


async def _judge(fork: RunHandle, log: EventLog, prefix: Prefix, publisher: Publisher) -> int:
    """Judge the prefix's ended episodes that lack a verdict of one of the fork's judges."""
    judged = 0
    names = fork.settings.judge.judges
    shelf = shelf_for(names, fork.settings, fork.blobs)
    async with open_judges(names, fork.settings, fork.blobs) as known:
        if shelf is not None:
            known[shelf.name] = await shelf.begin(log)
        for judge in configured_judges(fork.settings, known):
            judged += await _judge_all(judge, fork, log, prefix, publisher)
    return judged


async def _judge_all(
    judge: Judge, fork: RunHandle, log: EventLog, prefix: Prefix, publisher: Publisher
) -> int:
    judged = 0
    for episode, recorded in prefix.unjudged.items():
        if judge.identity.name in prefix.spoken.get(episode, ()):
            continue
        ended = recorded.fact
        assert isinstance(ended, EpisodeEnded)
        task, timeout_s = prefix.tasks.get(ended.task_id), fork.settings.judge.timeout_s
        judged_episode = JudgedEpisode.in_log(log, fork.blobs, task, ended, before=recorded.position)
        verdict = await reach_verdict(judge, judged_episode, timeout_s=timeout_s)
        for pause_s in OUTAGE_PAUSES_S:
            if not verdict.may_pass:
                break
            await asyncio.sleep(pause_s)
            verdict = await reach_verdict(judge, judged_episode, timeout_s=timeout_s)
        if verdict.may_pass:
            raise JudgeUnavailable(
                f"{judge.identity.name} cannot judge {episode} for the fork: {verdict.judgment.reason}. No verdict is recorded; "
                "repeat the same command when the judge answers again"
            )
        await append_once(  # an interrupted attempt may have recorded it
            publisher,
            verdict.as_fact(judge.identity, episode=episode, task_id=ended.task_id),
            entity=author_key(episode, judge.identity),
            causation=recorded.envelope.id,
            episode=episode,
        )
        judged += 1
    return judged
