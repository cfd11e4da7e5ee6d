"""A fork: a new run whose log begins as another's, by reference, and goes on under settings of its own.

    parent's log up to P ──fold──> digest, settings, what was under way
                                      │
    fork's stream, from P + 1:     run.forked, then the ends of what was under way, then whatever the fork does

Of the parent only those weights, checkpoints and snapshots are taken over that it may let go of: they are linked. What was
under way at P will be ended by nobody of the fork, so its first events do it: open episodes are abandoned (the curriculum
asks for them again), ended ones that may still be trained on and that one of the fork's judges has not spoken about are
judged by it. The fork becomes a run of its home last: where this is interrupted, the same command does it again.
"""

import asyncio
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from hindcast.actors.episodes.recorder import decide_if_absent
from hindcast.actors.judges.base import AnyJudge, EpisodeModelJudge, judge_in_time, verdict_key
from hindcast.actors.judges.role import configured_judges
from hindcast.actors.queue_worker import OUTAGE_PAUSES_S
from hindcast.app.plugins import plugins_in_use
from hindcast.app.runs.archive_source import ArchiveSource
from hindcast.app.runs.fork_prefix import Prefix, fold_prefix
from hindcast.app.runs.import_plan import HERE
from hindcast.app.runs.open_log import PACKAGES, behaviour_of
from hindcast.app.runs.runs import Fork, RunHandle, plan_run, write_down
from hindcast.app.settings.configuration import Layer, Resolved, flatten, from_override, merge
from hindcast.app.system.home import home_folder
from hindcast.app.system.join import JOINED
from hindcast.app.system.judges import open_judges, shelf_for
from hindcast.core.errors import BlobCorrupt, BlobMissing, ExpectationFailed, JudgeUnavailable, SettingsError
from hindcast.core.models.folders import policy_folder
from hindcast.core.models.vision import ImageProcessor
from hindcast.core.rl.combined_state import CRITIC
from hindcast.events.catalogue import (
    BlobReleased,
    EpisodeAbandoned,
    EpisodeEnded,
    EpisodeJudged,
    RunForked,
    RunStarted,
)
from hindcast.events.codec import decode
from hindcast.events.envelope import BlobRef, Fact
from hindcast.events.log.port import EventLog, Expectation
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.events.log.run_identity import beginning
from hindcast.events.subjects import family_wildcard
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.numerics import fingerprint_of
from hindcast.learner.restore import recompute_weights
from hindcast.storage.readmodel.address import parse

FIXED = (
    "policy.base",
    "log.url",
    "storage.blobs",
    "learner.lora_rank",
    "learner.lora_alpha",
    "learner.lora_targets",
)
"""What a fork cannot choose: the weights of the prefix belong to the one, its stream and its blobs lie with its parent's, and
what its checkpoints hold is an adapter of this form or none."""
FORKED = "forked"
"""Reason that the episodes under way are abandoned for."""
RELEASED = "the run that it was forked from has let go of it"


class ForkResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    run: str
    parent: str
    at: int
    """Position of the last event of the parent that belongs to the fork."""
    update: int
    """Updates up to there."""
    version: int
    """Policy version it goes on with."""
    changed: dict[str, tuple[Any, Any]]
    """Setting -> its value in the parent at that position, and in the fork."""
    abandoned: int
    """Episodes that were under way."""
    judged: int
    """Verdicts given at the fork, on episodes that had ended without one of its judges."""
    recomputed: int
    """Updates computed again, since the parent had let go of the weights; 0 where they were there."""


async def fork_run(
    parent: RunHandle | ArchiveSource,
    *,
    at: int,
    name: str | None,
    overrides: Sequence[str],
    said: Callable[[str], None],
    watching: Callable[[EventLog], EventLog] = lambda log: log,
) -> ForkResult:
    """Make the fork in this home; `overrides`: `section.key=value` that hold in it from there on.

    `watching`: see the parent's log being folded.

    Raises:
        SettingsError: a setting that does not hold, or that a fork cannot choose; or the name is taken.
        ForeignLog, CorruptEvent: the parent's log cannot be folded up to there.
        ReplayDiverged: the weights had to be computed again, and came out otherwise than they were published.
        JudgeUnavailable: whom a judge asks is out of reach; the same command goes on later.

    """
    if isinstance(parent, RunHandle) and (parent.folder / JOINED).exists():
        raise SettingsError(
            f"{parent.home} is one of the machines that joined run {parent.name}, and a fork links to its parent's files: make "
            "it where the run was started"
        )
    while isinstance(parent, RunHandle) and parent.parent is not None and parent.fork is not None:
        if at > parent.fork.at:
            break
        parent = parent.parent  # up to there its log is that run's
    async with parent.connect_log() as log:
        owner = next((ancestor.run for ancestor in log.lineage if at <= ancestor.until), log.run)
        ancestors = {log.run, *(ancestor.run for ancestor in log.lineage)}
        recipe = (await beginning(log)).recipe
        prefix = await fold_prefix(watching(log), at=at)
    archive = str(parent.folder.absolute()) if isinstance(parent, ArchiveSource) else ""
    here = HERE if archive else {}
    resolved = settings_of_fork(prefix.buffer, overrides, recipe=recipe, here=here)
    home = parent.home if isinstance(parent, RunHandle) else home_folder()
    origin = Fork(parent=owner, at=at, archive=archive)
    fork = plan_run(resolved, name=name, home=home, fork=origin, ancestors=ancestors)
    gone, recomputed = await _keep_blobs(fork, prefix.buffer, said)
    async with fork.connect_log("admin") as log, _publisher(fork, log) as publisher:
        await _begin(fork, log, publisher, prefix.buffer)
    async with fork.connect_log("learner") as log, _publisher(fork, log) as publisher:
        await _release(gone, log, publisher, at=at)
    async with fork.connect_log("curriculum") as log, _publisher(fork, log) as publisher:
        abandoned = await _abandon(prefix, publisher)
    async with fork.connect_log("judge") as log, _publisher(fork, log) as publisher:
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
    state: BufferState, overrides: Sequence[str], *, recipe: str, here: Mapping[str, Any]
) -> Resolved:
    """The settings that hold where the parent is left, with what was chosen by hand laid over them.

    `here`: those that say where a run lives, of a parent that lives elsewhere.

    Raises:
        SettingsError: see above.
        ModelFileError: screenshots are to be shown to a policy that reads none.

    """
    parents = Layer(source="the parent", values=flatten(state.resolved, "the parent"))
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
    resolved = merge([parents, elsewhere, *chosen], recipe=recipe)
    then, now = state.settings.learner.critic_heads, resolved.settings.learner.critic_heads
    if now != then and CRITIC in state.models:
        raise SettingsError(
            f"--set learner.critic_heads: the critic was trained with heads of the form {then!r} before the fork, and has no "
            f"others. Leave the setting out, or fork before the critic's first update; there {now!r} can be chosen."
        )
    if resolved.settings.actors.screenshot_observation != "off":
        # says so where the parent's policy reads no pictures
        ImageProcessor(policy_folder(resolved.settings.policy.base))
    return resolved


def _is_file(database: Any) -> bool:
    """Whether a database holds the read model of one run alone."""
    return bool(database) and parse(str(database)).get_backend_name() == "sqlite"


def changes(state: BufferState, resolved: Resolved) -> dict[str, tuple[Any, Any]]:
    """Settings that the fork does not have from its parent."""
    then = flatten(state.settings.model_dump(mode="json"), "the parent")
    now = flatten(resolved.settings.model_dump(mode="json"), "the fork")
    return {key: (then[key], value) for key, value in now.items() if then[key] != value}


async def _keep_blobs(
    fork: RunHandle, state: BufferState, said: Callable[[str], None]
) -> tuple[list[BlobRef], int]:
    """Have in the fork's own folder what its prefix says is kept, whatever the parent lets go of from now on.

    Returns what the parent has let go of already, and how many updates were computed again since that was among it
    which actors sample from at the start.

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


def _publisher(fork: RunHandle, log: EventLog) -> Publisher:
    return Publisher(log, producer="fork.1", code_rev=fork.code_rev, settings=fork.settings.log)


async def _begin(fork: RunHandle, log: EventLog, publisher: Publisher, state: BufferState) -> None:
    """Record run.forked, unless an interrupted try has.

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
        parent=fork.fork.parent, at_position=fork.fork.at, parent_digest=state.digest.value, start=start
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
            f"the broker holds another log of a run {fork.name!r}, though this home knows no such run: a fork that was "
            "interrupted, perhaps. Choose another name with --name."
        )


def _same_fork(begun: Fact, fact: RunForked) -> bool:
    """Whether what stands there is what an interrupted try of the same command recorded."""
    if not isinstance(begun, RunForked) or begun.start is None or fact.start is None:
        return False
    origin = (fact.parent, fact.at_position, fact.parent_digest, fact.start.settings)
    return (begun.parent, begun.at_position, begun.parent_digest, begun.start.settings) == origin


async def _release(gone: Sequence[BlobRef], log: EventLog, publisher: Publisher, *, at: int) -> None:
    """Say of what the prefix keeps and the parent has let go of since that nobody has it; an interrupted try may have."""
    async with aclosing(read(log, after=at)) as recordeds:
        said = {r.fact.blob.sha256 async for r in recordeds if isinstance(r.fact, BlobReleased)}
    for ref in gone:
        if ref.sha256 not in said:
            fact = BlobReleased(blob=ref, reason=RELEASED)
            await publisher.decide(fact, entity=ref.sha256)


async def _abandon(prefix: Prefix, publisher: Publisher) -> int:
    """End what was requested and had not ended."""
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
    """Give the verdicts that nobody has given in the parent."""
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
    judge: AnyJudge, fork: RunHandle, log: EventLog, prefix: Prefix, publisher: Publisher
) -> int:
    judged = 0
    for episode, recorded in prefix.unjudged.items():
        if judge.identity.name in prefix.spoken.get(episode, ()):
            continue
        ended = recorded.fact
        assert isinstance(ended, EpisodeEnded)
        story = None
        if isinstance(judge, EpisodeModelJudge):
            story = await judge.story_of(log, ended, before=recorded.position)
        task, timeout_s = prefix.tasks.get(ended.task_id), fork.settings.judge.timeout_s
        opinion = await judge_in_time(judge, task, ended.evidence, story, timeout_s=timeout_s)
        for pause_s in OUTAGE_PAUSES_S:
            if not opinion.may_pass:
                break
            await asyncio.sleep(pause_s)
            opinion = await judge_in_time(judge, task, ended.evidence, story, timeout_s=timeout_s)
        if opinion.may_pass:
            raise JudgeUnavailable(
                f"{judge.identity.name} cannot judge {episode} for the fork: {opinion.judgment.reason}. Nothing is recorded "
                f"about it; when it can be asked again, repeat the same command"
            )
        fact = EpisodeJudged(
            episode=episode,
            task_id=ended.task_id,
            judge=judge.identity,
            judgment=opinion.judgment,
            reading=opinion.reading,
            consulted=opinion.consulted,
        )
        with suppress(ExpectationFailed):  # an interrupted try has given it
            await publisher.decide(
                fact,
                entity=verdict_key(episode, judge.identity),
                causation=recorded.envelope.id,
                correlation=episode,
            )
        judged += 1
    return judged
