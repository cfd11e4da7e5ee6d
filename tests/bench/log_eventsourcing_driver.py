"""Runs in the environment of the peer `eventsourcing` and knows nothing of ours.

    python log_eventsourcing_driver.py insert|fill|replay FOLDER EVENTS  ->  one JSON document

Episodes are aggregates, as its manual shows them; a step carries the same fields as ours, packed arrays through a
transcoding of its own. `insert`: each event is saved by itself, so each is one durable transaction. `fill`: the same
events, whole episodes at a time, as material for `replay`, which selects all notifications in pages, decodes them and
applies each to its aggregate.
"""

import base64
import json
import os
import random
import sys
import time
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from eventsourcing.application import Application  # type: ignore[import-not-found]
from eventsourcing.domain import Aggregate, event  # type: ignore[import-not-found]
from eventsourcing.persistence import Transcoder, Transcoding  # type: ignore[import-not-found]

STEPS = 8
EVENTS = STEPS + 2
"""Of an episode: begun, steps, ended."""
TOKENS = 64
PROMPT_TOKENS = 32
TOKEN_BYTES = 4
PAGE = 1000


class Episode(Aggregate):  # type: ignore[misc]
    """An episode, built from its events."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps: list[bytes] = []
        self.answer: str | None = None

    @staticmethod
    def create_id(name: str) -> UUID:
        """Its id follows from its name."""
        return uuid5(NAMESPACE_URL, name)

    @event("StepTaken")  # type: ignore[untyped-decorator]
    def take(
        self,
        index: int,
        observation_digest: str,
        observation: dict[str, Any],
        url: str,
        world_ordinal: int,
        prompt_ids: bytes,
        action_ids: bytes,
        logprobs: bytes,
        versions: bytes,
        sampling: dict[str, Any],
        prompt_truncated: bool,
        answer: str,
        action: dict[str, Any],
        result: str,
        detail: str,
        observe_ms: float,
        generate_ms: float,
        act_ms: float,
    ) -> None:
        """One more step."""
        self.steps.append(action_ids)

    @event("Ended")  # type: ignore[untyped-decorator]
    def end(self, answer: str) -> None:
        """The last event."""
        self.answer = answer
        self.steps = []


class BytesAsText(Transcoding):  # type: ignore[misc]
    """Bytes in its JSON."""

    type = bytes
    name = "bytes"

    def encode(self, obj: bytes) -> str:
        """To base64."""
        return base64.b64encode(obj).decode()

    def decode(self, data: str) -> bytes:
        """From base64."""
        return base64.b64decode(data)


class Episodes(Application):  # type: ignore[misc]
    """The application that keeps them."""

    def register_transcodings(self, transcoder: Transcoder) -> None:
        """Its own, and bytes."""
        super().register_transcodings(transcoder)
        transcoder.register(BytesAsText())


def opened(folder: str, name: str) -> Episodes:
    """An application on an SQLite file."""
    environment = {
        "PERSISTENCE_MODULE": "eventsourcing.sqlite",
        "SQLITE_DBNAME": os.path.join(folder, name),
    }
    return Episodes(env=environment)


def step(index: int) -> dict[str, Any]:
    """What a step carries; the same as `log_facts` has."""
    return {
        "index": index,
        "observation_digest": random.randbytes(32).hex(),
        "observation": {"sha256": random.randbytes(32).hex(), "size": 4096},
        "url": f"http://127.0.0.1/article/{random.randrange(400)}",
        "world_ordinal": index,
        "prompt_ids": random.randbytes(PROMPT_TOKENS * TOKEN_BYTES),
        "action_ids": random.randbytes(TOKENS * TOKEN_BYTES),
        "logprobs": random.randbytes(TOKENS * TOKEN_BYTES),
        "versions": bytes(TOKENS * TOKEN_BYTES),
        "sampling": {"temperature": 1.0, "max_tokens": TOKENS, "seed": random.getrandbits(62)},
        "prompt_truncated": False,
        "answer": 'do(action="Click", element="17")',
        "action": {"name": "Click", "element": 17},
        "result": "ok",
        "detail": "",
        "observe_ms": 11.25,
        "generate_ms": 40.5,
        "act_ms": 8.75,
    }


def write(application: Episodes, episodes: int, *, each: bool, name: str) -> None:
    """Save so many episodes, each event or each episode by itself."""
    for number in range(episodes):
        episode = Episode(name=f"{name} {number}")
        if each:
            application.save(episode)
        for index in range(STEPS):
            episode.take(**step(index))
            if each:
                application.save(episode)
        episode.end(answer=str(number))
        application.save(episode)


def replay(application: Episodes) -> int:
    """Select, decode and apply everything; how many events."""
    episodes: dict[UUID, Episode | None] = {}
    start, count = 1, 0
    while page := application.recorder.select_notifications(start, PAGE):
        for notification in page:
            decoded = application.mapper.to_domain_event(notification)
            episodes[decoded.originator_id] = decoded.mutate(episodes.get(decoded.originator_id))
            count += 1
        start = page[-1].id + 1
    return count


def main() -> None:
    """See the module."""
    mode, folder, events = sys.argv[1], sys.argv[2], int(sys.argv[3])
    application = opened(folder, "inserted.sqlite" if mode == "insert" else "replayed.sqlite")
    cpu_s, began = time.process_time(), time.perf_counter()
    if mode == "replay":
        count = replay(application)
    else:
        episodes = max(1, events // EVENTS)
        count = episodes * EVENTS
        write(application, episodes, each=mode == "insert", name=f"{mode} {time.time_ns()}")
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    found = {}
    with application.recorder.datastore.transaction(commit=False) as cursor:
        for pragma in ("synchronous", "journal_mode"):
            cursor.execute(f"PRAGMA {pragma}")
            found[pragma] = cursor.fetchone()[0]
        cursor.execute("SELECT avg(length(state)) FROM stored_events")
        found["event_bytes"] = cursor.fetchone()[0]
    json.dump(
        {
            "events": count,
            "events_per_s": count / seconds,
            "cpu_us": cpu_s / count * 1_000_000,
            **found,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
