"""A realistic run, told fact by fact without any model, browser or broker: every type of the catalogue occurs.

Pure and seeded. The facts are given in the order in which they are to stand in a log that begins with them, since plans
name the positions of steps.
"""

from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from itertools import count, groupby, product
from random import Random
from typing import NamedTuple

import msgspec

from hindcast.actors.judges.rules import RULES
from hindcast.core.domain.action import Action
from hindcast.core.domain.arrays import pack_floats, pack_ids, pack_positions
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.observation import Box, Mark
from hindcast.core.domain.sampling import Sampling
from hindcast.core.domain.task import Task
from hindcast.core.ids import digest_hex
from hindcast.core.seeds import derive_id
from hindcast.core.settings.schema import LogSettings, Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    BlobReleased,
    CheckpointSaved,
    ControlApplied,
    ControlRequested,
    DecisionKept,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRelabeled,
    EpisodeRequested,
    EpisodeStarted,
    EvaluationFinished,
    EvaluationStarted,
    EventDeadLettered,
    InjectionSeen,
    LearnerStarted,
    LogRepaired,
    LogSealed,
    MismatchExceeded,
    PhaseStarted,
    PolicyServerTroubled,
    QueueRepaired,
    RecipeChanged,
    ReplayScored,
    RunFinished,
    RunForked,
    RunResumed,
    RunStarted,
    SamplesSwept,
    SegmentArchived,
    SnapshotSaved,
    StateValued,
    StepTaken,
    TaskAdmitted,
    TaskChecked,
    TaskProposed,
    TaskRejected,
    UpdateApplied,
    UpdateSkipped,
    VerdictDisputed,
    WaitExceeded,
    WeightsAdopted,
    WeightsPublished,
)
from hindcast.events.catalogue.consulted import Consulted
from hindcast.events.catalogue.episode import Screenshot
from hindcast.events.catalogue.evaluation import EvaluationResult
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.catalogue.training import PlannedEpisode, SampleReport
from hindcast.events.catalogue.verdict import JudgeIdentity, Relabel, RewrittenPrompt
from hindcast.events.envelope import BlobRef, Fact, Recorded
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read

OTHER_JUDGE = JudgeIdentity(name="second", version="2", prompt_digest=digest_hex(b"prompt"))
ASKED = Consulted(
    model="maker",
    request=digest_hex(b"asked"),
    answer="YES",
    prompt_tokens=90,
    answer_tokens=9,
    cost_usd=0.001,
    tries=1,
)
REMEMBERED = msgspec.structs.replace(ASKED, prompt_tokens=0, answer_tokens=0, cost_usd=0.0, tries=0)
ORIGINS = ("online", "online", "online", "demonstration", "evaluation")
SECOND_NS = 1_000_000_000
SPLICED = 4
"""Step of an episode whose last tokens newer weights sampled."""


class Told(NamedTuple):
    """A fact and who records it."""

    producer: str
    entity: str
    fact: Fact


class Episode(NamedTuple):
    """What the learner needs to know of an episode."""

    episode: str
    group: str
    positions: tuple[int, ...]
    judgment: Judgment | None


def blob(name: str) -> BlobRef:
    return BlobRef(digest_hex(name.encode()), 1000 + len(name))


PICTURE = blob("picture")
PICTURES = {
    0: Screenshot(
        image=PICTURE, missing="", when="before", width=640, height=512, scale=0.5,
        marks=(Mark(7, Box(10, 20, 30, 40)),),
    ),
    2: Screenshot(image=None, missing="not drawn \x00", when="after", width=0, height=0, scale=1.0, marks=()),
}  # fmt: skip
"""By the step that names them."""


def task(environment: str, family: str, seed: int) -> Task:
    return Task(
        environment=environment,
        family=family,
        seed=seed,
        instruction=f"{family} number {seed}",
        goal={"want": seed, "also": ["a", 1.5, None]},
        max_steps=8,
    )


TASKS = tuple(
    task(*family, seed)
    for family in (("store", "find_price"), ("store", "checkout"), ("miniwob", "click-button"))
    for seed in range(3)
)
FINGERPRINT = Fingerprint(
    cpu_capability="AVX2",
    threads=1,
    blas="mkl",
    torch="2.9",
    transformers="5",
    python="3.11",
    platform="linux",
)


class Tale:
    """Tells a run; `told` counts the facts, so the next one's position is known."""

    def __init__(self, seed: int, *, groups: int, group_size: int, run: str) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.run = run
        self.groups = groups
        self.group_size = group_size
        self.version = 0
        self.update = 0
        self.batch = 0
        self.remembered: Episode | None = None
        self.told = 0
        self.episodes = count()

    def tell(self) -> Iterator[Told]:
        """Every fact in order."""
        for told in self._tell():
            self.told += 1
            yield told

    def _tell(self) -> Iterator[Told]:
        settings = Settings().model_dump(mode="json")
        yield Told(
            "app",
            self.run,
            RunStarted(
                settings=settings,
                recipe="grpo",
                run_seed=self.seed,
                packages={"torch": "2.9"},
                fingerprint=FINGERPRINT,
                base_policy=blob("base"),
                base_policy_name="base",
                behaviour={"renderer": "lines/1"},
            ),
        )
        for one in TASKS:
            yield Told("curriculum.1", one.id, TaskProposed(task=one, source="seeded"))
            yield Told("curriculum.1", one.id, TaskAdmitted(task_id=one.id, phase=0, value=0.25))
        rejected = task("store", "find_price", 99)
        yield Told(
            "curriculum.1",
            rejected.id,
            TaskProposed(task=rejected, source="generated", parents=(TASKS[0].id,), consulted=ASKED),
        )
        yield Told(
            "curriculum.1",
            rejected.id,
            TaskChecked(
                task_id=rejected.id,
                feasible=True,
                reason="such things are sold",
                checker="endpoint/1 maker",
                prompt=digest_hex(b"feasible"),
                consulted=ASKED,
            ),
        )
        yield Told(
            "curriculum.1", rejected.id, TaskRejected(task_id=rejected.id, reason="too easy", value=0.99)
        )
        yield Told("curriculum.1", "0", PhaseStarted(phase=0, reference_version=0))
        yield Told("curriculum.1", TASKS[0].id, StateValued(task_id=TASKS[0].id, critic_version=1, value=0.5))
        for actor in (1, 2):
            yield Told(f"actor.{actor}", "0", WeightsAdopted(actor=f"actor.{actor}", version=0, load_ms=3.5))
        yield from self._evaluation()
        done: list[Episode] = []
        for number in range(self.groups):
            episodes: list[Episode] = []
            yield from self._group(number, episodes)
            done += episodes
            if len(done) >= self.group_size:
                yield from self._train(done)
                done = []
        yield from self._operation()

    def _group(self, number: int, done: list[Episode]) -> Iterator[Told]:
        one = task("store", "orders", number) if number % 4 == 3 else self.random.choice(TASKS)
        origin = self.random.choice(ORIGINS)
        group = derive_id("g", self.seed, number)
        members = []
        for member in range(self.group_size):
            episode = derive_id("ep", self.seed, next(self.episodes))
            members.append(episode)
            fact = EpisodeRequested(
                episode=episode,
                task=one,
                group=group,
                member=member,
                group_size=self.group_size,
                attempt=0,
                origin=origin,
                temperature=1.0,
                phase=0,
                min_version=self.version,
                lease_s=180.0,
            )
            yield Told("curriculum.1", episode, fact)
        for episode in members:
            yield from self._episode(episode, group, one, done)

    def _episode(self, episode: str, group: str, one: Task, done: list[Episode]) -> Iterator[Told]:
        random = self.random
        actor = f"actor.{random.choice((1, 2))}"
        if random.random() < 0.06:
            fact = EpisodeCancelled(episode=episode, task_id=one.id, reason="stale", detail="too old")
            yield Told("curriculum.1", episode, fact)
            return
        yield Told(
            actor,
            episode,
            EpisodeStarted(episode=episode, actor=actor, instruction=one.instruction, renderer="lines/1"),
        )
        steps = random.randint(1, 6)
        positions = []
        for index in range(steps):
            positions.append(self.told + 1)
            yield Told(actor, episode, self._step(episode, index, last=index == steps - 1))
        if random.random() < 0.1:
            fact = EpisodeAbandoned(
                episode=episode, task_id=one.id, reason="browser_died", detail="signal 9", steps=steps
            )
            yield Told(actor, episode, fact)
            return
        ended = EpisodeEnded(
            episode=episode,
            task_id=one.id,
            actor=actor,
            reason="exit",
            steps=steps,
            evidence=Evidence(answer="42 \x00 €", final_url="http://127.0.0.1/orders", probes={"cart": []}),
            final_observation=None,
            policy_versions=(self.version, self.version + (steps > SPLICED)),
            duration_ms=random.choice((1234.5, 1234.5, 2345.0)),
            screenshot=PICTURES[0],
        )
        yield Told(actor, episode, ended)
        outcome = random.choice(("success", "failure", "failure", "undecided"))
        judgment = Judgment(
            outcome=outcome, reward=float(outcome == "success"), reason="the price was compared"
        )
        judged = EpisodeJudged(episode=episode, task_id=one.id, judge=RULES, judgment=judgment)
        yield Told("judge.1", f"{episode}.rules", judged)
        if random.random() < 0.2:
            second = Judgment(outcome="success", reward=1.0, reason="looks right")
            judged = EpisodeJudged(
                episode=episode,
                task_id=one.id,
                judge=OTHER_JUDGE,
                judgment=second,
                consulted=REMEMBERED if len(done) % 2 else ASKED,
            )
            yield Told("judge.1", f"{episode}.second", judged)
        done.append(Episode(episode, group, tuple(positions), judgment))

    def _step(self, episode: str, index: int, *, last: bool) -> StepTaken:
        random = self.random
        length = random.randint(4, 24)
        parses = random.random() > 0.1
        action = (
            Action(name="exit", argument="42")
            if last
            else Action(name="Click", element=random.randint(1, 40))
        )
        return StepTaken(
            episode=episode,
            index=index,
            observation_digest=digest_hex(str(random.random()).encode()),
            observation=blob("page") if index % 2 else None,
            url=f"http://127.0.0.1/page/{index}",
            world_ordinal=index,
            prompt_ids=pack_ids([random.randrange(500) for _ in range(64)]),
            action_ids=pack_ids([random.randrange(500) for _ in range(length)]),
            logprobs=pack_floats([-random.random() for _ in range(length)]),
            versions=pack_ids([self.version] * (length - 2) + [self.version + (index == SPLICED)] * 2),
            sampling=Sampling(temperature=1.0, max_tokens=64, seed=random.getrandbits(62)),
            prompt_truncated=index == 3,
            answer='do(action="Click", element="7")' if parses else "what now?",
            action=action if parses else None,
            result="ok" if parses else "parse_failure",
            detail="" if parses else "no action in the answer",
            observe_ms=12.0,
            generate_ms=40.25,
            act_ms=8.0,
            touched=None if last else Box(10, 20, 30, 40),
            screenshot=PICTURES.get(index),
        )

    def _train(self, done: list[Episode]) -> Iterator[Told]:
        random = self.random
        used, consumed = done[:-1], done[-1:]
        positions = [position for episode in used for position in episode.positions]
        half = len(positions) // 2
        sizes = [half, len(positions) - half]
        parts: tuple[PlannedEpisode, ...] = tuple(
            PlannedEpisode(
                episode=episode.episode,
                group=episode.group,
                reward=episode.judgment.reward if episode.judgment else 0.0,
                advantage=random.gauss(0, 1),
                samples=len(episode.positions),
            )
            for episode in used
        )
        if self.batch % 2:  # gone through twice, with a success of an earlier batch in the last mini-batch
            sizes = [len(positions), len(positions)]
            parts, positions = parts * 2, positions * 2
            if self.remembered is not None:
                old = self.remembered
                parts += (
                    PlannedEpisode(
                        episode=old.episode,
                        group=old.group,
                        reward=1.0,
                        advantage=0.0,
                        samples=len(old.positions),
                        rehearsed=True,
                    ),
                )
                positions += old.positions
                sizes[1] += len(old.positions)
        successes = [one for one in used if one.judgment is not None and one.judgment.reward]
        self.remembered = successes[0] if successes else self.remembered
        yield Told(
            "learner.1",
            str(self.batch),
            BatchPlanned(
                batch=self.batch,
                algorithm="grpo",
                as_of=self.told,
                log_digest=bytes(range(32)),
                positions=pack_positions(positions),
                sample_digests=bytes(8 * len(positions)),
                minibatches=pack_ids(sizes),
                episodes=parts,
                consumed=tuple(episode.episode for episode in consumed),
                seed=random.getrandbits(62),
                version=self.version,
                reference_version=0,
                proximal_version=self.version,
                critic_version=None,
                config_digest=digest_hex(b"config"),
            ),
        )
        for minibatch, size in enumerate(sizes):
            if minibatch == 1 and random.random() < 0.3:
                skipped = UpdateSkipped(
                    update=self.update + 1,
                    model="policy",
                    batch=self.batch,
                    minibatch=minibatch,
                    reason="the gradient is not finite",
                    state=digest_hex(b"state"),
                )
                yield Told("learner.1", str(self.update + 1), skipped)
                continue
            self.update += 1
            yield Told("learner.1", str(self.update), self._update(minibatch, size))
        self.version += 1
        self.batch += 1
        swept = SamplesSwept(
            episodes=(done[0].episode, done[0].episode), reason="stale", version=self.version
        )
        yield Told("learner.1", str(self.version), swept)
        weights = blob(f"weights {self.version}")
        published = WeightsPublished(
            version=self.version, model="policy", weights=weights, update=self.update
        )
        yield Told("learner.1", str(self.version), published)
        for actor in (1, 2):
            adopted = WeightsAdopted(actor=f"actor.{actor}", version=self.version, load_ms=random.random())
            yield Told(f"actor.{actor}", str(self.version), adopted)
        saved = CheckpointSaved(
            update=self.update,
            batch=self.batch - 1,
            version=self.version,
            state=digest_hex(b"s"),
            blob=blob("c"),
        )
        yield Told("learner.1", str(self.update), saved)
        yield from self._evaluation()

    def _evaluation(self) -> Iterator[Told]:
        """An evaluation of the newest version: its facts, without its episodes."""
        families, temperatures = ("store/find_price", "miniwob/click-button"), (0.0, 1.0)
        started = EvaluationStarted(
            number=self.version,
            version=self.version,
            tasks=tuple(f"{family}:{1_000_000 + seed}" for seed in range(10) for family in families),
            temperatures=temperatures,
        )
        yield Told("curriculum.1", self.run, started)
        results = []
        for place, (temperature, family) in enumerate(product(temperatures, families)):
            successes = min(9, 3 + self.version * (2 - place % 2) - bool(temperature))
            results.append(
                EvaluationResult(
                    temperature=temperature,
                    family=family,
                    successes=successes,
                    failures=9 - successes,
                    lost=1,
                    reward=float(successes),
                )
            )
        finished = EvaluationFinished(
            number=self.version,
            version=self.version,
            version_low=self.version,
            version_high=self.version + 1,
            results=tuple(results),
            seconds=12.5,
            share=0.125,
            reason="a judge was away" if self.version == 1 else "",
        )
        yield Told("curriculum.1", self.run, finished)

    def _update(self, minibatch: int, size: int) -> UpdateApplied:
        random = self.random
        report = SampleReport(
            advantages=pack_floats([random.gauss(0, 1) for _ in range(size)]),
            weights=pack_floats([1 / max(size, 1)] * size),
            ratios=pack_floats([float("inf") if place == 0 else 1.0 for place in range(size)]),
            masks=pack_floats([1.0] * size),
        )
        return UpdateApplied(
            update=self.update,
            model="policy",
            batch=self.batch,
            minibatch=minibatch,
            before=digest_hex(b"before"),
            after=digest_hex(str(self.update).encode()),
            inputs=digest_hex(b"inputs"),
            metrics={"loss": 0.25, "entropy": float("nan")},
            samples=report,
            duration_ms=250.0,
            cpu_ms=240.0,
        )

    def _operation(self) -> Iterator[Told]:
        one = derive_id("ep", self.seed, 0)
        rewritten = RewrittenPrompt(head=1, ids=pack_ids([5, 6]), tail=0)
        relabel = Relabel(
            instruction="find the price of a mug",
            until_step=2,
            relevance=(0.5, 1.0),
            prompts=(rewritten, rewritten),
            family="store/find_price",
            goal={"product": 7},
        )
        relabeled = EpisodeRelabeled(
            episode=one,
            task_id=TASKS[0].id,
            relabeler=OTHER_JUDGE,
            relabels=(relabel,),
            failure="",
            consulted=ASKED,
        )
        app: list[tuple[str, Fact]] = [
            (self.run, RunForked(parent="mother", at_position=3, parent_digest=bytes(32), start=None)),
            ("wait", WaitExceeded(setting="actors.page_timeout_s", limit_s=15.0, waited_for="a page")),
            (
                "batch_0",
                MismatchExceeded(
                    update=1, batch=0, version=0, mismatch_kl=0.25, mismatch_max=0.5, limit=0.125
                ),
            ),
            (one, InjectionSeen(episode=one, index=0, excerpt="ignore your instructions")),
            (
                "http://127.0.0.1:8000",
                PolicyServerTroubled(server="http://127.0.0.1:8000", trouble="unreachable", detail="gone"),
            ),
            ("judge", EventDeadLettered(consumer="judge", position=4, tries=5, error="no evidence")),
            ("weights", BlobReleased(blob=blob("weights 1"), reason="thinned")),
            (PICTURE.sha256, BlobReleased(blob=PICTURE, reason="storage.keep_page_episodes", page=True)),
            (
                "segment",
                SegmentArchived(first=1, last=10, sha256=digest_hex(b"segment"), location="archive/1"),
            ),
            (
                "learner",
                SnapshotSaved(
                    projection="learner",
                    position=self.told,
                    schema=digest_hex(b"schema"),
                    position_digest=bytes(32),
                    log_digest=bytes(32),
                    previous=0,
                    blob=blob("snapshot"),
                ),
            ),
            ("log", LogRepaired(first=1, last=10, reason="a flipped bit")),
            ("episodes", QueueRepaired(queue="episodes", wrong="there was none")),
            ("pause", ControlRequested(command="pause", arguments={"for_s": 5}, author="me", reason="lunch")),
            ("pause", ControlApplied(command="pause", role="actor.1")),
            (self.run, RecipeChanged(author="me", reason="slower", changes={"learner.learning_rate": 1e-6})),
            (one, VerdictDisputed(episode=one, judge=RULES, author="me", reason="it did", outcome="success")),
            (f"{one}.relabeler", relabeled),
            (
                "1",
                ReplayScored(
                    version=1, positions=pack_positions([5, 6]), perplexities=pack_floats([1.5, 2.0])
                ),
            ),
            (self.run, RunResumed(after_position=5, fingerprint=FINGERPRINT, until={"updates": 5})),
            ("learner", LearnerStarted(fingerprint=FINGERPRINT)),
            (
                "samples",
                DecisionKept(swept=SamplesSwept(episodes=(one,), reason="agreed", version=1, as_of=5)),
            ),
            (self.run, RunFinished(reason="updates=5", updates=self.update, episodes=3)),
            ("log", LogSealed(events=self.told + 1)),
        ]
        for entity, fact in app:
            yield Told("app", entity, fact)


def a_run(seed: int = 1, *, groups: int = 4, group_size: int = 4, run: str = "tale") -> list[Told]:
    """All facts of one run, in order."""
    return list(Tale(seed, groups=groups, group_size=group_size, run=run).tell())


async def record(log: EventLog, facts: Iterable[Told], *, seed: int = 1) -> None:
    """Append the facts in their order, each through its producer's own publisher."""
    settings = LogSettings(linger_ms=0)
    seconds, random = count(1_700_000_000), Random(seed)
    async with AsyncExitStack() as stack:
        publishers: dict[str, Publisher] = {}
        for producer, group in groupby(facts, key=lambda told: told.producer):
            if producer not in publishers:
                publisher = Publisher(
                    log,
                    producer=producer,
                    code_rev="test",
                    settings=settings,
                    incarnation=f"{producer}-{seed}",
                    clock_ns=lambda: next(seconds) * SECOND_NS,
                    randomness=random.randbytes,
                )
                publishers[producer] = await stack.enter_async_context(publisher)
            for told in group:
                await publishers[producer].publish(told.fact, entity=told.entity)
            await publishers[producer].commit()


async def recorded_run(
    seed: int = 1, *, groups: int = 4, group_size: int = 4, run: str = "tale"
) -> tuple[MemoryLog, list[Recorded]]:
    """A log in memory that holds a run, and its events as read back."""
    log = MemoryLog(run)
    await record(log, a_run(seed, groups=groups, group_size=group_size, run=run), seed=seed)
    return log, [recorded async for recorded in read(log)]
