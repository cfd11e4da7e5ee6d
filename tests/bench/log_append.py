"""Durable appending: our publishers, from facts to acknowledged events, beside raw atomic batches of the same bytes.

Ours numbers, encodes, hashes and chains every fact, sends it with its id, and believes nothing but the acknowledgement.
Raw is the plain client publishing the very batches that ours made last, prepared beforehand: no encoding, no hash, and
no ids (without which an append of unknown outcome cannot be repeated) or, to see what those cost, with them. All wait
for each batch before they send the next, one writer per role.
"""

import asyncio
import json
from collections.abc import Sequence

import msgspec

from bench.log_facts import Said, group_facts
from bench.log_stage import SETTINGS, Stage
from hindcast.core.errors import BrokerUnreachable
from hindcast.events.envelope import Record
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.port import Expectation
from hindcast.events.log.publisher import Publisher

ROLES = ("actor", "judge")
"""Who appends at the same time: steps, starts and ends; verdicts."""
ACK_S = 60.0


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """What one measurement of ours appended."""

    events: int
    batches: int
    content_bytes: int

    @property
    def event_bytes(self) -> float:
        """Mean size of an event."""
        return self.content_bytes / self.events

    @property
    def batch_bytes(self) -> float:
        """Mean size of a batch."""
        return self.content_bytes / self.batches


class Noting:
    """A log that remembers which batches were appended to it."""

    def __init__(self, log: JetStreamLog) -> None:
        self.batches: list[Sequence[Record]] = []
        self._log = log

    @property
    def run(self) -> str:
        """As the log says."""
        return self._log.run

    async def append(self, batch: Sequence[Record], *, expect: Expectation | None = None) -> list[int]:
        """Through to the log."""
        self.batches.append(batch)
        return await self._log.append(batch, expect=expect)

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


class Appending:
    """Both measurements of one mixture of facts; each goes to a new log."""

    def __init__(self, stage: Stage, *, groups: int) -> None:
        self._stage = stage
        self._lanes: dict[str, list[Said]] = {role: [] for role in ROLES}
        for number in range(groups):
            for said in group_facts(number):
                if said.role in self._lanes:
                    self._lanes[said.role].append(said)
        self._batches: dict[str, list[Sequence[Record]]] = {}
        self.events = sum(map(len, self._lanes.values()))

    async def ours(self) -> float:
        """Events per second."""
        run = await self._stage.new_run()
        logs = {role: Noting(await self._stage.log(run, role)) for role in ROLES}
        with self._stage.timing("append: ours", self.events) as timing:
            async with asyncio.TaskGroup() as group:
                for role, log in logs.items():
                    group.create_task(_publish(log, role, self._lanes[role]))
        self._batches = {role: log.batches for role, log in logs.items()}
        await self._check(run)
        return timing.per_s

    async def raw(self) -> float:
        """Events per second, without ids; `ours` must have been measured before."""
        return await self._raw("append: raw", with_ids=False)

    async def raw_with_ids(self) -> float:
        """Like `raw`, with the ids by which the broker knows repeated events."""
        return await self._raw("append: raw with ids", with_ids=True)

    async def _raw(self, name: str, *, with_ids: bool) -> float:
        run = await self._stage.new_run()
        clients = {role: await self._stage.plain(role) for role in ROLES}
        prepared = {role: _prepare(batches, run, role, with_ids) for role, batches in self._batches.items()}
        with self._stage.timing(name, self.events) as timing:
            async with asyncio.TaskGroup() as group:
                for role, messages in prepared.items():
                    group.create_task(_send(clients[role], messages))
        await self._check(run)
        return timing.per_s

    @property
    def appended(self) -> Appended:
        """What ours appended last."""
        batches = [batch for lane in self._batches.values() for batch in lane]
        size = sum(len(record.data) for batch in batches for record in batch)
        return Appended(events=self.events, batches=len(batches), content_bytes=size)

    async def _check(self, run: str) -> None:
        # raw events do not open as a log
        log = JetStreamLog(await self._stage.connection("reader"), run, SETTINGS)
        last = (await log.identity()).last
        assert last == self.events, f"{last} of {self.events} events are in the log"


async def _publish(log: Noting, role: str, facts: Sequence[Said]) -> None:
    async with Publisher(log, producer=f"{role}.1", code_rev="bench", settings=SETTINGS) as publisher:  # type: ignore[arg-type]
        for said in facts:
            await publisher.publish(said.fact, entity=said.entity, correlation=said.entity)
        await publisher.commit()


class _Message(msgspec.Struct, frozen=True):
    subject: str
    content: bytes
    headers: dict[str, str]


def _prepare(
    batches: Sequence[Sequence[Record]], run: str, role: str, with_ids: bool
) -> list[list[_Message]]:
    prepared = []
    for number, batch in enumerate(batches):
        messages = []
        for place, record in enumerate(batch, 1):
            subject = f"run.{run}.{record.subject.split('.', 2)[2]}"
            headers = {"Nats-Batch-Id": f"{run}-{role}-{number}", "Nats-Batch-Sequence": str(place)}
            if with_ids:
                headers["Nats-Msg-Id"] = record.id
            messages.append(_Message(subject, record.data, headers))
        messages[-1].headers["Nats-Batch-Commit"] = "1"
        prepared.append(messages)
    return prepared


async def _send(client: object, batches: Sequence[Sequence[_Message]]) -> None:
    for messages in batches:
        for one in messages[:-1]:
            await client.publish(one.subject, one.content, headers=one.headers)  # type: ignore[attr-defined]
        last = messages[-1]
        reply = await client.request(  # type: ignore[attr-defined]
            last.subject, last.content, headers=last.headers, timeout=ACK_S
        )
        answer = json.loads(reply.data)
        if "error" in answer:
            raise BrokerUnreachable(f"the broker refused a raw batch: {answer['error']}")
