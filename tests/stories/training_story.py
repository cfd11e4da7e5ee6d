"""A tiny policy and made-up episodes in a real log: what the learner's tests train on.

Token ids are random, log-probabilities are the tiny policy's own, so that importance ratios start at 1.
"""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import torch

from fakes.bare_step import bare_step
from fakes.tiny_policy import write_tiny_policy
from hindcast.app.plugins import plugins_in_use
from hindcast.core.domain.action import Action
from hindcast.core.domain.arrays import pack_floats, pack_ids
from hindcast.core.domain.evidence import Evidence, Judgment, Outcome
from hindcast.core.domain.sampling import Sampling
from hindcast.core.domain.task import Task
from hindcast.core.models.logprobs import SampleToScore, score
from hindcast.core.models.policy import WEIGHTS, load_policy
from hindcast.core.settings.changes import decode_settings
from hindcast.core.settings.schema import LogSettings, Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    BlobReleased,
    BranchPoint,
    CheckpointSaved,
    EpisodeAbandoned,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    RunStarted,
    SamplesSwept,
    StepTaken,
    UpdateApplied,
    UpdateSkipped,
    WeightsPublished,
)
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import Fact, Record, Recorded
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.loop import LearnerReport, run_learner
from hindcast.learner.numerics import configure, fingerprint_of
from hindcast.storage.blobs.store import BlobStore

RUN = "r_test"
TOKENS = range(10, 200)
"""Ids that prompts and answers are made of."""
QUICK = LogSettings(linger_ms=0)
LEARNER = {
    "group_batch": 2,
    "minibatches": 2,
    "max_staleness": 50,
    "learning_rate": 3e-3,
    "warmup_updates": 2,
    "tokens_per_forward": 256,
    "shared_prefixes": True,
}


class Member(NamedTuple):
    """One episode to be told."""

    reward: float
    steps: int
    outcome: Outcome | None = None
    """Of the judge; None: by the reward."""
    abandoned: bool = False
    version: int = 0
    tokens: int = 4
    origin: str = "online"
    unparsable: bool = False
    """Whether its first answer is no action."""
    branch: BranchPoint | None = None
    """Where it leaves the episode that it continues."""


class Told(NamedTuple):
    """A fact, who records it, and of what."""

    role: str
    entity: str
    fact: Fact


def settings_with(**learner: Any) -> Settings:
    """Small settings, the learner's as given."""
    return decode_settings(
        {
            "run": {"seed": 3},
            "curriculum": {"group_size": 4, "max_attempts": 1},
            "learner": {**LEARNER, **learner},
        }
    )


class Story:
    """Tells facts; the same seed tells the same."""

    def __init__(self, policy: Path, *, seed: int = 5, page: Sequence[int] = ()) -> None:
        """`page`: tokens that every prompt begins with."""
        self.random = Random(seed)
        self.page = page
        self.policy = policy
        self.model = load_policy(policy).model
        self.groups = 0

    def start(self, blobs: BlobStore, settings: Settings, *, fingerprint_: Fingerprint | None = None) -> Told:
        """run.started, with the base weights in the blob store."""
        fact = RunStarted(
            settings=settings.model_dump(mode="json"),
            recipe="test",
            run_seed=settings.run.seed,
            packages={},
            fingerprint=fingerprint_ or fingerprint_of(settings.learner),
            base_policy=blobs.put((self.policy / WEIGHTS).read_bytes()),
            base_policy_name="tiny",
            behaviour={},
            plugins=plugins_in_use(settings),
        )
        return Told("app", RUN, fact)

    def group(self, *members: Member, name: str | None = None, seed: int | None = None) -> list[Told]:
        """A group from requests to verdicts. `seed`: of its task; by default a task of its own."""
        group = name or f"group_{self.groups}"
        self.groups += 1
        number = self.groups if seed is None else seed
        task = Task(
            environment="store", family="find", seed=number, instruction="find it", goal={}, max_steps=9
        )
        told = [
            self.request(task, group, index, len(members), member) for index, member in enumerate(members)
        ]
        for index, member in enumerate(members):
            told += self.episode(task, f"ep_{group}_{index}", member)
        return told

    def request(
        self, task: Task, group: str, index: int, size: int, member: Member, *, attempt: int = 0
    ) -> Told:
        """One episode.requested."""
        episode = f"ep_{group}_{index}" + (f"_{attempt}" if attempt else "")
        fact = EpisodeRequested(
            episode=episode,
            task=task,
            group=group,
            member=index,
            group_size=size,
            attempt=attempt,
            origin=member.origin,
            temperature=1.0,
            phase=0,
            branch=member.branch,
            min_version=0,
            lease_s=60.0,
        )
        return Told("curriculum", episode, fact)

    def episode(self, task: Task, episode: str, member: Member) -> list[Told]:
        """An episode from its start to its verdict."""
        started = EpisodeStarted(episode=episode, actor="actor.1", instruction="find it", renderer="lines/1")
        told = [Told("actor", episode, started)]
        told += [Told("actor", episode, self.step(episode, index, member)) for index in range(member.steps)]
        if member.abandoned:
            lost = EpisodeAbandoned(
                episode=episode, task_id=task.id, reason="browser_died", detail="", steps=member.steps
            )
            return [*told, Told("actor", episode, lost)]
        ended = EpisodeEnded(
            episode=episode,
            task_id=task.id,
            actor="actor.1",
            reason="max_steps" if member.steps == task.max_steps else "exit",
            steps=member.steps,
            evidence=Evidence(answer=episode, final_url="", probes={}),
            final_observation=None,
            policy_versions=(member.version, member.version),
            duration_ms=1.0,
        )
        outcome: Outcome = member.outcome or ("success" if member.reward > 0 else "failure")
        judged = EpisodeJudged(
            episode=episode,
            task_id=task.id,
            judge=JudgeIdentity(name="rules", version="1"),
            judgment=Judgment(outcome=outcome, reward=member.reward, reason=""),
        )
        return [*told, Told("actor", episode, ended), Told("judge", f"{episode}.rules", judged)]

    def step(self, episode: str, index: int, member: Member) -> StepTaken:
        """A step whose log-probabilities are the tiny policy's."""
        prompt = [*self.page, *(self.random.choice(TOKENS) for _ in range(self.random.randrange(5, 20)))]
        action = [self.random.choice(TOKENS) for _ in range(member.tokens + self.random.randrange(3))]
        with torch.no_grad():
            (logprobs,) = score(
                self.model, [SampleToScore(prompt, action)], temperature=1.0, tokens_per_forward=64
            )
        return msgspec.structs.replace(
            bare_step(episode, index, observe_ms=1.0, generate_ms=1.0, act_ms=1.0),
            prompt_ids=pack_ids(prompt),
            action_ids=pack_ids(action),
            logprobs=pack_floats(logprobs.numpy()),
            versions=pack_ids([member.version] * len(action)),
            sampling=Sampling(temperature=1.0, max_tokens=64, seed=1),
            action=None if member.unparsable and index == 0 else Action(name="Wait"),
        )


async def tell(log: EventLog, told: Sequence[Told], *, logs: Mapping[str, EventLog] | None = None) -> None:
    """Append facts in this order, each by its role; every call is a new start of every role.

    `logs`: the same log as each role reaches it, where roles have connections of their own.
    """
    async with AsyncExitStack() as stack:
        publishers: dict[str, Publisher] = {}
        for role in dict.fromkeys(entry.role for entry in told):
            own = log if logs is None else logs[role]
            publisher = Publisher(own, producer=f"{role}.1", code_rev="test", settings=QUICK)
            publishers[role] = await stack.enter_async_context(publisher)
        previous = None
        for role, entity, fact in told:
            if previous is not None and previous != role:
                await publishers[previous].commit()
            await publishers[role].publish(fact, entity=entity)
            previous = role


def informative(*, steps: int = 2, version: int = 0) -> tuple[Member, ...]:
    """Members of a group that differ."""
    return (
        Member(1.0, steps, version=version),
        Member(0.0, steps + 1, version=version),
        Member(1.0, steps, version=version),
        Member(0.0, steps + 2, version=version),
    )


class Bench(NamedTuple):
    """A log ready for a learner."""

    log: MemoryLog
    blobs: BlobStore
    policy: Path
    story: Story


async def bench(
    folder: Path,
    *,
    batches: int = 3,
    settings: Settings | None = None,
    policy: Path | None = None,
    page: Sequence[int] = (),
) -> Bench:
    """A log with enough groups for `batches` batches, some that agree between them, before any learner started.

    `policy`: the folder of one; None: a tiny one is written. `page`: tokens that every prompt begins with.
    """
    configure(1)
    policy = policy or write_tiny_policy(folder / "policy")
    blobs = BlobStore(folder / "blobs")
    story, log = Story(policy, page=page), MemoryLog(RUN)
    chosen = settings or settings_with()
    told = [story.start(blobs, chosen)]
    for index in range(batches * chosen.learner.options.get("group_batch", 2)):
        told += story.group(*informative(steps=1 + index % 3))
        if index % 2:
            told += story.group(*(Member(1.0, 1) for _ in range(4)))
    await tell(log, told)
    return Bench(log, blobs, policy, story)


async def events_of(log: EventLog) -> list[Recorded]:
    """Everything in the log, checked."""
    return [recorded async for recorded in read(log, after=0)]


async def folded(log: EventLog) -> BufferState:
    """The learner's buffer at the end of the log."""
    buffer, state = ReplayBuffer(), ReplayBuffer().initial()
    for recorded in await events_of(log):
        state = buffer.apply(state, recorded)
    return state


async def learn(bench_: Bench, *, until: int | None = None, log: EventLog | None = None) -> LearnerReport:
    """Run a learner on the bench's log, or on a log that stands before it."""
    chosen = log or bench_.log
    async with Publisher(chosen, producer="learner.1", code_rev="test", settings=QUICK) as publisher:
        return await run_learner(
            chosen, bench_.blobs, publisher=publisher, policy=bench_.policy, until_updates=until
        )


async def copy_of(bench_: Bench, folder: Path) -> Bench:
    """The same log, byte for byte, and the same blobs, to be treated otherwise."""
    log = MemoryLog(bench_.log.run)
    for stored in bench_.log.events:
        await log.append([Record(stored.subject, stored.data, stored.id)])
    shutil.copytree(folder_of(bench_.blobs), folder)
    return Bench(log, BlobStore(folder), bench_.policy, bench_.story)


def folder_of(blobs: BlobStore) -> Path:
    """Where a store keeps its blobs."""
    return blobs._folder


def what_was_learned(recordeds: Sequence[Recorded]) -> list[Any]:
    """The learner's facts without what a second run of the same may change: ids, times, and the digest of those."""
    facts: list[Any] = []
    for recorded in recordeds:
        match recorded.fact:
            case BatchPlanned() as fact:
                facts.append(msgspec.structs.replace(fact, log_digest=b""))
            case UpdateApplied() as fact:
                facts.append(msgspec.structs.replace(fact, duration_ms=0.0, cpu_ms=0.0))
            case (
                UpdateSkipped()
                | SamplesSwept()
                | WeightsPublished()
                | CheckpointSaved()
                | BlobReleased() as fact
            ):
                facts.append(fact)
    return facts
