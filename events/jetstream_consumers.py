"""What the broker knows of those who read a run's stream: tails and work queues, and how far each was served.

For showing to people. Nothing decides by it: positions that the broker holds go backwards when it is killed.
"""

from typing import Any

import msgspec

from events.jetstream_api import StreamApi


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """One reader as the broker sees it."""

    name: str
    """`tail-<role>-…`, a work queue's name, or whatever somebody else's tool chose."""
    queue: bool
    """Whether it acknowledges what it has done."""
    handed: int
    """Position of the last event handed out; 0 for none."""
    waiting: int
    """Events of a queue that were not handed out yet."""
    in_work: int
    """Events of a queue that were handed out and not acknowledged."""
    oldest: int | None
    """Position of the first event of a queue that is not done; None when all are."""

    @property
    def role(self) -> str:
        """Whose tail it is; empty for any other reader."""
        return self.name.split("-")[1] if self.name.startswith("tail-") else ""


async def list_served(api: StreamApi) -> list[Served]:
    """Every reader of the stream, in the order of their names."""
    infos: list[dict[str, Any]] = []
    while True:
        answer = await api.call("CONSUMER.LIST", {"offset": len(infos)})
        infos += answer["consumers"] or []
        if not answer["consumers"] or len(infos) >= int(answer["total"]):
            break
    return [await _served(api, info) for info in sorted(infos, key=lambda info: str(info["name"]))]


async def _served(api: StreamApi, info: dict[str, Any]) -> Served:
    queue = info["config"]["ack_policy"] == "explicit"
    waiting, in_work = int(info["num_pending"]), int(info["num_ack_pending"])
    oldest = None
    if queue and waiting + in_work:
        after = {
            "seq": int(info["ack_floor"]["stream_seq"]) + 1,
            "next_by_subj": info["config"].get("filter_subject") or ">",
        }
        found = await api.first_under(after)
        oldest = found.position if found else None
    return Served(
        name=str(info["name"]),
        queue=queue,
        handed=int(info["delivered"]["stream_seq"]),
        waiting=waiting if queue else 0,
        in_work=in_work,
        oldest=oldest,
    )
