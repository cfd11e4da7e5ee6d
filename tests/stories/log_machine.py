"""A state machine of everything that can happen to a log and its consumers, for Hypothesis."""

import asyncio
import copy
from collections.abc import Coroutine, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fakes.virtual_time import VirtualLoop
from hindcast.app.runs.repair import inspect
from hindcast.core.domain.arrays import pack_ids, pack_positions
from hindcast.core.errors import BrokerUnreachable, ExpectationFailed, LogFull
from hindcast.core.settings.schema import LogSettings
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.events.archive.check import check_archive
from hindcast.events.archive.manifest import load, segment_path
from hindcast.events.archive.writer import ArchiveWriter
from hindcast.events.catalogue import BatchPlanned, EpisodeAbandoned, RunForked, TaskAdmitted
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.events.envelope import Fact, Record, Recorded, Stored
from hindcast.events.log.consumer import Retries, consume
from hindcast.events.log.hash_chain import ChainChecker
from hindcast.events.log.joined_log import JoinedLog
from hindcast.events.log.memory import Faults, MemoryLog
from hindcast.events.log.port import EventLog
from hindcast.events.log.projection import fold
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.events.registry import BY_CLASS

T = TypeVar("T")


SETTINGS = LogSettings(linger_ms=0, batch_events=4, append_timeout_s=5)


PRODUCERS = ("curriculum.1", "actor.1")


QUICK = Retries(tries=5, first_wait_s=0.0001, max_wait_s=0.0001)


EPISODES = ("ep_a", "ep_b", "ep_c", "ep_d")


def without(kind: type[msgspec.Struct], name: str, **other: Any) -> type[msgspec.Struct]:
    """The struct as it was before it had this field; `other`: fields that were of another type."""
    fields = [(field.name, other.get(field.name, field.type)) for field in msgspec.structs.fields(kind)]
    return msgspec.defstruct(
        f"Old{kind.__name__}",
        [(field, type_) for field, type_ in fields if field != name],
        bases=(Fact,) if issubclass(kind, Fact) else (),
        frozen=True,
        kw_only=True,
    )


OldEpisode = without(PlannedEpisode, "rehearsed")


OldBatchPlanned = without(BatchPlanned, "", episodes=tuple[OldEpisode, ...])  # type: ignore[valid-type]


OLDER = patch.dict(BY_CLASS, {OldBatchPlanned: BY_CLASS[BatchPlanned]._replace(version=1)})  # type: ignore[dict-item]
"""While this holds, version 1 of the fact can be published."""


def admitted(number: int) -> TaskAdmitted:
    """Of a few tasks, again and again: what a later one says replaces what the earlier said."""
    return TaskAdmitted(task_id=f"task_{number % 3}", phase=number)


def planned(number: int, *, rehearsed: bool) -> BatchPlanned:
    part = PlannedEpisode(
        episode=f"ep_{number}", group="g", reward=1.0, advantage=0.5, samples=1, rehearsed=rehearsed
    )
    return BatchPlanned(
        batch=number,
        algorithm="grpo",
        as_of=1,
        log_digest=bytes(32),
        positions=pack_positions([1]),
        sample_digests=bytes(8),
        minibatches=pack_ids([1]),
        episodes=(part,),
        consumed=(),
        seed=number,
        version=0,
        reference_version=None,
        proximal_version=None,
        critic_version=None,
        config_digest="",
    )


class Tally:
    """The projection of this test: how often each fact was seen, by its entity."""

    def initial(self) -> dict[str, int]:
        return {}

    def apply(self, state: dict[str, int], recorded: Recorded) -> dict[str, int]:
        entity = recorded.envelope.entity
        state[entity] = state.get(entity, 0) + 1
        return state


class View:
    """A consumer's durable state: the fold and its position, changed together. `deaths` says when applying dies."""

    def __init__(self) -> None:
        self.durable: tuple[dict[str, int], int] = ({}, 0)
        self.deaths: list[str] = []
        self.past: dict[int, dict[str, int]] = {}
        """What it once was, by position."""

    async def position(self) -> int:
        return self.durable[1]

    async def apply(self, recordeds: Sequence[Recorded], position: int) -> None:
        death = self.deaths.pop() if self.deaths else ""
        if death == "before":
            raise OSError("killed before the effect")
        self.durable = (fold(Tally(), recordeds, copy.copy(self.durable[0])), position)
        self.past[position] = self.durable[0]
        if death == "after":
            raise KeyboardInterrupt("killed after the effect")


async def read_all(log: EventLog) -> list[Stored]:
    """Everything that is stored, unchecked."""
    found: list[Stored] = []
    while batch := await log.read(after=len(found), limit=5):
        found += batch
    return found


async def fold_log(log: EventLog) -> dict[str, int]:
    """The tally of a log, read with every check."""
    return fold(Tally(), [recorded async for recorded in read(log)])


async def restore(log: MemoryLog, events: Sequence[Stored]) -> None:
    """Put events back, one by one, whatever the link does."""
    for stored in events:
        await log.append([Record(stored.subject, stored.data, stored.id, stored.traceparent)])


class LogMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**16), severity=st.sampled_from([0.0, 0.2, 0.5]))
    def begin(self, seed: int, severity: float) -> None:
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        faults = Faults(
            seed=seed,
            lost_request=severity,
            lost_reply=severity,
            duplicate=severity,
            delay=severity,
            tries=40,
        )
        self.log = MemoryLog("r", faults=faults)
        self.view = View()
        self.acknowledged: set[str] = set()
        self.decided: set[str] = set()
        self.attempted: set[str] = set()
        self.plans: dict[str, BatchPlanned] = {}
        self.count = 0
        self.random = Random(seed)
        self.folder = TemporaryDirectory()
        self.archive = Path(self.folder.name) / "archive"

    def publisher(self, producer: str) -> Publisher:
        """A new start of a producer."""
        return Publisher(
            self.log,
            producer=producer,
            code_rev="t",
            settings=SETTINGS,
            clock_ns=lambda: 0,
            randomness=self.random.randbytes,
        )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    @rule(producer=st.sampled_from(PRODUCERS), count=st.integers(1, 9))
    def publish_and_commit(self, producer: str, count: int) -> None:
        """One life of a producer: every fact it committed is acknowledged, whatever the link lost."""

        async def work() -> None:
            async with self.publisher(producer) as publisher:
                for _ in range(count):
                    self.count += 1
                    name = f"fact_{self.count}"
                    self.attempted.add(name)
                    await publisher.publish(admitted(self.count), entity=name)
                await publisher.commit()

        before = self.count
        try:
            self.run(work())
        except (BrokerUnreachable, LogFull):
            return
        self.acknowledged |= {f"fact_{number}" for number in range(before + 1, self.count + 1)}

    @rule(older=st.booleans(), rehearsed=st.booleans())
    def plan(self, older: bool, rehearsed: bool) -> None:
        """A fact by this Hindcast, or by one from before its shape changed: it is read as it would be told today."""
        self.count += 1
        name = f"fact_{self.count}"
        fact: Any = planned(self.count, rehearsed=rehearsed and not older)
        self.plans[name] = fact
        self.attempted.add(name)
        if older:
            fact = msgspec.convert(msgspec.structs.asdict(fact), OldBatchPlanned, from_attributes=True)

        async def work() -> None:
            async with self.publisher("learner.1") as publisher:
                await publisher.publish(fact, entity=name)
                await publisher.commit()

        with OLDER:
            try:
                self.run(work())
            except (BrokerUnreachable, LogFull):
                return
        self.acknowledged.add(name)

    @rule(producer=st.sampled_from(PRODUCERS), count=st.integers(1, 9), turns=st.integers(0, 12))
    def crash_while_publishing(self, producer: str, count: int, turns: int) -> None:
        """A producer killed somewhere: what it had not committed may be stored or not, but never twice."""

        async def work() -> None:
            publisher = self.publisher(producer)
            await publisher.__aenter__()
            for _ in range(count):
                self.count += 1
                name = f"fact_{self.count}"
                self.attempted.add(name)
                await publisher.publish(admitted(self.count), entity=name)
            for _ in range(turns):
                await asyncio.sleep(0)
            raise KeyboardInterrupt("kill -9: no drain, no goodbye")

        loop = self.runner.get_loop()
        task = loop.create_task(work())
        try:
            loop.run_until_complete(task)
        except KeyboardInterrupt:
            for left in asyncio.all_tasks(loop):
                left.cancel()
            loop.run_until_complete(asyncio.sleep(0))

    @rule(episode=st.sampled_from(EPISODES), reason=st.sampled_from(["lease_expired", "error"]))
    def decide(self, episode: str, reason: str) -> None:
        """The first terminal fact of an episode wins; every later one is refused."""

        async def work() -> None:
            async with self.publisher("actor.1") as publisher:
                fact = EpisodeAbandoned(episode=episode, task_id="t", reason=reason, detail="", steps=0)
                try:
                    await publisher.decide(fact, entity=episode)
                finally:
                    self.count += 1
                    after = f"fact_{self.count}"
                    self.attempted.add(after)
                    await publisher.publish(admitted(self.count), entity=after)

        try:
            self.run(work())
        except ExpectationFailed:
            assert episode in self.attempted, "refused although nobody had tried before"
        except (BrokerUnreachable, LogFull):
            self.attempted.add(episode)
        else:
            assert episode not in self.decided, "decided twice"
            self.decided.add(episode)
            self.attempted.add(episode)
            self.acknowledged.add(episode)

    @rule(deaths=st.lists(st.sampled_from(["before", "after", ""]), max_size=3))
    def consume_with_kills(self, deaths: list[str]) -> None:
        """A consumer that dies around its effect and comes back reaches the end with the same view."""
        self.view.deaths = list(deaths)
        end = len(self.log.events)
        while self.view.durable[1] < end:
            try:
                self.run(consume(self.log, self.view, name="view", until=end, retries=QUICK))
            except KeyboardInterrupt:
                continue

    @rule(shares=st.lists(st.floats(0, 1), max_size=3))
    def rebuild(self, shares: list[float]) -> None:
        """A view that is dropped and folded again, in whatever pieces, is the one that was there."""
        before = self.view.durable
        self.view.durable = ({}, 0)
        self.view.deaths = []
        for until in [*sorted(round(share * before[1]) for share in shares), before[1]]:
            self.run(consume(self.log, self.view, name="view", until=until, retries=QUICK))
        assert self.view.durable == before

    @rule(share=st.floats(0, 1))
    def ask_as_of(self, share: float) -> None:
        """As of a position the log says for ever what it said when it ended there."""
        for position in [at for at in self.view.past if at <= share * len(self.log.events)]:
            assert fold(Tally(), self.read_until(position)) == self.view.past[position]

    def read_until(self, position: int | None) -> list[Recorded]:
        async def prefix() -> list[Recorded]:
            return [recorded async for recorded in read(self.log, until=position)]

        return self.run(prefix())

    @rule(share=st.floats(0, 1), size=st.integers(1, 7), torn=st.integers(0, 40))
    def archive_some(self, share: float, size: int, torn: int) -> None:
        """An archiver comes back to where it was; it may be killed in the midst of its next frame."""
        writer = ArchiveWriter.open(self.archive, run="r", segment_bytes=2000)
        try:
            end = round(share * len(self.log.events))
            while writer.last < end:
                writer.append(self.log.events[writer.last : min(end, writer.last + size)])
            if torn % 2:
                writer.note()
        finally:
            writer.close()
        segments = sorted((self.archive / "segments").iterdir())
        if (
            torn
            and segments
            and segments[-1].name == segment_path(self.archive, load(self.archive).next).name
        ):
            with segments[-1].open("ab") as file:
                file.write(self.random.randbytes(torn))

    def in_archive(self) -> list[Stored]:
        """What can be read of the archive, without the one who writes it."""
        return self.run(read_all(ArchiveLog(self.archive))) if self.archive.exists() else []

    @precondition(lambda self: self.log.reachable and self.archive.exists())
    @rule(lost=st.integers(1, 9), late=st.integers(0, 2))
    def lose_and_repair(self, lost: int, late: int) -> None:
        """The broker loses events that are archived, and gives their positions out again before somebody repairs it."""
        kept = self.in_archive()
        cut = max(0, len(kept) - lost)
        behind = self.log.events[len(kept) :]
        damaged = MemoryLog("r")
        self.run(restore(damaged, self.log.events[:cut]))
        strangers = [
            msgspec.structs.replace(stored, id=f"late-{number}", position=cut + 1 + number)
            for number, stored in enumerate(kept[cut : cut + late])
        ]
        self.run(restore(damaged, strangers if strangers else kept[cut:] + behind))
        chains = ChainChecker()
        report = check_archive(
            self.archive,
            take=lambda stored, envelope: chains.link(
                stored.position, envelope, sha256(stored.data).digest()
            ),
        )
        findings = self.run(inspect(damaged, ArchiveLog(self.archive), report, chains))
        assert [stored.id for stored in findings.displaced] == [stored.id for stored in strangers]
        assert findings.following == ([] if strangers else behind)
        if not strangers or not behind:  # else what stood behind is lost for good, and was acknowledged
            self.replace_log([*kept, *findings.following])

    @precondition(lambda self: self.archive.exists())
    @rule()
    def import_elsewhere(self) -> None:
        """The archive's events in another broker are the log's first ones, and whoever read the one can go on with the
        other."""
        other, kept = MemoryLog("r"), self.in_archive()
        self.run(restore(other, kept))
        state, position = self.view.durable
        if position <= len(kept):
            view = View()
            view.durable = (copy.copy(state), position)
            if position < len(kept):
                self.run(consume(other, view, name="view", until=len(kept), retries=QUICK))
            assert view.durable[0] == fold(Tally(), self.read_until(len(kept) or None) if kept else [])

    def replace_log(self, events: Sequence[Stored]) -> None:
        """The stream made anew, under the same broker."""
        before = self.log
        self.log = MemoryLog("r", faults=before._faults, max_bytes=None)
        self.run(restore(self.log, events))

    @rule(
        share=st.floats(0, 1), again=st.floats(0, 1), counts=st.tuples(st.integers(1, 5), st.integers(1, 5))
    )
    def fork(self, share: float, again: float, counts: tuple[int, int]) -> None:
        """A fork, and one of it: both read as one log each, and the parent knows of neither."""
        parents = list(self.log.events)
        at = round(share * len(parents))
        if at == 0:
            return
        first = JoinedLog(self.log, MemoryLog("f1", first=at + 1), at=at)
        self.run(self.continue_fork(first, counts[0]))
        end = self.run(first.identity()).last
        second_at = at + 1 + round(again * (end - at - 1))
        second = JoinedLog(first, MemoryLog("f2", first=second_at + 1), at=second_at)
        self.run(self.continue_fork(second, counts[1]))
        whole = self.run(read_all(second))
        assert whole[:at] == parents[:at]
        assert self.log.events == parents
        checked = self.run(fold_log(second))
        assert sum(checked.values()) == len(whole) == second_at + 1 + counts[1]

    async def continue_fork(self, log: JoinedLog, count: int) -> None:
        """The first facts of a fork; an episode that ended in the prefix cannot end again."""
        ancestor, prefix = log.lineage[-1], await read_all(log)
        publisher = Publisher(
            log, producer="fork.1", code_rev="t", settings=SETTINGS, randomness=self.random.randbytes
        )
        async with publisher:
            forked = RunForked(parent=ancestor.run, at_position=ancestor.until, parent_digest=b"", start=None)
            await publisher.publish(forked, entity=log.run)
            for number in range(count):
                await publisher.publish(admitted(number), entity=f"{log.run}_{number}")
            await publisher.commit()
            for episode in EPISODES:
                ended = any(stored.subject.endswith(f".{episode}") for stored in prefix)
                fact = EpisodeAbandoned(episode=episode, task_id="t", reason="forked", detail="", steps=0)
                if ended:
                    with pytest.raises(ExpectationFailed):
                        await publisher.decide(fact, entity=episode)

    @invariant()
    def the_archive_is_the_beginning_of_the_log(self) -> None:
        if hasattr(self, "log") and self.archive.exists():
            kept = self.in_archive()
            assert kept == self.log.events[: len(kept)]

    @precondition(lambda self: self.log.reachable)
    @rule()
    def broker_goes(self) -> None:
        self.log.reachable = False

    @precondition(lambda self: not self.log.reachable)
    @rule()
    def broker_comes(self) -> None:
        self.log.reachable = True

    @rule(room=st.integers(0, 3000))
    def log_fills(self, room: int) -> None:
        self.log.max_bytes = sum(len(stored.data) for stored in self.log.events) + room

    @rule()
    def log_gets_room(self) -> None:
        self.log.max_bytes = None

    @invariant()
    def the_log_is_whole_and_holds_what_was_acknowledged_once(self) -> None:
        if not hasattr(self, "log"):
            return
        history = self.read_until(None)
        seen = fold(Tally(), history)
        assert self.acknowledged <= seen.keys(), "an acknowledged fact is lost"
        assert all(times == 1 for times in seen.values()), "a fact is stored twice"
        assert seen.keys() <= self.attempted, "a fact nobody published"
        for recorded in history:
            if isinstance(recorded.fact, BatchPlanned):
                assert recorded.fact == self.plans[recorded.envelope.entity], (
                    "a fact was read otherwise than told"
                )

    @invariant()
    def the_view_is_the_fold_of_the_log_up_to_its_position(self) -> None:
        if not hasattr(self, "log"):
            return
        state, position = self.view.durable
        assert state == fold(Tally(), self.read_until(position))

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.close()
            self.folder.cleanup()
