"""`hindcast bench log` as one measurement: appending, reading, the peer, the disk, the tail."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.comparison import Comparison, compare
from bench.log_append import Appending
from bench.log_disk import synced_writes_per_s
from bench.log_facts import STEPS
from bench.log_peer import NAME, VERSION, EventSourcing
from bench.log_read import Latency, Reading, tail_latency
from bench.log_stage import SETTINGS, stage

EVENTS_PER_GROUP = 8 * (STEPS + 3)
"""Appended per group of episodes, about."""
LATENCY_EVENTS = 200


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured."""

    appended: int = 8000
    """Events that ours and raw append, each time."""
    read: int = 30_000
    """Events in the log that is read."""
    inserted: int = 200
    """Events that the peer saves one by one, each time."""
    latency: int = LATENCY_EVENTS


class LogReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found."""

    comparisons: tuple[Comparison, ...]
    cpu_us: dict[str, float]
    """Processor time per event, all processes together: what a busy machine does not change much."""
    latency: Latency
    block_bytes: int
    """Mean size of a batch."""
    synced_blocks_per_s: float
    """Blocks of that size that the disk alone writes and syncs, before and after the measurements, the better."""


async def measure_log(
    folder: Path, *, home: Path, sizes: Sizes, repeats: int, said: Callable[[str], None]
) -> LogReport:
    """Measure in `folder`, a new one on the disk in question; `home` keeps the peer's environment."""
    async with stage(folder) as where:
        appending = Appending(where, groups=max(1, sizes.appended // EVENTS_PER_GROUP))
        await appending.ours()
        made = appending.appended
        block_bytes = int(made.batch_bytes)
        synced = synced_writes_per_s(folder, block_bytes=block_bytes)
        peer = EventSourcing(folder / "peer", home=home)
        append_text = (
            f"{made.events} events of {made.event_bytes:.0f} bytes in {made.batches} batches (at most "
            f"{SETTINGS.batch_events}), two writers, sync_interval always"
        )
        comparisons = [
            await compare(
                appending.ours,
                appending.raw,
                figure="durable append",
                unit="events/s",
                peer_name="raw atomic batches",
                goal=0.8,
                repeats=repeats,
                said=said,
                detail=append_text,
            ),
            await compare(
                appending.ours,
                appending.raw_with_ids,
                figure="durable append",
                unit="events/s",
                peer_name="the same with event ids",
                goal=None,
                repeats=repeats,
                said=said,
                detail="what telling repeated events costs the broker, which no writer that repeats can do without",
            ),
            await compare(
                appending.ours,
                lambda: peer.insert(sizes.inserted),
                figure="durable append",
                unit="events/s",
                peer_name=f"{NAME} {VERSION}, one by one",
                goal=5.0,
                repeats=repeats,
                said=said,
                detail="SQLite, write-ahead log, synchronous FULL; the same fields as JSON, packed arrays as base64",
            ),
        ]
        reading = Reading(where)
        await reading.fill(groups=max(1, sizes.read // EVENTS_PER_GROUP))
        await peer.fill(reading.events)
        comparisons += [
            await compare(
                reading.ours,
                reading.raw,
                figure="read, check, fold",
                unit="events/s",
                peer_name="raw ranges",
                goal=0.5,
                repeats=repeats,
                said=said,
                detail=f"{reading.events} events, folded into the learner's replay buffer with its rolling digest; raw: "
                "two overlapping ranges of 500 and a callback that counts",
            ),
            await compare(
                reading.ours,
                peer.replay,
                figure="read, check, fold",
                unit="events/s",
                peer_name=f"{NAME} {VERSION}, replay",
                goal=2.0,
                repeats=repeats,
                said=said,
                detail="all notifications from SQLite in pages of 1000, decoded, applied to their aggregates",
            ),
        ]
        latency = await tail_latency(where, events=sizes.latency)
        synced = max(synced, synced_writes_per_s(folder, block_bytes=block_bytes))
    return LogReport(
        comparisons=tuple(comparisons),
        cpu_us={**where.cpu_us, **peer.cpu_us},
        latency=latency,
        block_bytes=block_bytes,
        synced_blocks_per_s=synced,
    )
