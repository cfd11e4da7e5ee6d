"""`JetStreamLog`: the `EventLog` on NATS JetStream, with one stream per run, atomic batches and reads by position.

The broker acknowledges a batch when it is durable (`sync_interval: always`), all or nothing. Invariant 1, log is the truth,
depends on it: the bytes at a position never change, and a stream that contradicts this is refused.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import Any, Self

import msgspec
from nats.errors import Error as NatsError

from hindcast.core.errors import CorruptEvent, ForeignLog, HindcastError
from hindcast.core.settings.schema import LogSettings
from hindcast.events.codec import decode_envelope
from hindcast.events.envelope import Record, Stored
from hindcast.events.jetstream.api import (
    NANOSECONDS,
    PAUSE_S,
    STREAM_NOT_FOUND,
    TRACEPARENT,
    ApiError,
    StreamApi,
)
from hindcast.events.jetstream.connection import Connection, Outgoing, RequestTimeout
from hindcast.events.jetstream.consumers import BrokerConsumer, list_served, make_positions
from hindcast.events.jetstream.stream_queue import JetStreamQueue, ensure_queue
from hindcast.events.jetstream.stream_tail import follow
from hindcast.events.jetstream.wire import format_headers
from hindcast.events.log.append_once import (
    AlreadyStored,
    Committed,
    ExpectationRefused,
    Outcome,
    OutcomeUnknown,
    StreamFull,
    append_once,
)
from hindcast.events.log.port import Ancestor, Expectation, LogIdentity
from hindcast.events.log.publisher import Publisher
from hindcast.events.subjects import everything, stream_name

MAX_BATCH = 1000
"""Most messages in one atomic batch of JetStream."""
ATTEMPT_S = 10.0
"""Time limit of one attempt to append; the broker drops an unfinished batch after the same time."""
MAX_MESSAGE_BYTES = 512 * 1024
DUPLICATE_WINDOW_S = 300.0
"""How long the broker recognizes repeated ids, at least three times the time limit of an append."""
SCHEMA = "1"
SCAN_EVENTS = 500

NEEDED_VERSION = (2, 12)
WRONG_LAST_SEQUENCE = (10071, 10164)
FULL = (10077, 10047, 10023)
CONTAINS_DUPLICATE = 10201


class LogMissing(HindcastError):
    """The broker holds no log of this run."""


class BrokerTooOld(HindcastError):
    """The broker cannot append atomic batches."""


class Fill(msgspec.Struct, frozen=True, kw_only=True):
    """Used and available bytes of a log."""

    used_bytes: int
    limit_bytes: int
    """`log.max_bytes`."""


class JetStreamLog:
    """An `EventLog` and `QueueSource` on a JetStream stream, made by `create_or_open` or `open`."""

    lineage: tuple[Ancestor, ...] = ()
    """A stream holds the events of one run."""

    def __init__(self, connection: Connection, run: str, settings: LogSettings) -> None:
        """Does not check whether the stream exists."""
        self.run = run
        self._settings = settings
        self._connection = connection
        self._api = StreamApi(connection, stream_name(run), bound_s=settings.append_timeout_s)
        self._first_digest = b""
        self.began = 0
        """First position of the stream when it was last opened or followed; 0 if it was empty."""
        self._batches = 0

    @classmethod
    async def create_or_open(
        cls, connection: Connection, run: str, settings: LogSettings, *, first: int = 1
    ) -> Self:
        """Open the run's log, or create it (role `admin`); its size limit follows the settings.

        `first`: position of a new log's first event.

        Raises:
            ForeignLog: the stream of this name is not this run's log.

        """
        log = cls(connection, run, settings)
        log._check_broker()
        try:
            info = await log._info()
        except LogMissing:
            beginning = {"first_seq": first} if first > 1 else {}
            await log._api.call("STREAM.CREATE", log._config() | beginning)
        else:
            await log._verify(info)
            existing_first = int(info["config"].get("first_seq") or 1)
            if existing_first != first:
                raise ForeignLog(
                    f"the stream {log._api.stream} exists already, but its first event stands or will stand at position {existing_first} "
                    f"and not at {first}: a fork of that name was made or begun. Choose another run name."
                )
            if info["config"]["max_bytes"] != settings.max_bytes:
                await log.resize(settings.max_bytes)
        return log

    @classmethod
    async def open(cls, connection: Connection, run: str, settings: LogSettings) -> Self:
        """Open the run's existing log.

        Raises:
            LogMissing: there is none.
            ForeignLog: the stream of this name is not this run's log.

        """
        log = cls(connection, run, settings)
        log._check_broker()
        await log._verify(await log._info())
        return log

    async def resize(self, max_bytes: int) -> None:
        """Change the stream's size limit at once (role `admin`), for instance to free a full log."""
        config = (await self._info())["config"]
        await self._api.call("STREAM.UPDATE", {**config, "max_bytes": max_bytes})

    async def why_not_loaded(self) -> str:
        """See `StreamApi.why_not_loaded`."""
        return await self._api.why_not_loaded()

    async def delete(self) -> None:
        """Delete the stream from the broker (role `repairer`), if there is one."""
        try:
            await self._api.call("STREAM.DELETE")
        except ApiError as error:
            if error.code != STREAM_NOT_FOUND:
                raise

    async def purge(self, *, until: int) -> None:
        """Purge all events up to a position (role `archiver`). Later events keep their positions."""
        await self._api.call("STREAM.PURGE", {"seq": until + 1})

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        """See `EventLog.append`."""
        if len(batch) > MAX_BATCH:
            raise ValueError(
                f"a batch has {len(batch)} events, JetStream takes {MAX_BATCH}: set log.batch_events lower"
            )

        async def pause(tries: int) -> None:
            await asyncio.sleep(min(2.0, 0.1 * 2**tries))

        return await append_once(self, batch, expect, patience=self._api.patience(), pause=pause)

    async def attempt(self, batch: Sequence[Record], expect: Expectation | None) -> Outcome:
        """Send one atomic batch under a new batch id, or one plain publish."""
        first: dict[str, str] = {}
        if expect is not None:
            first["Nats-Expected-Last-Subject-Sequence"] = str(expect.last)
            first["Nats-Expected-Last-Subject-Sequence-Subject"] = expect.subject
        ask = self._connection.ask
        try:
            if len(batch) == 1:
                headers = {**_headers(batch[0]), **first}
                reply = await ask(batch[0].subject, batch[0].data, headers=headers, timeout_s=ATTEMPT_S)
            else:
                self._batches += 1
                name = f"{self._connection.client_id or 0}-{id(self):x}-{self._batches}"
                messages: list[Outgoing] = []
                for number, record in enumerate(batch, 1):
                    headers = _headers(record)
                    headers["Nats-Batch-Id"] = name
                    headers["Nats-Batch-Sequence"] = str(number)
                    if number == 1:
                        headers |= first
                    if number < len(batch):
                        messages.append((record.subject, format_headers(headers), record.data))
                await self._connection.publish_all(messages)
                headers["Nats-Batch-Commit"] = "1"
                reply = await ask(record.subject, record.data, headers=headers, timeout_s=ATTEMPT_S)
        except (RequestTimeout, NatsError) as error:
            return OutcomeUnknown(str(error) or type(error).__name__)
        return _outcome(json.loads(reply.data), len(batch))

    async def find(self, batch: Sequence[Record]) -> list[int | None] | None:
        """Find the positions of stored events: first near the last one under their subject, else by scanning the subject."""
        wanted = {record.id for record in batch}
        positions: dict[str, int] = {}
        for subject in dict.fromkeys(record.subject for record in reversed(batch)):
            missing_ids = {record.id for record in batch if record.subject == subject} - positions.keys()
            last = await self._api.first_under({"last_by_subj": subject}) if missing_ids else None
            if last is None:
                continue
            near = await self._api.ranged(start=max(1, last.position - len(batch) + 1), limit=2 * len(batch))
            positions.update({stored.id: stored.position for stored in near if stored.id in wanted})
            start = 1
            while missing_ids - positions.keys() and start <= last.position:
                scanned = await self._api.ranged(start=start, limit=SCAN_EVENTS, subject=subject)
                positions.update({stored.id: stored.position for stored in scanned if stored.id in wanted})
                start = scanned[-1].position + 1 if scanned else last.position + 1
        return [positions.get(record.id) for record in batch]

    async def read(self, *, after: int, limit: int) -> list[Stored]:
        """See `EventLog.read`."""
        return await self._api.ranged(start=after + 1, limit=limit)

    async def tail(self, *, after: int, headers: bool = True) -> AsyncGenerator[list[Stored], None]:
        """See `EventLog.tail`. Raises BrokerUnreachable if the broker is away for `log.append_timeout_s`."""
        position = after
        patience: Callable[[], bool] | None = None
        stuck_at = -1
        while True:
            try:
                await self._check_reach(position)
                patience = None
                start = position
                async with aclosing(follow(self._api, self.run, after=position, headers=headers)) as batches:
                    async for batch in batches:
                        position = batch[-1].position
                        yield batch
                if position == start:
                    await asyncio.sleep(PAUSE_S)
                    await self._check_gap(position, repeated=stuck_at == position)
                    stuck_at = position
            except RequestTimeout as error:
                patience = patience or self._api.patience()
                await self._api.pause(patience, error)

    async def last_under(self, subject: str, *, until: int | None = None) -> Stored | None:
        """See `EventLog.last_under`."""
        last = await self._api.first_under({"last_by_subj": subject})
        if last is None or until is None or last.position <= until:
            return last
        return await self._api.last_up_to(subject, until=until)

    async def identity(self) -> LogIdentity:
        """See `EventLog.identity`."""
        info = await self._info()
        first, last = int(info["state"]["first_seq"]), int(info["state"]["last_seq"])
        stored = await self._api.first_under({"seq": first}) if info["state"]["messages"] else None
        digest = sha256(stored.data).digest() if stored else b""
        return LogIdentity(run=self.run, first_digest=digest, first=first if stored else 0, last=last)

    async def served(self) -> list[BrokerConsumer]:
        """List the log's readers, as the broker knows them."""
        return await list_served(self._api, self.run)

    async def fill(self) -> Fill:
        """Return how full the log is."""
        info = await self._info()
        return Fill(used_bytes=int(info["state"]["bytes"]), limit_bytes=int(info["config"]["max_bytes"]))

    async def open_queue(
        self, name: str, *, family: str, dead_letters: Publisher | None = None
    ) -> JetStreamQueue:
        """See `events.log.work_queue.QueueSource`."""
        del family  # the queue's consumer, made by `admin`, has it
        return await JetStreamQueue.open(self._api, name, dead_letters=dead_letters)

    async def ensure_queue(self, name: str, *, family: str) -> str:
        """Make a work queue, or make it anew if it is wrong (role `admin`); see `stream_queue.ensure_queue`."""
        return await ensure_queue(self._api, self.run, name, family=family)

    async def make_positions(self) -> None:
        """Make the stream in which followers report how far they have read (role `admin`)."""
        await make_positions(self._api)

    async def _info(self) -> dict[str, Any]:
        try:
            return await self._api.call("STREAM.INFO")
        except ApiError as error:
            if error.code != STREAM_NOT_FOUND:
                raise
            raise LogMissing(
                f"the broker holds no log of run {self.run!r}. If it did before, its folder was replaced: restore it. "
                "Run: hindcast run list"
            ) from error

    def _check_broker(self) -> None:
        version = self._connection.connected_server_version
        if (version.major, version.minor) < NEEDED_VERSION:
            needed = ".".join(map(str, NEEDED_VERSION))
            raise BrokerTooOld(
                f"the broker is nats-server {version.major}.{version.minor}.{version.patch}; atomic batches need {needed}. "
                "Update it, or leave log.url empty to use the one that comes with Hindcast."
            )

    async def _check_reach(self, position: int) -> None:
        """Check, before following starts or restarts, that the log is the same and reaches at least `position`."""
        identity = await self.identity()
        if identity.last < position:
            raise ForeignLog(
                f"the log of run {self.run} ends at position {identity.last}, but it was read up to {position}: the broker "
                "lost events or its folder was replaced. Restore it, or start a new run."
            )
        moved_on = identity.first > self.began  # its beginning was moved to the archive
        if self._first_digest and identity.first_digest != self._first_digest and not moved_on:
            raise ForeignLog(
                f"the log of run {self.run} begins with another event than before: its stream was swapped for another."
            )
        self.began, self._first_digest = identity.first, identity.first_digest

    async def _check_gap(self, position: int, *, repeated: bool) -> None:
        """Raise CorruptEvent for a gap, if following ended without an event for the second time at the same position."""
        if not repeated:
            return
        last = (await self.identity()).last
        following = await self._api.first_under({"seq": position + 1, "next_by_subj": everything(self.run)})
        gap_end = last if following is None else following.position - 1
        if gap_end > position:
            how = "cannot be read from" if following is None else "are missing from"
            raise CorruptEvent(
                f"positions {position + 1} to {gap_end} {how} the log of run {self.run}: the broker lost events, or its files "
                f"are damaged. Run: hindcast audit {self.run}    Then restore its folder, or hindcast repair {self.run} "
                "--from ARCHIVE"
            )

    async def _verify(self, info: dict[str, Any]) -> None:
        """Raise ForeignLog unless the stream is this run's log."""
        config = info["config"]
        subjects, owner = config.get("subjects") or [], (config.get("metadata") or {}).get("hindcast_run")
        if subjects != [everything(self.run)] or owner != self.run:
            raise ForeignLog(
                f"the stream {self._api.stream} exists already and is not the log of run {self.run!r}: it holds "
                f"{', '.join(subjects) or 'no subjects'} for run {owner!r}. Choose another run name, or another broker."
            )
        first = (
            await self._api.first_under({"seq": int(info["state"]["first_seq"])})
            if info["state"]["messages"]
            else None
        )
        if first is not None:
            run = decode_envelope(first).run
            if run != self.run:
                raise ForeignLog(
                    f"the stream {self._api.stream} begins with an event of run {run!r}, not {self.run!r}: another log "
                    "was put under this name. Choose another run name, or another broker."
                )
            self.began, self._first_digest = first.position, sha256(first.data).digest()

    def _config(self) -> dict[str, Any]:
        window_s = max(DUPLICATE_WINDOW_S, 3 * self._settings.append_timeout_s)
        return {
            "name": self._api.stream,
            "subjects": [everything(self.run)],
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "max_bytes": self._settings.max_bytes,
            "max_msg_size": MAX_MESSAGE_BYTES,
            "num_replicas": self._settings.replicas,
            "duplicate_window": int(window_s * NANOSECONDS),
            "deny_delete": True,
            "allow_direct": True,
            "allow_atomic": True,
            "compression": "s2",
            "metadata": {"hindcast_run": self.run, "hindcast_schema": SCHEMA},
        }


def _headers(record: Record) -> dict[str, str]:
    headers = {"Nats-Msg-Id": record.id}
    if record.traceparent:
        headers[TRACEPARENT] = record.traceparent
    return headers


def _outcome(answer: dict[str, Any], count: int) -> Outcome:
    error = answer.get("error")
    if error is None:
        last = int(answer["seq"])
        return Committed(list(range(last - count + 1, last + 1)))
    code = int(error.get("err_code", 0))
    if code in WRONG_LAST_SEQUENCE:
        return ExpectationRefused()
    if code in FULL:
        return StreamFull()
    if code == CONTAINS_DUPLICATE:
        return AlreadyStored()
    return OutcomeUnknown(f"{error.get('description', 'no description')} (JetStream error {code})")
