"""What outlives a run: its archive, into which the beginning of the log moves while it goes on, and forks of it.

An archived schedule has an archiver among its processes, and every role reads and writes one sequence across archive and
stream. Afterwards the sequence is audited, archived to its end and compared byte for byte, and forked at a position drawn
from the seed; the fork's own curriculum, actor, judge and learner bring it on by an update, and it is verified and audited.
"""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec

import hindcast.app.runs.fork as forking
from fakes.virtual_time import clock_s
from hindcast.app.runs.fork import fold_prefix
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.settings.schema import Settings
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.events.archive.continued_log import ContinuedLog
from hindcast.events.archive.writer import ArchiveWriter
from hindcast.events.catalogue import ControlRequested, RunForked, RunResumed, UpdateApplied
from hindcast.events.codec import decode, decode_envelope
from hindcast.events.envelope import Fact, Recorded, Stored
from hindcast.events.log.joined_log import JoinedLog
from hindcast.events.log.memory import Faults
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.run_identity import beginning
from hindcast.learner.verify.verify import VerifyReport, verify
from hindcast.storage.archive.archiver import Archiver
from hindcast.storage.archive.check import check_whole
from hindcast.storage.archive.log_mover import Mover, OpenEpisodes
from hindcast.storage.audit.audit import Ancestor, AuditReport, audit
from hindcast.storage.blobs.page_retention import PageKeeper
from simulation import processes
from simulation.links import Broker, Connection, MemoryBlobs
from simulation.processes import Process, Role, Site, publishing
from simulation.stand_ins import JUDGE, DigestTrainer, Mishaps
from stories.archive_story import QuickDisk

LONGEST_PAUSE_S = 35.0
"""Longer than anybody stands still here between storing a page and naming it."""
KEEP_S = LONGEST_PAUSE_S
"""Age up to which events stay in the broker. The end of an episode is created if absent there, so that an actor must find
the episode's earlier end after its longest pause; `app.runs.archive` keeps events for ten leases.
"""
KEEP_EVENTS = 10
SEGMENT_BYTES = 1000
FORK_CALM_S = 900.0


class Continued(msgspec.Struct, kw_only=True):
    """What came of an archived run."""

    moved: int
    """Position up to which the stream had forgotten its beginning."""
    pages_released: int
    copied: set[str]
    """Blobs of the archive."""
    audited: AuditReport
    archived: list[Stored]
    """The log as the archive's files hold it."""
    archive_defects: tuple[Any, ...]
    forked_at: int
    fork_audited: AuditReport
    fork_verified: VerifyReport
    fork_updates: int
    """Applied in the fork itself."""


def whole_log(folder: Path) -> Callable[[Connection], Any]:
    """How a process of an archived run sees its log."""
    return lambda connection: ContinuedLog(folder, connection, first=1)  # type: ignore[arg-type]


def open_writer(folder: Path) -> ArchiveWriter:
    return ArchiveWriter.open(folder, run="sim", segment_bytes=SEGMENT_BYTES, disk=QuickDisk())


def archiver(site: Site, settings: Settings, folder: Path, copies: MemoryBlobs) -> Role:
    """As `app.runs.archive` wires it, on the connection of the process."""

    async def role(log: Any, publisher: Publisher, stop: asyncio.Event) -> None:
        stream = log._stream
        writer = await asyncio.to_thread(open_writer, folder)
        stream.at_kill.append(writer.close)
        try:
            open_episodes = OpenEpisodes()
            for stored in await ArchiveLog(folder).read(after=stream.began - 1, limit=100_000):
                open_episodes.take(stored.position, decode_envelope(stored))
            taking = Archiver(stream, site.blobs, writer, pages=True, watch=open_episodes.take)  # type: ignore[arg-type]
            taking._target = copies  # type: ignore[assignment]
            mover = Mover(
                log,
                stream,
                folder,
                publisher,
                open_episodes,
                keep_events=KEEP_EVENTS,
                keep_s=KEEP_S,
                clock=clock_s,
            )
            async with publishing("pages.1", log, site, settings) as pages:
                keeper = PageKeeper(
                    log,
                    site.blobs,  # type: ignore[arg-type]
                    pages,
                    settings,
                    first=1,
                    unnamed_s=LONGEST_PAUSE_S,
                    copies=lambda: taking,
                )
                async with asyncio.TaskGroup() as tasks:
                    work = [
                        tasks.create_task(one)
                        for one in (taking.run(follow=True), mover.keep_on(), keeper.keep_on())
                    ]
                    await stop.wait()
                    for task in work:
                        task.cancel()
        finally:
            await asyncio.to_thread(writer.close)

    return role


async def look_back(
    site: Site,
    settings: Settings,
    folder: Path,
    copies: MemoryBlobs,
    look: Callable[[], list[Recorded]],
    random: Random,
) -> Continued:
    """Everything that can be asked of an archived run once it is at rest. Nothing goes wrong any more."""
    await _archive_for_a_while(site, settings, folder, copies)
    history = look()
    log = site.whole(Connection(site.broker, random, slowness=0.0))
    writer = open_writer(folder)
    try:
        taking = Archiver(Connection(site.broker, random, slowness=0.0), site.blobs, writer, pages=True)  # type: ignore[arg-type]
        taking._target = copies  # type: ignore[assignment]
        await taking.run(follow=False)
    finally:
        writer.close()
    with patch("hindcast.storage.archive.check.archive_blobs", lambda _: copies):
        defects = check_whole(folder).defects
    archived = await ArchiveLog(folder).read(after=0, limit=100_000)
    audited = await audit(log, site.blobs, depth="exist")  # type: ignore[arg-type]
    at = random.randrange(1, len(history))
    fork = Fork(site, settings, log, at, random)
    await fork.begin()
    await fork.go_on()
    joined = fork.log(fork.site.broker)
    fork_verified = await verify(joined, fork.site.blobs, policy=Path(), make_trainer=DigestTrainer)  # type: ignore[arg-type]
    fork_audited = await audit(
        joined,
        fork.site.blobs,  # type: ignore[arg-type]
        depth="exist",
        ancestors=[Ancestor(log, at)],
    )
    for process in fork.site.processes:
        await process.bury()
    if fork.site.refusals:
        raise fork.site.refusals[0]
    return Continued(
        moved=site.broker.live - 1,
        pages_released=sum(
            recorded.envelope.type == "blob.released" and recorded.envelope.producer == "pages.1"
            for recorded in history
        ),
        copied=set(copies.contents),
        audited=audited,
        archived=archived,
        archive_defects=defects,
        forked_at=at,
        fork_audited=fork_audited,
        fork_verified=fork_verified,
        fork_updates=fork.updates(),
    )


async def _archive_for_a_while(site: Site, settings: Settings, folder: Path, copies: MemoryBlobs) -> None:
    """Much later, so that whatever is old enough moves and goes."""
    process = Process(site, "archiver.1", archiver(site, settings, folder, copies), settings)
    await asyncio.sleep(2 * LONGEST_PAUSE_S)
    async with publishing("app", process._log, site, settings) as publisher:
        late = ControlRequested(command="drain", arguments={}, author="test", reason="still")
        await publisher.publish(late, entity="sim")
    await asyncio.sleep(2 * LONGEST_PAUSE_S)
    process.stop()
    await asyncio.wait([process.over])


class Fork:
    """A run whose prefix is another's, brought on by roles of its own."""

    def __init__(self, parent: Site, settings: Settings, log: EventLog, at: int, random: Random) -> None:
        self._parent_log = log
        self._at = at
        self._random = random
        self._settings = settings
        blobs = MemoryBlobs(parent.blobs._folder)
        blobs.contents, blobs.ever = dict(parent.blobs.ever), dict(parent.blobs.ever)
        blobs._put_s = dict(parent.blobs._put_s)
        broker = Broker("branch", faults=Faults(seed=0), clock=clock_s, first=at + 1)
        self.site = Site(broker, blobs, random, Mishaps(random, 0.0))
        self.site.whole = self.log

    def log(self, newer: Any) -> JoinedLog:
        """The whole of it, as a process sees it."""
        return JoinedLog(self._parent_log, newer, at=self._at)

    async def begin(self) -> None:
        """What `hindcast fork` appends, by its own code."""
        connection = Connection(self.site.broker, self._random, slowness=0.0)
        log = self.log(connection)
        prefix = await fold_prefix(self._parent_log, at=self._at)
        started = await beginning(self._parent_log)
        async with publishing("fork.1", log, self.site, self._settings) as publisher:
            fact = RunForked(
                parent="sim", at_position=self._at, parent_digest=prefix.buffer.digest.value, start=started
            )
            await publisher.publish(fact, entity="branch")
            await forking._abandon(prefix, publisher)
            with patch.object(forking, "open_judges", lambda *_: nullcontext({"rules": JUDGE})):
                fork = SimpleNamespace(settings=self._settings, blobs=None)
                await forking._judge(fork, log, prefix, publisher)  # type: ignore[arg-type]
            last = (await log.identity()).last
            resumed = RunResumed(after_position=last, fingerprint=started.fingerprint, until={})
            # as `hindcast start` does: the parent may have been drained
            await publisher.decide(resumed, entity="branch")

    async def go_on(self) -> None:
        """One update more than it began with, then drained."""
        site, settings = self.site, self._settings
        before = await self._updates_before()
        roles = {
            "curriculum.1": processes.curriculum(site, settings),
            "actor.1": processes.actor(site, settings, "actor.1"),
            "judge.1": processes.judge(site, settings),
            "learner.1": processes.learner(site, before + 1),
        }
        for name, role in roles.items():
            Process(site, name, role, settings)
        async with asyncio.timeout(FORK_CALM_S):
            while self.updates() < 1:
                if site.refusals:
                    raise site.refusals[0]
                await site.broker.wait_for_growth(site.broker._last, timeout_s=5)
            drain = ControlRequested(command="drain", arguments={}, author="test", reason="enough")
            connection = Connection(site.broker, self._random, slowness=0.0)
            async with publishing("app", self.log(connection), site, settings) as publisher:
                await publisher.publish(drain, entity="branch")
            await asyncio.sleep(60)
        for process in site.processes:
            process.kill()

    async def _updates_before(self) -> int:
        events = await self._parent_log.read(after=0, limit=self._at)
        while len(events) < self._at:
            events += await self._parent_log.read(after=len(events), limit=self._at - len(events))
        found = [decode(stored) for stored in events]
        return sum(_of_policy(one.fact) for one in found if one is not None)

    def updates(self) -> int:
        """Applied to the policy since the fork."""
        applied = [one for one in self.site.broker.events if decode_envelope(one).type == "update.applied"]
        return sum(_of_policy(recorded.fact) for one in applied if (recorded := decode(one)) is not None)


def _of_policy(fact: Fact) -> bool:
    return isinstance(fact, UpdateApplied) and fact.model == POLICY
