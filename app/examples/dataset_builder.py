"""Successful episodes as chats in DATASET_FILE (JSONL), each once, no evaluations; the first sure verdict settles one."""

import json
import os

from sqlalchemy import Connection, text

from hindcast.api import Recorded
from hindcast.app.attach.lines import append_line
from hindcast.app.exports.chat import messages_of, page_text
from hindcast.events import catalogue as ev

BEGIN, FORGET = "INSERT INTO turns VALUES (:of, 0, '', '')", "DELETE FROM turns WHERE episode = :of"
TAKE = "INSERT INTO turns SELECT :of, :at, :page, :said FROM turns WHERE episode = :of AND at = 0"
CHAT = "SELECT page, said FROM turns WHERE episode = :of AND at > 0 ORDER BY at"


def prepare(db: Connection) -> None:
    """Make the table, before the first event."""
    db.execute(text("CREATE TABLE IF NOT EXISTS turns (episode TEXT, at BIGINT, page TEXT, said TEXT)"))


def consumer(event: Recorded, db: Connection) -> None:
    """Keep pages and answers of an episode; write them when a judge says success."""
    match event.fact:
        case ev.EpisodeRequested(episode=of, origin="online" | "demonstration"):
            db.execute(text(BEGIN), {"of": of})
        case ev.EpisodeStarted(episode=of, instruction=task):
            db.execute(text(TAKE), {"of": of, "at": event.position, "page": task, "said": ""})
        case ev.StepTaken(episode=of, answer=said, observation=ref):
            read = page_text(event.envelope.run, ref)
            db.execute(text(TAKE), {"of": of, "at": event.position, "page": read, "said": said})
        case ev.EpisodeAbandoned(episode=of) | ev.EpisodeCancelled(episode=of):
            db.execute(text(FORGET), {"of": of})
        case ev.EpisodeJudged(episode=of, judgment=verdict) if verdict.outcome != "undecided":
            begun, *turns = [tuple(row) for row in db.execute(text(CHAT), {"of": of})] or [("", "")]
            if turns and verdict.outcome == "success":
                chat = {"id": of, "messages": messages_of(begun[0], turns)}
                append_line(db, os.environ.get("DATASET_FILE", "dataset.jsonl"), json.dumps(chat))
            db.execute(text(FORGET), {"of": of})
