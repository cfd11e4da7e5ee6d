"""A long run made up event by event, so that replay can be measured at any length without training for months.

Everything follows from the log's own rules: the plans are those that the learner's buffer makes of the events before them,
chains and digests hold, weights and checkpoints are released as the settings say, states are kept as the roles keep
them. Made up are what episodes hold, what updates report, and the bytes of all blobs but the newest ones.

Pure apart from the blobs it stores; seeded.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from random import Random
from typing import Any

import msgspec

from bench.log_facts import Said, group_facts
from hindcast.actors.curriculum.pool import Pool
from hindcast.actors.curriculum.projection import CurriculumProjection
from hindcast.actors.curriculum.snapshots import curriculum_kind
from hindcast.core.domain.arrays import pack_floats, pack_ids, unpack_ids
from hindcast.core.domain.task import Task
from hindcast.core.ids import digest_hex, uuid7
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    BlobReleased,
    CheckpointSaved,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    PhaseStarted,
    RunStarted,
    SnapshotSaved,
    StepTaken,
    TaskAdmitted,
    TaskProposed,
    UpdateApplied,
    WeightsAdopted,
    WeightsPublished,
)
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.catalogue.training import SampleReport
from hindcast.events.codec import encode, encode_fact
from hindcast.events.envelope import BlobRef, Envelope, Fact, Recorded, Stored
from hindcast.events.log.hash_chain import ChainChecker
from hindcast.events.registry import BY_CLASS
from hindcast.events.subjects import subject_of
from hindcast.learner.batch_plan import plan, sweep
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.buffer.snapshots import LEARNER, FoldedLog
from hindcast.learner.retention import is_checkpoint_due, is_snapshot_due, releases
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.checkpoints import Counters

PROTOTYPES = 8
"""Groups whose steps are told again and again under other names: making up tokens would take longer than folding them."""
REAL_EVENTS = 2_000
"""Before the end, some batches: a learner that starts there finds a checkpoint."""
EVENT_NS = 50_000_000
"""Between two events; 20 a second."""
BEGAN_NS = 1_700_000_000_000_000_000
FINGERPRINT = Fingerprint(
    cpu_capability="", threads=1, blas="", torch="", transformers="", python="", platform=""
)


class LongLog:
    """Tells the events of a run, one by one, as a broker would hold them."""

    def __init__(
        self,
        run: str,
        settings: Settings,
        pool: Pool,
        blobs: BlobStore,
        *,
        base: BlobRef,
        state: str,
        save_checkpoint: Callable[[Counters], BlobRef],
        seed: int = 0,
    ) -> None:
        """`state`: digest of the weights and optimiser state that `save_checkpoint` stores; `base` is stored already."""
        self._run = run
        self._settings = settings
        self._pool = pool
        self._blobs = blobs
        self._base = base
        self._save = save_checkpoint
        self._state_digest = state
        self._real_after = 0
        """Position after which checkpoints are stored and not only named."""
        self._random = Random(seed)
        self._buffer = ReplayBuffer()
        self._state = self._buffer.initial()
        self._curriculum = CurriculumProjection.under(settings)
        self._curriculum_state = self._curriculum.initial()
        self._curriculum_kind = curriculum_kind(settings)
        self._curriculum_kept = 0
        self._chains = ChainChecker()
        self._previous: dict[str, int] = {}
        """Position of the newest snapshot.saved by projection."""
        self._prototypes = [list(group_facts(number)) for number in range(PROTOTYPES)]

    def tell(self, events: int) -> Iterator[Stored]:
        """The first `events` events."""
        self._real_after = events - REAL_EVENTS
        telling = self._tell()
        for _ in range(events):
            yield next(telling)

    def _tell(self) -> Iterator[Stored]:
        yield from map(self._record, self._begin())
        number = 0
        while True:
            tasks = [task for family in self._pool.values() for task in family.values()]
            for said in self._group(number, self._random.choice(tasks)):
                yield self._record(said)
            number += 1
            for said in self._train():
                yield self._record(said)
            if self._state.position - self._curriculum_kept >= self._settings.storage.snapshot_events:
                yield self._record(self._keep_curriculum())

    def _record(self, said: Said) -> Stored:
        """Give the fact its place: envelope, chain, folds."""
        position, entry = self._state.position + 1, BY_CLASS[type(said.fact)]
        producer = f"{said.role}.1"
        incarnation = f"{producer}.bench"
        link = self._chains.links.get(incarnation)
        occurred_ns = BEGAN_NS + position * EVENT_NS
        envelope = Envelope(
            id=uuid7(occurred_ns // 1_000_000, position.to_bytes(10, "big")),
            type=entry.name,
            version=entry.version,
            run=self._run,
            entity=said.entity,
            ordinal=0,
            causation=None,
            correlation=said.entity,
            producer=producer,
            incarnation=incarnation,
            producer_seq=0 if link is None else link.seq + 1,
            prev_hash=b"" if link is None else link.digest,
            occurred_ns=occurred_ns,
            policy_version=self._state.version,
            code_rev="bench",
            payload=encode_fact(said.fact),
        )
        content = encode(envelope)
        digest = sha256(content).digest()
        recorded = Recorded(position, envelope, said.fact, digest)
        self._chains.check(recorded)
        self._state = self._buffer.apply(self._state, recorded)
        self._curriculum_state = self._curriculum.apply(self._curriculum_state, recorded)
        key = said.entity if entry.subject.per_entity else incarnation
        return Stored(position, subject_of(self._run, said.fact, key=key), content, envelope.id)

    def _begin(self) -> Iterator[Said]:
        started = RunStarted(
            settings=self._settings.model_dump(mode="json"),
            recipe="bench",
            run_seed=self._settings.run.seed,
            packages={},
            fingerprint=FINGERPRINT,
            base_policy=self._base,
            base_policy_name=self._settings.policy.base,
            behaviour={},
        )
        yield Said("opening", self._run, started)
        yield Said("curriculum", "phase_0", PhaseStarted(phase=0, reference_version=0))
        for family in self._pool.values():
            for key, task in family.items():
                yield Said("curriculum", key, TaskProposed(task=task, source="seeded"))
                yield Said("curriculum", key, TaskAdmitted(task_id=key, phase=0))
        base = WeightsPublished(version=0, model="policy", weights=self._base, update=0)
        yield Said("learner", "policy_v0", base)

    def _group(self, number: int, task: Task) -> Iterator[Said]:
        """Episodes of one task, the first of which succeeds, in the order in which actors would bring them."""
        version, size = self._state.version, self._settings.curriculum.group_size
        prototype = self._prototypes[number % PROTOTYPES]
        group, best = self._new_id("group"), ""
        ids: dict[str, str] = {}
        for role, entity, fact in prototype:
            name = entity.partition(".")[0]
            episode = ids.get(name) or ids.setdefault(name, self._new_id("ep"))
            changes: dict[str, Any] = {"episode": episode}
            match fact:
                case EpisodeRequested():
                    if fact.member >= size:
                        continue
                    best = best or episode
                    changes |= {"task": task, "group": group, "group_size": size, "min_version": version}
                case StepTaken():
                    tokens = len(fact.versions) // 4
                    changes |= {"versions": pack_ids([version] * tokens)}
                case EpisodeEnded():
                    changes |= {"task_id": task.id, "policy_versions": (version, version)}
                case EpisodeJudged():
                    good = episode == best
                    judgment = msgspec.structs.replace(
                        fact.judgment, outcome="success" if good else "failure", reward=float(good)
                    )
                    changes = {"episode": episode, "task_id": task.id, "judgment": judgment}
                    yield Said(role, f"{episode}.rules", msgspec.structs.replace(fact, **changes))
                    continue
                case _ if not hasattr(fact, "episode"):
                    continue
            yield Said(role, episode, msgspec.structs.replace(fact, **changes))

    def _new_id(self, prefix: str) -> str:
        """In no order, as identifiers are: indexes grow everywhere at once."""
        return f"{prefix}_{self._random.getrandbits(48):012x}"

    def _train(self) -> Iterator[Said]:
        """What the learner does about it, in its order."""
        while swept := sweep(self._state, self._settings):
            yield Said("learner", "samples", swept[0])
        planned = plan(self._state, self._settings)
        if planned is None:
            return
        name, version = f"batch_{planned.batch}", self._state.version + 1
        yield Said("learner", name, planned)
        for index, size in enumerate(unpack_ids(planned.minibatches).tolist()):
            yield Said("learner", name, self._update(planned, index, size))
        weights = WeightsPublished(
            version=version,
            model="policy",
            weights=_made_up(f"weights {version}"),
            update=self._state.updates,
        )
        yield Said("learner", f"policy_v{version}", weights)
        yield Said(
            "actor", f"version_{version}", WeightsAdopted(actor="actor.1", version=version, load_ms=9.0)
        )
        if is_checkpoint_due(self._state, self._settings.learner):
            yield Said("learner", name, self._save_checkpoint(planned))
        if is_snapshot_due(self._state, self._settings.storage):
            yield self._keep_learner()
        while due := releases(self._state, self._settings.learner):
            self._blobs.release(due[0].blob)
            yield Said("learner", due[0].blob.sha256, BlobReleased(blob=due[0].blob, reason=due[0].reason))

    def _update(self, planned: BatchPlanned, index: int, size: int) -> UpdateApplied:
        each = pack_floats([1.0] * size)
        return UpdateApplied(
            update=self._state.updates + 1,
            model="policy",
            batch=planned.batch,
            minibatch=index,
            before=self._state_digest,
            after=self._state_digest,
            inputs=digest_hex(planned.positions),
            metrics={"loss": 0.25, "entropy": 1.5, "kl": 0.01, "staleness_mean": 0.0},
            samples=SampleReport(advantages=each, weights=each, ratios=each, masks=each),
            duration_ms=900.0,
            cpu_ms=900.0,
        )

    def _save_checkpoint(self, planned: BatchPlanned) -> CheckpointSaved:
        state = self._state
        counters = Counters(
            update=state.updates, batch=planned.batch, version=state.version, state=self._state_digest
        )
        real = state.position > self._real_after
        blob = self._save(counters) if real else _made_up(f"checkpoint {state.updates}")
        return CheckpointSaved(
            update=state.updates,
            batch=planned.batch,
            version=state.version,
            state=self._state_digest,
            blob=blob,
        )

    def _keep_learner(self) -> Said:
        content = LEARNER.encode(FoldedLog(self._state, self._chains.links))
        log_digest = self._state.digest.value
        return self._snapshot(LEARNER.projection, LEARNER.schema, content, log_digest)

    def _keep_curriculum(self) -> Said:
        self._curriculum_kept = self._state.position
        kind = self._curriculum_kind
        return self._snapshot(kind.projection, kind.schema, kind.encode(self._curriculum_state), b"")

    def _snapshot(self, projection: str, schema: str, content: bytes, log_digest: bytes) -> Said:
        position = self._state.position
        fact: Fact = SnapshotSaved(
            projection=projection,
            position=position,
            schema=schema,
            position_digest=self._state.latest,
            log_digest=log_digest,
            previous=self._previous.get(projection, 0),
            blob=self._blobs.put(content),
        )
        self._previous[projection] = position + 1
        return Said(projection, projection, fact)


def _made_up(name: str) -> BlobRef:
    """The name of a blob that nobody stored."""
    return BlobRef(digest_hex(name.encode()), 1)
