"""A run as long as one likes, told fact by fact and folded into a read model: what questions to a long run cost.

Pure and seeded. It has the shape of a real one. Each round attempts four tasks in groups, plans two of the groups in
mini-batches, updates, publishes the next policy version and has two actors adopt it; one task in four is derived from an
earlier one, and one step in fifty is finished by newer weights.
"""

from collections.abc import Generator, Iterator
from hashlib import sha256
from itertools import count
from random import Random
from typing import NamedTuple

import msgspec

from bench.log_facts import GROUP, Said, requested
from hindcast.core.domain.action import Action
from hindcast.core.domain.arrays import pack_floats, pack_ids, pack_positions
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.sampling import Sampling
from hindcast.core.domain.task import Task
from hindcast.core.ids import digest_hex
from hindcast.core.seeds import derive_id
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeStarted,
    RunStarted,
    SamplesSwept,
    StepTaken,
    TaskAdmitted,
    TaskProposed,
    UpdateApplied,
    WeightsAdopted,
    WeightsPublished,
)
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.catalogue.training import PlannedEpisode, SampleReport
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import BlobRef, Envelope, Fact, Recorded
from hindcast.events.registry import BY_CLASS
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.fold import apply
from hindcast.storage.readmodel.projector import BATCH_EVENTS

RUN = "long"
GROUPS = 4
"""Groups of a round; the first half is trained on, the rest agreed."""
MEAN_STEPS = 6
TOKENS = 24
"""Tokens of an answer."""
MINIBATCHES = 4
ACTORS = ("actor.1", "actor.2")
METRICS = (
    "clip_fraction",
    "entropy_estimate",
    "gradient_norm",
    "kl",
    "learning_rate",
    "loss",
    "mismatch_kl",
    "policy_loss",
    "ratio_max",
    "ratio_mean",
    "reward_mean",
    "staleness_mean",
)
SPLICED = 0.06
"""Share of steps sampled from old weights whose answer the newer ones finished."""
SECOND_NS = 1_000_000_000
RULES = JudgeIdentity(name="rules", version="1")


class Played(NamedTuple):
    """An episode as a plan needs it."""

    episode: str
    group: str
    reward: float
    positions: tuple[int, ...]


class LongRun:
    """Tells a run without an end; `told` counts the facts, so that plans can name positions."""

    def __init__(self, seed: int = 0) -> None:
        self.told = 0
        self._seed = seed
        self._random = Random(seed)
        self._tasks: list[Task] = []
        self._version = 0
        self._update = 0
        packed = [pack_ids([number % 500] * TOKENS) for number in range(64)]
        self._answers = [(ids, pack_floats([-0.1] * TOKENS)) for ids in packed]
        """Token ids and log-probabilities repeat: only their number matters here."""

    def tell(self) -> Iterator[Said]:
        """Every fact in order, for ever."""
        for said in self._tell():
            self.told += 1
            yield said

    def _tell(self) -> Iterator[Said]:
        yield Said("app", RUN, self._started())
        for number in count():
            played: list[Played] = []
            for group in range(GROUPS):
                played += yield from self._group(number, group)
            trained = played[: len(played) // 2]
            yield from self._train(number, trained)
            agreed = tuple(one.episode for one in played[len(trained) :])
            swept = SamplesSwept(episodes=agreed, reason="agreed", version=self._version)
            yield Said("learner", str(number), swept)

    def _started(self) -> Fact:
        fingerprint = Fingerprint(
            cpu_capability="", threads=1, blas="", torch="", transformers="", python="", platform=""
        )
        return RunStarted(
            settings=Settings().model_dump(mode="json"),
            recipe="mgrpo",
            run_seed=self._seed,
            packages={},
            fingerprint=fingerprint,
            base_policy=_blob("weights 0"),
            base_policy_name="base",
            behaviour={"renderer": "lines/1"},
        )

    def _group(self, number: int, group: int) -> Generator[Said, None, list[Played]]:
        task = yield from self._task(number * GROUPS + group)
        name = derive_id("g", self._seed, number, group)
        episodes = [derive_id("ep", self._seed, number, group, member) for member in range(GROUP)]
        for member, episode in enumerate(episodes):
            yield Said("curriculum", episode, requested(task, name, member, episode))
        played = []
        for episode in episodes:
            one = yield from self._episode(episode, name, task)
            played.append(one)
        return played

    def _task(self, number: int) -> Generator[Said, None, Task]:
        """A new task in every other group; else one that was attempted before."""
        if number % 2 and self._tasks:
            return self._random.choice(self._tasks[-500:])
        derived = self._tasks and number % 8 == 0
        parents = (self._random.choice(self._tasks).id,) if derived else ()
        task = Task(
            environment="store",
            family=("find_price", "checkout", "add_to_cart")[number % 3],
            seed=number,
            instruction=f"What does article {number} cost?",
            goal={"price": number},
            max_steps=4 * MEAN_STEPS,
        )
        self._tasks.append(task)
        source = "generated" if parents else "seeded"
        yield Said("curriculum", task.id, TaskProposed(task=task, source=source, parents=parents))
        yield Said("curriculum", task.id, TaskAdmitted(task_id=task.id, phase=0))
        return task

    def _episode(self, episode: str, group: str, task: Task) -> Generator[Said, None, Played]:
        random = self._random
        actor = random.choice(ACTORS)
        started = EpisodeStarted(
            episode=episode, actor=actor, instruction=task.instruction, renderer="lines/1"
        )
        yield Said(actor, episode, started)
        first = version = max(0, self._version - random.choice((0, 0, 1)))
        positions = []
        for index in range(random.randint(1, 2 * MEAN_STEPS - 1)):
            positions.append(self.told + 1)
            newer = version + (version < self._version and random.random() < SPLICED)
            yield Said(actor, episode, self._step(episode, index, version, newer))
            version = newer
        ended = EpisodeEnded(
            episode=episode,
            task_id=task.id,
            actor=actor,
            reason="exit",
            steps=len(positions),
            evidence=Evidence(answer="42", final_url="http://127.0.0.1/orders", probes={}),
            final_observation=None,
            policy_versions=(first, version),
            duration_ms=1234.5,
        )
        yield Said(actor, episode, ended)
        won = random.random() < 0.5
        judgment = Judgment(outcome="success" if won else "failure", reward=float(won), reason="the price")
        judged = EpisodeJudged(episode=episode, task_id=task.id, judge=RULES, judgment=judgment)
        yield Said("judge", f"{episode}.rules", judged)
        return Played(episode, group, judgment.reward, tuple(positions))

    def _step(self, episode: str, index: int, begun: int, ended: int) -> Fact:
        random = self._random
        ids, logprobs = random.choice(self._answers)
        page = _blob(f"{self._seed} {self.told}")
        return StepTaken(
            episode=episode,
            index=index,
            observation_digest=page.sha256,
            observation=page,
            url=f"http://127.0.0.1/article/{random.randrange(400)}",
            world_ordinal=index,
            prompt_ids=ids,
            action_ids=ids,
            logprobs=logprobs,
            versions=pack_ids([begun] * (TOKENS // 2) + [ended] * (TOKENS // 2)),
            sampling=Sampling(temperature=1.0, max_tokens=TOKENS, seed=random.getrandbits(62)),
            prompt_truncated=False,
            answer='do(action="Click", element="17")',
            action=Action(name="Click", element=17),
            result="ok",
            detail="",
            observe_ms=11.25,
            generate_ms=40.5,
            act_ms=8.75,
        )

    def _train(self, number: int, trained: list[Played]) -> Iterator[Said]:
        positions = [position for one in trained for position in one.positions]
        size = -(-len(positions) // MINIBATCHES)
        sizes = [len(positions[start : start + size]) for start in range(0, len(positions), size)]
        yield Said("learner", str(number), self._plan(number, trained, positions, sizes))
        for minibatch, samples in enumerate(sizes):
            self._update += 1
            ones = pack_floats([1.0] * samples)
            weights = pack_floats([1 / samples] * samples)
            applied = UpdateApplied(
                update=self._update,
                model="policy",
                batch=number,
                minibatch=minibatch,
                before=digest_hex(f"state {self._update - 1}".encode()),
                after=digest_hex(f"state {self._update}".encode()),
                inputs=digest_hex(f"inputs {self._update}".encode()),
                metrics=self._metrics(),
                samples=SampleReport(advantages=ones, weights=weights, ratios=ones, masks=ones),
                duration_ms=250.0,
                cpu_ms=240.0,
            )
            yield Said("learner", str(self._update), applied)
        self._version += 1
        published = WeightsPublished(
            version=self._version,
            model="policy",
            weights=_blob(f"weights {self._version}"),
            update=self._update,
        )
        yield Said("learner", str(self._version), published)
        for actor in ACTORS:
            adopted = WeightsAdopted(actor=actor, version=self._version, load_ms=12.0)
            yield Said(actor, str(self._version), adopted)

    def _metrics(self) -> dict[str, float]:
        """As many as an update of the default recipe has."""
        drawn = Random(self._update)
        return {name: drawn.random() for name in METRICS}

    def _plan(self, number: int, trained: list[Played], positions: list[int], sizes: list[int]) -> Fact:
        parts = tuple(
            PlannedEpisode(
                episode=one.episode,
                group=one.group,
                reward=one.reward,
                advantage=one.reward - 0.5,
                samples=len(one.positions),
            )
            for one in trained
        )
        return BatchPlanned(
            batch=number,
            algorithm="grpo",
            as_of=self.told,
            log_digest=bytes(32),
            positions=pack_positions(positions),
            sample_digests=bytes(8 * len(positions)),
            minibatches=pack_ids(sizes),
            episodes=parts,
            consumed=(),
            seed=number,
            version=self._version,
            reference_version=0,
            proximal_version=self._version,
            critic_version=None,
            config_digest=digest_hex(b"settings"),
        )


def _blob(name: str) -> BlobRef:
    return BlobRef(digest_hex(name.encode()), 4096)


def long_run_events(number: int, *, seed: int = 0) -> Iterator[Recorded]:
    """The first `number` events, as a reader would hand them out; their bytes are never made."""
    told = LongRun(seed).tell()
    for position in range(1, number + 1):
        said = next(told)
        kind = BY_CLASS[type(said.fact)]
        envelope = Envelope(
            id=f"long-{position}",
            type=kind.name,
            version=kind.version,
            run=RUN,
            entity=said.entity,
            ordinal=0,
            causation=None,
            correlation=None,
            producer=said.role,
            incarnation=said.role,
            producer_seq=position,
            prev_hash=b"",
            occurred_ns=1_700_000_000 * SECOND_NS + position * SECOND_NS // 50,
            policy_version=None,
            code_rev="long",
            payload=msgspec.Raw(b""),
        )
        yield Recorded(position, envelope, said.fact, sha256(envelope.id.encode()).digest())


def fill_with_long_run(model: ReadModel, number: int, *, seed: int = 0) -> None:
    """Fold the first `number` events into a read model of the run `long`, emptying what it held."""
    model.prepare()
    model.reset()
    batch: list[Recorded] = []
    for recorded in long_run_events(number, seed=seed):
        batch.append(recorded)
        if len(batch) == BATCH_EVENTS or recorded.position == number:
            with model.writing() as connection:
                apply(connection, batch)
            batch = []
