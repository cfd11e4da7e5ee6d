"""Verdicts and updates as CSV files in CSV_FOLDER (an existing folder), each event exactly once, also after a kill -9.

A file takes part in no transaction, but its length does: what a crash left beyond it is cut off again.
"""

import csv
import os
from pathlib import Path

from sqlalchemy import Connection, text

from hindcast.api import Recorded
from hindcast.events.catalogue import EpisodeJudged, UpdateApplied

HEADS = {
    "verdicts.csv": ("position", "episode", "task", "judge", "outcome", "reward"),
    "updates.csv": ("position", "update", "model", "batch", "duration_ms", "loss", "kl", "staleness_mean"),
}
GROW = "INSERT INTO file VALUES (:name, :size) ON CONFLICT (name) DO UPDATE SET size = :size"


def consumer(event: Recorded, db: Connection) -> None:
    """Append a line for each verdict and each update."""
    match event.fact:
        case EpisodeJudged(episode=episode, task_id=task, judge=judge, judgment=said):
            append("verdicts.csv", (event.position, episode, task, judge.name, said.outcome, said.reward), db)
        case UpdateApplied(metrics=metrics) as fact:
            told = (event.position, fact.update, fact.model, fact.batch, fact.duration_ms)
            append("updates.csv", (*told, *(metrics.get(name) for name in HEADS["updates.csv"][5:])), db)


def append(name: str, row: tuple[object, ...], db: Connection) -> None:
    """Add a line at the length that the transaction knows of, and move that."""
    db.execute(text("CREATE TABLE IF NOT EXISTS file (name TEXT PRIMARY KEY, size BIGINT)"))
    known = db.scalar(text("SELECT size FROM file WHERE name = :name"), {"name": name}) or 0
    folder = Path(os.environ.get("CSV_FOLDER", "."))
    with (folder / name).open("a", newline="", encoding="utf-8") as file:
        file.truncate(known)
        csv.writer(file).writerows([row] if known else [HEADS[name], row])
        db.execute(text(GROW), {"name": name, "size": file.tell()})
