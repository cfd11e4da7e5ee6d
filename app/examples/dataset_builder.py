"""Successful episodes as chats in DATASET_FILE (JSONL), each once, evaluations left out; what a crash leaves is cut off."""

import json
import os
from pathlib import Path

from sqlalchemy import Connection, text

from app.attach import Recorded
from events.catalogue import EpisodeJudged, EpisodeRequested, EpisodeStarted, StepTaken

BEGIN, TELL = "INSERT INTO turn VALUES (:of, -1, '')", "UPDATE turn SET said = :said WHERE episode = :of"
TAKE = "INSERT INTO turn SELECT :of, :at, :said WHERE EXISTS (SELECT 1 FROM turn WHERE episode = :of)"
TURNS = "SELECT number, said FROM turn WHERE episode = :of ORDER BY number"


def prepare(db: Connection) -> None:
    """Make the tables, before the first event."""
    db.execute(text("CREATE TABLE IF NOT EXISTS turn (episode TEXT, number INT, said TEXT)"))
    db.execute(text("CREATE TABLE IF NOT EXISTS written (size BIGINT)"))


def consumer(event: Recorded, db: Connection) -> None:
    """Keep the turns of an episode; write them when a judge says success."""
    match event.fact:
        case EpisodeRequested(episode=of, origin="online" | "demonstration"):
            db.execute(text(BEGIN), {"of": of})
        case EpisodeStarted(episode=of, instruction=said):
            db.execute(text(TELL), {"of": of, "said": said})
        case StepTaken(episode=of, index=at, answer=said):
            db.execute(text(TAKE), {"of": of, "at": at, "said": said})
        case EpisodeJudged(episode=of, judgment=said) if said.outcome == "success":
            turns = db.execute(text(TURNS), {"of": of}).all()
            chat = [{"role": "assistant" if at >= 0 else "user", "content": words} for at, words in turns]
            line = json.dumps({"id": of, "messages": chat}) + "\n" if chat else ""
            with Path(os.environ.get("DATASET_FILE", "dataset.jsonl")).open("a") as file:
                file.truncate(db.scalar(text("SELECT max(size) FROM written")) or 0)
                file.write(line)
                db.execute(text("INSERT INTO written VALUES (:size)"), {"size": file.tell()})
            db.execute(text("DELETE FROM turn WHERE episode = :of"), {"of": of})
