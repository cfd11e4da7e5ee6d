"""Reading a log from its start: ours, checked and folded, beside raw reads that only count; and how live a tail is.

Ours asserts contiguity, every producer's hash chain, the run's name, sizes and ids, decodes envelope and fact, and folds
all of it into the learner's replay buffer, whose rolling digest covers every byte. Raw is the plain client with two
overlapping ranges of 500 and a callback.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.log_facts import group_facts
from bench.log_stage import SETTINGS, Stage
from hindcast.events.jetstream.accounts import ROLE_API
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import tail_batches
from hindcast.events.subjects import stream_name
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.buffer.state import BufferState

ROLES = ("curriculum", "actor", "judge", "learner")
"""In the order in which their facts about a group stand in the log."""
GROUPS_AT_ONCE = 4
RANGE_EVENTS = 500
RANGE_BYTES = 8 * 1024 * 1024
RANGES_AT_ONCE = 2
PENDING_BYTES = 64 * 1024 * 1024
SILENCE_S = 30.0


class Reading:
    """Both measurements of one log; `fill` first."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._run = ""
        self.events = 0
        self.state = BufferState()
        """What ours folded last."""

    async def fill(self, *, groups: int) -> None:
        """Write the log that is read."""
        self._run = await self._stage.new_run()
        async with AsyncExitStack() as stack:
            publishers = {}
            for role in ROLES:
                log = await self._stage.log(self._run, role)
                publisher = Publisher(log, producer=f"{role}.1", code_rev="bench", settings=SETTINGS)
                publishers[role] = await stack.enter_async_context(publisher)
            for first in range(0, groups, GROUPS_AT_ONCE):
                numbers = range(first, min(first + GROUPS_AT_ONCE, groups))
                facts = [said for number in numbers for said in group_facts(number)]
                for role, publisher in publishers.items():
                    for said in facts:
                        if said.role == role:
                            await publisher.publish(said.fact, entity=said.entity, correlation=said.entity)
                    await publisher.commit()
        self.events = (await (await self._stage.log(self._run, "reader")).identity()).last

    async def ours(self) -> float:
        """Events per second, checked, decoded and folded."""
        log = await self._stage.log(self._run, "learner")
        projection = ReplayBuffer()
        state = projection.initial()
        with self._stage.timing("read: ours", self.events) as timing:
            async with aclosing(tail_batches(log, after=0, strict=True)) as batches:
                async for recordeds, reached in batches:
                    for recorded in recordeds:
                        state = projection.apply(state, recorded)
                    if reached >= self.events:
                        break
        self.state = state
        return timing.per_s

    async def raw(self) -> float:
        """Events per second, counted as they arrive."""
        client = await self._stage.plain("learner")
        ranges = _RawRanges(client, stream_name(self._run), wanted=self.events)
        with self._stage.timing("read: raw", self.events) as timing:
            await ranges.run()
        return timing.per_s


class _RawRanges:
    """The library's fastest way to read that a role has: ranges by position, two of them under way; no checks, no decoding."""

    def __init__(self, client: Client, stream: str, *, wanted: int) -> None:
        self._client = client
        self._subject = f"{ROLE_API}.DIRECT.GET.{stream}"
        self._left = wanted
        self._ended = asyncio.Semaphore(0)

    async def run(self) -> None:
        client, wanted = self._client, self._left
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox, cb=self._count, pending_bytes_limit=PENDING_BYTES)
        async with asyncio.timeout(SILENCE_S):
            for number, first in enumerate(range(1, wanted + 1, RANGE_EVENTS)):
                if number >= RANGES_AT_ONCE:
                    await self._ended.acquire()
                ask = {"seq": first, "batch": min(RANGE_EVENTS, wanted + 1 - first), "max_bytes": RANGE_BYTES}
                await client.publish(self._subject, json.dumps(ask).encode(), reply=inbox)
            while self._left:
                await self._ended.acquire()
        await subscription.unsubscribe()

    async def _count(self, message: Msg) -> None:
        if message.data:
            self._left -= 1
        else:
            self._ended.release()


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long after its acknowledgement an event was in a tailing reader's hands; negative: before it."""

    p50_ms: float
    p99_ms: float
    events: int


async def tail_latency(stage: Stage, *, events: int) -> Latency:
    """One event at a time, each committed, with another connection following the log."""
    run = await stage.new_run()
    facts = [said for said in group_facts(0) if said.role == "actor"]
    acknowledged: dict[int, float] = {}
    seen: dict[int, float] = {}
    log, reader = await stage.log(run, "actor"), await stage.log(run, "learner")

    async def follow() -> None:
        async with aclosing(tail_batches(reader, after=0)) as batches:
            async for recordeds, reached in batches:
                seen.update({recorded.position: time.perf_counter() for recorded in recordeds})
                if reached >= events:
                    return

    async with asyncio.timeout(SILENCE_S + events), asyncio.TaskGroup() as group:
        group.create_task(follow())
        async with Publisher(log, producer="actor.1", code_rev="bench", settings=SETTINGS) as publisher:
            for number in range(events):
                said = facts[number % len(facts)]
                await publisher.publish(said.fact, entity=said.entity)
                acknowledged[await publisher.commit()] = time.perf_counter()
    return _latency([seen[position] - at for position, at in acknowledged.items()])


def _latency(seconds: Sequence[float]) -> Latency:
    ordered = sorted(seconds)
    return Latency(
        p50_ms=1000 * ordered[len(ordered) // 2],
        p99_ms=1000 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        events=len(ordered),
    )
