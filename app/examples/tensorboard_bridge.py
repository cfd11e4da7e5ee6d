"""The run's curves as TensorBoard event files in TENSORBOARD_FOLDER (`pip install tensorboardX`)."""

import os
from functools import cache

from sqlalchemy import Connection, text
from tensorboardX import FileWriter
from tensorboardX.summary import scalar

from hindcast.api import Recorded
from hindcast.app.attach.curves import points_of
from hindcast.events.catalogue import EpisodeJudged, EpisodeRequested

LAST = (
    "SELECT avg(won) FROM (SELECT won FROM tried WHERE at IS NOT NULL ORDER BY at DESC LIMIT 100) AS newest"
)


@cache
def board(folder: str) -> FileWriter:
    """One file for each start, as TensorBoard wants it."""
    return FileWriter(folder)


def consumer(event: Recorded, db: Connection) -> None:
    """Every point of the curves, and success of the last 100 training episodes by position."""
    to, at_s = board(os.environ.get("TENSORBOARD_FOLDER", "tensorboard")), event.envelope.occurred_ns / 1e9
    db.execute(text("CREATE TABLE IF NOT EXISTS tried (name TEXT PRIMARY KEY, won FLOAT, at BIGINT)"))
    match event.fact:
        case EpisodeRequested(origin="online", episode=name):
            db.execute(text("INSERT INTO tried (name) VALUES (:name)"), {"name": name})
        case EpisodeJudged(episode=name, judgment=said) if said.outcome != "undecided":
            row = {"name": name, "won": float(said.outcome == "success"), "at": event.position}
            db.execute(text("UPDATE tried SET won = :won, at = :at WHERE name = :name AND at IS NULL"), row)
            to.add_summary(scalar("success", db.scalar(text(LAST)) or 0.0), event.position, at_s)
    points = points_of(event.fact, position=event.position)
    if points is not None and points.axis != "position":
        for chart, value in points.values.items():
            to.add_summary(scalar(chart, value), points.at, at_s)
        to.flush()
