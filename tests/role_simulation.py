"""Curriculum, actors, judge and learner on one log in memory, with a world and a policy that misbehave as a seed says.

The roles, the log, the queues, the publisher, the learner's buffer and its plans are the real ones. Page, policy and
optimiser are scripted. Processes are killed as by signal 9: whatever they append after that never reaches the log.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from curriculum_story import SOURCES, applied, skipped
from virtual_time import clock_ns, clock_s

from actors.actor import run_actor
from actors.curriculum.role import run_curriculum
from actors.engines.base import Generation
from actors.environments.base import Start, StepOutcome
from actors.judge.role import run_judge
from actors.judge.rules import RuleJudge
from actors.leases import LeaseBook
from core.action import Action, ParseFailure
from core.arrays import unpack_ids
from core.errors import (
    BlobMissing,
    BrokerUnreachable,
    BrowserUnavailable,
    EngineFailed,
    EnvironmentFailed,
)
from core.evidence import Evidence, Judgment
from core.ids import digest_hex
from core.observation import Node, Observation, Page
from core.sampling import Sampling
from core.settings import Settings
from core.task import Task
from events.catalogue import RunStarted, WeightsPublished
from events.envelope import BlobRef, Fact, Record, Stored
from events.log import Expectation, LogIdentity
from events.memory import Faults, MemoryLog
from events.publisher import Publisher
from events.reader import tail
from events.subjects import family_wildcard
from learner.buffer import ReplayBuffer
from learner.planning import plan, sweep


class LetterTokenizer:
    """One token per character. What `core.prompt` needs of a tokenizer, and no more."""

    eos_token_id = 0

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) for letter in text]}

    def decode(self, ids: Sequence[int], **_: object) -> str:
        return "".join(chr(token) for token in ids if token != self.eos_token_id)

    def apply_chat_template(self, messages: Sequence[dict[str, str]], **_: object) -> str:
        return "".join(f"<{message['role']}>{message['content']}\n" for message in messages) + "<assistant>"


class MemoryBlobs:
    """Blobs in memory, under the contract of `storage.blobs.BlobStore`."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def put(self, content: bytes) -> BlobRef:
        ref = BlobRef(digest_hex(content), len(content))
        self.contents[ref.sha256] = content
        return ref

    def path(self, ref: BlobRef) -> Path:
        if ref.sha256 not in self.contents:
            raise BlobMissing(ref.sha256)
        return Path(ref.sha256)


class Mishaps:
    """How often what goes wrong; changed while a simulation runs."""

    def __init__(self, seed: int, probability: float) -> None:
        self.random = Random(seed)
        self.probability = probability

    def __call__(self, share: float = 1.0) -> bool:
        return self.random.random() < self.probability * share


ANSWERS = (
    '# Element: Buy [1]\ndo(action="Click", element="1")',
    'do(action="Type", argument="tea", element="2")',
    'exit(message="done")',
    "I do not know",
)


class ScriptedEngine:
    """A `PolicyEngine` that answers at random from a few answers."""

    def __init__(self, mishaps: Mishaps) -> None:
        self.version = 0
        self.tokenizer = LetterTokenizer()
        self._mishaps = mishaps

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        await asyncio.sleep(0.2)
        if self._mishaps(0.05):
            raise EngineFailed("the engine broke")
        if self._mishaps(0.02):
            await asyncio.sleep(10_000)
        random = Random(sampling.seed)
        ids = [*(ord(letter) for letter in random.choice(ANSWERS)), self.tokenizer.eos_token_id]
        version = self.version
        return Generation(
            token_ids=ids, logprobs=[-1.0] * len(ids), versions=[version] * len(ids), finish="stop"
        )

    async def adopt(self, version: int, weights: Path) -> None:
        await asyncio.sleep(0.5)
        self.version = version

    async def close(self) -> None:
        return None


class ScriptedWorld:
    """An `EpisodeWorld` whose page ends the episode at a step drawn from the task."""

    def __init__(self, mishaps: Mishaps) -> None:
        self._mishaps = mishaps
        self._steps = 0
        self._task: Task | None = None
        self.closed = 0

    def _observation(self) -> Observation:
        nodes = (
            Node(kind="button", tag="button", text="Buy", id=1),
            Node(kind="input", tag="input", id=2, value=""),
        )
        page = Page(url="http://shop/", title="Shop", nodes=nodes, ordinal=self._steps)
        return Observation(page=page, digest=digest_hex(str(self._steps).encode()))

    async def reset(self, task: Task) -> Start:
        self._task = task
        await asyncio.sleep(1)
        if self._mishaps(0.1):
            raise EnvironmentFailed("the page did not load")
        return Start(instruction=task.instruction, observation=self._observation())

    async def step(self, action: Action | ParseFailure) -> StepOutcome:
        await asyncio.sleep(0.5)
        if self._mishaps(0.03):
            raise BrowserUnavailable("the browser died")
        if self._mishaps(0.02):
            await asyncio.sleep(10_000)
        self._steps += 1
        failed = isinstance(action, ParseFailure)
        return StepOutcome(
            result="parse_failure" if failed else "ok",
            detail=action.reason if isinstance(action, ParseFailure) else "",
            observation=self._observation(),
            done=self._steps > 3,
            act_ms=1.0,
            observe_ms=1.0,
        )

    async def finish(self, answer: str | None) -> Evidence:
        return Evidence(answer=answer, final_url="http://shop/", probes={"steps": self._steps})

    async def close(self) -> None:
        self.closed += 1
        await asyncio.sleep(0.1)


class ScriptedHost:
    """Opens scripted worlds."""

    def __init__(self, mishaps: Mishaps) -> None:
        self._mishaps = mishaps
        self.worlds: list[ScriptedWorld] = []

    async def open_world(self, site: object) -> ScriptedWorld:
        if self._mishaps(0.02):
            raise BrowserUnavailable("no browser")
        self.worlds.append(ScriptedWorld(self._mishaps))
        return self.worlds[-1]


class MortalLog:
    """A process's own access to a log, cut off when it is killed."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.run = log.run
        self.killed = False

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        self._check()
        positions = await self._log.append(batch, expect=expect)
        self._check()
        return positions

    async def read(self, *, after: int, limit: int) -> list[Stored]:
        return await self._log.read(after=after, limit=limit)

    def tail(self, *, after: int) -> Any:
        return self._log.tail(after=after)

    async def last_under(self, subject: str) -> Stored | None:
        return await self._log.last_under(subject)

    async def identity(self) -> LogIdentity:
        return await self._log.identity()

    def _check(self) -> None:
        if self.killed:
            raise BrokerUnreachable("killed")


def demonstrate(task: Task, instruction: str, observation: Observation, earlier: Sequence[Action]) -> Action:
    return Action(name="Click", element=1) if not earlier else Action(name="exit", argument="done")


def evaluate(task: Task, evidence: Evidence) -> Judgment:
    """Outcomes differ within a group: they hang on how many steps an episode took."""
    if evidence.probes["steps"] == 0 and task.seed == 0:
        raise KeyError("no such step")
    good = evidence.probes["steps"] > 2
    return Judgment(outcome="success" if good else "failure", reward=1.0 if good else 0.0, reason="steps")


DEMONSTRATORS = {
    (name, family): demonstrate for name, source in SOURCES.items() for family in source.families()
}
JUDGE = RuleJudge(dict.fromkeys(SOURCES, evaluate))

Role = Callable[[MortalLog, Publisher, asyncio.Event], Awaitable[None]]


class Simulation:
    """The roles as processes that are killed, stopped and started again."""

    def __init__(self, seed: int, settings: Settings, *, probability: float) -> None:
        self.settings = settings
        self.random = Random(seed)
        self.mishaps = Mishaps(seed + 1, probability)
        faults = Faults(seed=seed, lost_request=0.03, lost_reply=0.03, duplicate=0.03, delay=0.1)
        self.log = MemoryLog("sim", faults=faults, clock=clock_s)
        self.blobs = MemoryBlobs()
        self.starts: dict[str, int] = {}
        self.hosts: list[ScriptedHost] = []

    @asynccontextmanager
    async def publishing(self, name: str, log: MortalLog) -> AsyncIterator[Publisher]:
        publisher = Publisher(
            log,
            producer=name,
            code_rev="test",
            settings=self.settings.log,
            clock_ns=clock_ns,
            randomness=self.random.randbytes,
        )
        async with publisher:
            yield publisher

    async def begin(self, started: Fact) -> None:
        assert isinstance(started, RunStarted)
        async with self.publishing("app", MortalLog(self.log)) as publisher:
            await publisher.publish(started, entity="sim")

    async def live(
        self, name: str, role: Role, done: asyncio.Event, *, life_s: tuple[float, float] | None
    ) -> None:
        """Run a role until `done`; meanwhile kill it or tell it to stop after a while, and start it again."""
        while not done.is_set():
            self.starts[name] = self.starts.get(name, 0) + 1
            log, stop = MortalLog(self.log), asyncio.Event()
            life = None if life_s is None else self.random.uniform(*life_s)
            if await self._one_life(name, role, log, stop, done, life):
                return
            await asyncio.sleep(self.random.uniform(0.1, 3))

    async def die_for_good(self, name: str, role: Role) -> None:
        """Run an actor, kill it in the middle of an episode, and never start it again: only leases tell."""
        log, never = MortalLog(self.log), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            process = tasks.create_task(self._process(name, role, log, never))
            leases, begun = LeaseBook(), clock_s()
            async with aclosing(tail(self.log, after=0)) as events:
                async for recorded in events:
                    leases.apply(recorded)
                    if clock_s() > begun + 3 and leases.started_by(name):
                        break
            log.killed = True
            process.cancel()

    async def _one_life(
        self,
        name: str,
        role: Role,
        log: MortalLog,
        stop: asyncio.Event,
        done: asyncio.Event,
        life: float | None,
    ) -> bool:
        """True when the role came to its own end."""
        async with asyncio.TaskGroup() as tasks:
            process = tasks.create_task(self._process(name, role, log, stop))
            ending = tasks.create_task(done.wait())
            first, _ = await asyncio.wait(
                [process, ending], timeout=life, return_when=asyncio.FIRST_COMPLETED
            )
            ending.cancel()
            if process in first:
                return process.result()
            if done.is_set() or self.random.random() < 0.3:
                stop.set()
                told = clock_s()
                await asyncio.wait([process], timeout=30)
                assert process.done(), f"{name} did not stop"
                assert clock_s() - told < 4, f"{name} took {clock_s() - told} s to stop"
                return False
            log.killed = True
            process.cancel()
            await asyncio.wait([process])
            return False

    async def _process(self, name: str, role: Role, log: MortalLog, stop: asyncio.Event) -> bool:
        try:
            async with self.publishing(name, log) as publisher:
                await role(log, publisher, stop)
        except asyncio.CancelledError:
            if not log.killed:
                raise
            return False
        except (BrokerUnreachable, ExceptionGroup) as error:
            if not log.killed and not _restarts(error):
                raise
            return False
        return not stop.is_set()

    # ---- roles ------------------------------------------------------------------------------------------------------

    def curriculum(self, until_episodes: int) -> Role:
        async def role(log: MortalLog, publisher: Publisher, stop: asyncio.Event) -> None:
            await run_curriculum(
                log=log,
                publisher=publisher,
                sources=SOURCES,
                settings=self.settings,
                stop=stop,
                clock_ns=clock_ns,
                until_episodes=until_episodes,
            )

        return role

    def actor(self, name: str) -> Role:
        async def role(log: MortalLog, publisher: Publisher, stop: asyncio.Event) -> None:
            host = ScriptedHost(self.mishaps)
            self.hosts.append(host)
            await run_actor(
                name=name,
                log=log,
                publisher=publisher,
                queue=await self.log.open_queue("actors", family="request", dead_letters=publisher),
                engine=ScriptedEngine(self.mishaps),
                host=host,  # type: ignore[arg-type]
                sites={name: name for name in SOURCES},  # type: ignore[misc]
                blobs=self.blobs,  # type: ignore[arg-type]
                settings=self.settings,
                stop=stop,
                demonstrators=DEMONSTRATORS,
            )

        return role

    def judge(self) -> Role:
        async def role(log: MortalLog, publisher: Publisher, stop: asyncio.Event) -> None:
            await run_judge(
                log=log,
                publisher=publisher,
                queue=await self.log.open_queue("judges", family="episode_end", dead_letters=publisher),
                settings=self.settings,
                stop=stop,
                judges={"rules": JUDGE},
            )

        return role

    def learner(self) -> Role:
        """Plans as the real one does; an update takes two seconds and changes nothing."""

        async def role(log: MortalLog, publisher: Publisher, stop: asyncio.Event) -> None:
            async with asyncio.TaskGroup() as tasks:
                working = tasks.create_task(self._train(log, publisher))
                stopping = tasks.create_task(stop.wait())
                await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
                working.cancel()
                stopping.cancel()

        return role

    async def _train(self, log: MortalLog, publisher: Publisher) -> None:
        projection = ReplayBuffer()
        state = projection.initial()
        goal = (await log.identity()).last
        async for recorded in tail(log, after=0):
            state = projection.apply(state, recorded)
            if recorded.position >= goal:
                goal = await self._learn(state, log, publisher) or goal

    async def _learn(self, state: Any, log: MortalLog, publisher: Publisher) -> int | None:
        """Append what follows from the state; the position up to which the next state must reach."""
        last = state.last_learner

        async def append(fact: Fact, entity: str) -> None:
            nonlocal last
            expect = Expectation(subject=family_wildcard(log.run, "learner"), last=last)
            last = await publisher.decide(fact, entity=entity, expect=expect)

        before = last
        for swept in sweep(state, self.settings):
            await append(swept, "swept")
        if last == before and state.batch is None and (planned := plan(state, self.settings)):
            await append(planned, f"batch_{planned.batch}")
        if last == before and state.batch is not None:
            total = len(unpack_ids(state.plan.minibatches))
            for minibatch in range(state.batch.done, total):
                await asyncio.sleep(2)
                broken = minibatch == 0 and self.mishaps(0.3)
                fact = (skipped if broken else applied)(state.batch.number, minibatch)
                await append(fact, f"batch_{state.batch.number}")
            version = state.version + 1
            weights = self.blobs.put(b"weights %d" % version)
            fact = WeightsPublished(version=version, model="policy", weights=weights, update=version)
            await append(fact, f"version_{version}")
        return last if last != before else None


def _restarts(error: BaseException) -> bool:
    """Whether a process ended to be started afresh, as its supervisor would do."""
    if isinstance(error, BaseExceptionGroup):
        return all(_restarts(inner) for inner in error.exceptions)
    return isinstance(error, BrowserUnavailable | EngineFailed)
