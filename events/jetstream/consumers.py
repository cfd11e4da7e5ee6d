"""Readers of a run's stream as the broker knows them: followers and work queues, with their positions.

Work queues are durable consumers. Followers report how far they have read (`stream_tail`) in a small stream (`POSITIONS`),
which keeps the last report of each for a minute. The list is for people, and for the archiver, which keeps in the stream
what a follower has still to read. Training decisions never depend on it: positions in the broker go back when it is killed.
"""

from typing import Any

import msgspec

from hindcast.events.jetstream.api import NANOSECONDS, STREAM_NOT_FOUND, ApiError, StreamApi
from hindcast.events.jetstream.stream_tail import KEPT_S

POSITIONS = "READING"
"""Stream of followers' positions, by run, role and reader."""


class BrokerConsumer(msgspec.Struct, frozen=True, kw_only=True):
    """A reader of the stream, as the broker knows it."""

    name: str
    """Name of a work queue, or `<role>-<reader>` of a follower."""
    role: str = ""
    """Role of a follower; empty for any other reader."""
    queue: bool
    """Whether it is a work queue, which acknowledges its events."""
    handed: int
    """Position of the last event delivered or read; 0 for none."""
    waiting: int
    """Number of a queue's events that are not delivered yet."""
    in_work: int
    """Number of a queue's events that are delivered and not acknowledged."""
    oldest: int | None
    """Position of a queue's first unfinished event; None if there is none."""


async def make_positions(api: StreamApi) -> None:
    """Make the stream of followers' positions unless it exists (role `admin`)."""
    config = {
        "name": POSITIONS,
        "subjects": ["reading.>"],
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "max_msgs_per_subject": 1,
        "max_age": int(KEPT_S * NANOSECONDS),
        "max_bytes": 1024 * 1024,
        "max_msg_size": 1024,
        "allow_direct": True,
        "num_replicas": 1,
    }
    await StreamApi(api.connection, POSITIONS, bound_s=api.bound_s).call("STREAM.CREATE", config)


async def list_served(api: StreamApi, run: str) -> list[BrokerConsumer]:
    """List all readers of the stream, sorted by name."""
    infos: list[dict[str, Any]] = []
    while True:
        answer = await api.call("CONSUMER.LIST", {"offset": len(infos)})
        infos += answer["consumers"] or []
        if not answer["consumers"] or len(infos) >= int(answer["total"]):
            break
    consumers = [await _served(api, info) for info in infos] + await _followers(api, run)
    return sorted(consumers, key=lambda consumer: consumer.name)


async def _followers(api: StreamApi, run: str) -> list[BrokerConsumer]:
    positions = StreamApi(api.connection, POSITIONS, bound_s=api.bound_s)
    try:
        await positions.call("STREAM.INFO")
    except ApiError as error:
        if error.code != STREAM_NOT_FOUND:
            raise
        return []  # an older run without this stream
    consumers = []
    for stored in await positions.last_under_each(f"reading.{run}.>"):
        _, _, role, reader = stored.subject.split(".")
        if stored.data.isdigit() and len(stored.data) < MOST_DIGITS:
            consumers.append(
                BrokerConsumer(
                    name=f"{role}-{reader}",
                    role=role,
                    queue=False,
                    handed=int(stored.data),
                    waiting=0,
                    in_work=0,
                    oldest=None,
                )
            )
    return consumers


MOST_DIGITS = 19
"""A position is below 10 ** 18."""


async def _served(api: StreamApi, info: dict[str, Any]) -> BrokerConsumer:
    queue = info["config"]["ack_policy"] == "explicit"
    waiting, in_work = int(info["num_pending"]), int(info["num_ack_pending"])
    oldest = None
    if queue and waiting + in_work:
        after = {
            "seq": int(info["ack_floor"]["stream_seq"]) + 1,
            "next_by_subj": info["config"].get("filter_subject") or ">",
        }
        first_waiting = await api.first_under(after)
        oldest = first_waiting.position if first_waiting else None
    return BrokerConsumer(
        name=str(info["name"]),
        queue=queue,
        handed=int(info["delivered"]["stream_seq"]),
        waiting=waiting if queue else 0,
        in_work=in_work,
        oldest=oldest,
    )
