"""A run told fact by fact to the folds that decide about it: the curriculum's state, and the learner's buffer and plans.

No broker, no browser, no model: only the pure parts, so that thousands of runs take seconds.
"""

from hashlib import sha256

import msgspec

from fakes.bare_step import bare_step
from hindcast.actors.curriculum.pool import Pool, admitted_pool, configured_pool
from hindcast.actors.curriculum.projection import CurriculumProjection
from hindcast.actors.curriculum.requests import next_requests
from hindcast.actors.environments.base import ResetSemantics
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.domain.evidence import Evidence, Judgment, Outcome
from hindcast.core.domain.task import Task
from hindcast.core.rl.algorithm import find_algorithm
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.settings.changes import decode_settings
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeAbandoned,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    RunStarted,
    TaskAdmitted,
    TaskProposed,
    UpdateApplied,
    UpdateSkipped,
    WeightsPublished,
)
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.catalogue.training import SampleReport
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import BlobRef, Envelope, Fact, Recorded
from hindcast.events.registry import BY_CLASS
from hindcast.learner.batch_plan import plan, sweep
from hindcast.learner.buffer.replay_buffer import ReplayBuffer

SECOND = 1_000_000_000
RULES = JudgeIdentity(name="rules", version="1")
NOTHING = BlobRef("0" * 64, 0)


class CountingTasks:
    """A `TaskSource` of plain tasks."""

    resets: ResetSemantics = "per_episode"

    def __init__(self, name: str, *families: str) -> None:
        self.name = name
        self._families = families

    def families(self) -> tuple[str, ...]:
        return self._families

    def usual(self) -> tuple[str, ...]:
        return self._families

    def task(self, family: str, seed: int) -> Task:
        return Task(
            environment=self.name,
            family=family,
            seed=seed,
            instruction=f"{family} {seed}",
            goal={},
            max_steps=3,
        )


SOURCES = {"shop": CountingTasks("shop", "buy", "find", "compare"), "forms": CountingTasks("forms", "fill")}


def settings_of(**sections: dict[str, object]) -> Settings:
    curriculum = {"environments": tuple(SOURCES), "task_pool": 4, "group_size": 4, "max_running": 8}
    learner = {"group_batch": 2, "max_staleness": 1, "minibatches": 2}
    return decode_settings(
        {
            **sections,
            "curriculum": {**curriculum, **sections.get("curriculum", {})},
            "learner": {**learner, **sections.get("learner", {})},
        }
    )


class Story:
    """Folds what it is told. Positions count up from 1, time stands still unless `now_ns` is changed."""

    def __init__(self, settings: Settings, *, task_admitted: bool = True) -> None:
        self.settings = settings
        self.pool: Pool = configured_pool(SOURCES, settings.curriculum)
        self.projection = CurriculumProjection(
            curriculum=settings.curriculum, learner=settings.learner, judge=settings.judge.judges[0]
        )
        self.state = self.projection.initial()
        self.buffer_projection = ReplayBuffer()
        self.buffer = self.buffer_projection.initial()
        self.now_ns = 0
        self.history: list[Recorded] = []
        self.tasks: dict[str, Task] = {}
        self.tell(run_started(settings))
        if task_admitted:
            for family in self.pool.values():
                for task in family.values():
                    self.tell(TaskProposed(task=task, source="seeded"))
                    self.tell(TaskAdmitted(task_id=task.id, phase=0))

    @property
    def batch(self) -> int:
        return find_algorithm(self.settings.learner.algorithm).episodes_per_batch(self.settings)

    def tell(self, fact: Fact) -> Recorded:
        position = len(self.history) + 1
        entry = BY_CLASS[type(fact)]
        content = msgspec.msgpack.encode(fact)
        envelope = Envelope(
            id=f"event {position}",
            type=entry.name,
            version=entry.version,
            run="story",
            entity="",
            ordinal=0,
            causation=None,
            correlation=None,
            producer="story",
            incarnation="story",
            producer_seq=position,
            prev_hash=b"",
            occurred_ns=self.now_ns,
            policy_version=None,
            code_rev="",
            payload=msgspec.Raw(content),
        )
        recorded = Recorded(
            position, envelope, fact, sha256(content + position.to_bytes(8, "little")).digest()
        )
        self.history.append(recorded)
        self.state = self.projection.apply(self.state, recorded)
        self.buffer = self.buffer_projection.apply(self.buffer, recorded)
        return recorded

    def wanted(self, *, until_episodes: int | None = None) -> list[EpisodeRequested]:
        pool = admitted_pool(self.pool, self.state.admitted)
        return next_requests(
            self.state,
            settings=self.settings,
            pool=pool,
            demonstrable=pool,
            until_episodes=until_episodes,
        )

    def request(self) -> list[EpisodeRequested]:
        """Append everything that may be requested now."""
        told: list[EpisodeRequested] = []
        while facts := self.wanted():
            for fact in facts:
                self.tell(fact)
                self.tasks[fact.episode] = fact.task
            told += facts
        return told

    def start(self, episode: str, *, actor: str = "actor.1") -> None:
        self.tell(EpisodeStarted(episode=episode, actor=actor, instruction="", renderer="lines/1"))

    def end(self, episode: str, *, version: int | None = None, steps: int = 1) -> None:
        sampled = self.state.version if version is None else version
        for index in range(steps):
            self.tell(bare_step(episode, index, version=sampled))
        self.tell(
            EpisodeEnded(
                episode=episode,
                task_id=self.tasks[episode].id,
                actor="actor.1",
                reason="done",
                steps=steps,
                evidence=Evidence(answer=None, final_url="", probes={}),
                final_observation=None,
                policy_versions=(sampled, sampled),
                duration_ms=1.0,
            )
        )

    def abandon(self, episode: str, *, reason: str = "browser_died") -> None:
        self.tell(
            EpisodeAbandoned(
                episode=episode, task_id=self.tasks[episode].id, reason=reason, detail="", steps=0
            )
        )

    def judge(self, episode: str, outcome: Outcome, *, judge: JudgeIdentity = RULES) -> None:
        reward = 1.0 if outcome == "success" else 0.0
        judgment = Judgment(outcome=outcome, reward=reward, reason="")
        self.tell(
            EpisodeJudged(episode=episode, task_id=self.tasks[episode].id, judge=judge, judgment=judgment)
        )

    def sweep(self) -> None:
        """As the real learner does whenever it looks at its buffer."""
        for swept in sweep(self.buffer, self.settings):
            self.tell(swept)

    def plan(self) -> BatchPlanned | None:
        """Append the batch that the real learner plans now; None while it waits for more."""
        self.sweep()
        planned = plan(self.buffer, self.settings)
        if planned is not None:
            self.tell(planned)
        return planned

    def train(self, planned: BatchPlanned) -> None:
        """Its updates and the weights that follow."""
        for minibatch in range(len(unpack_ids(planned.minibatches))):
            self.tell(applied(planned.batch, minibatch, model=planned.model))
        before = (
            planned.version if planned.model == POLICY else self.buffer.auxiliary_model(planned.model).version
        )
        self.tell(published(before + 1, model=planned.model))


def run_started(settings: Settings) -> RunStarted:
    return RunStarted(
        settings=settings.model_dump(mode="json"),
        recipe="",
        run_seed=settings.run.seed,
        packages={},
        fingerprint=Fingerprint(
            cpu_capability="", threads=1, blas="", torch="", transformers="", python="", platform=""
        ),
        base_policy=NOTHING,
        base_policy_name="base",
        behaviour={},
    )


def applied(batch: int, minibatch: int, *, model: str = POLICY) -> UpdateApplied:
    return UpdateApplied(
        update=minibatch + 1,
        model=model,
        batch=batch,
        minibatch=minibatch,
        before="",
        after="",
        inputs="",
        metrics={},
        samples=SampleReport(advantages=b"", weights=b"", ratios=b"", masks=b""),
        duration_ms=0.0,
        cpu_ms=0.0,
    )


def skipped(batch: int, minibatch: int, *, model: str = POLICY) -> UpdateSkipped:
    return UpdateSkipped(
        update=minibatch + 1,
        model=model,
        batch=batch,
        minibatch=minibatch,
        reason="not finite",
        state="",
    )


def published(version: int, *, model: str = POLICY) -> WeightsPublished:
    return WeightsPublished(version=version, model=model, weights=NOTHING, update=version)
