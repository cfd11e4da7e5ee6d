"""Successful episodes as chats in DATASET_FILE (JSONL), each once, no evaluations; the first sure verdict settles one."""

import json
import os
from pathlib import Path

from sqlalchemy import Connection, text

from hindcast.api import Recorded
from hindcast.events import catalogue as ev

BEGIN, FORGET = "INSERT INTO said VALUES (:of, 0, '')", "DELETE FROM said WHERE episode = :of"
TAKE = "INSERT INTO said SELECT :of, :at, :said FROM said WHERE episode = :of AND position = 0"
CHAT = "SELECT content FROM said WHERE episode = :of AND position > 0 ORDER BY position"


def prepare(db: Connection) -> None:
    """Make the tables, before the first event."""
    db.execute(text("CREATE TABLE IF NOT EXISTS said (episode TEXT, position BIGINT, content TEXT)"))
    db.execute(text("CREATE TABLE IF NOT EXISTS written (size BIGINT)"))


def consumer(event: Recorded, db: Connection) -> None:
    """Keep what is said in an episode; write it when a judge says success. What a crash left is cut off."""
    match event.fact:
        case ev.EpisodeRequested(episode=of, origin="online" | "demonstration"):
            db.execute(text(BEGIN), {"of": of})
        case ev.EpisodeStarted(episode=of, instruction=said) | ev.StepTaken(episode=of, answer=said):
            db.execute(text(TAKE), {"of": of, "at": event.position, "said": said})
        case ev.EpisodeAbandoned(episode=of) | ev.EpisodeCancelled(episode=of):
            db.execute(text(FORGET), {"of": of})
        case ev.EpisodeJudged(episode=of, judgment=said) if said.outcome != "undecided":
            turns = enumerate(db.scalars(text(CHAT), {"of": of}).all())
            chat = [{"role": "assistant" if at else "user", "content": turn} for at, turn in turns]
            if chat and said.outcome == "success":
                with Path(os.environ.get("DATASET_FILE", "dataset.jsonl")).open("a") as file:
                    file.truncate(db.scalar(text("SELECT max(size) FROM written")) or 0)
                    file.write(json.dumps({"id": of, "messages": chat}) + "\n")
                    db.execute(text("INSERT INTO written VALUES (:size)"), {"size": file.tell()})
            db.execute(text(FORGET), {"of": of})
