"""Alerts when success of the last training episodes is surely too low: its whole 95 % interval lies under a threshold."""

import os
import shlex
import subprocess
import sys

from sqlalchemy import Connection, text

from hindcast.api import Recorded
from hindcast.core.rl.statistics import wilson
from hindcast.events.catalogue import EpisodeJudged, EpisodeRequested

EPISODES, UNDER = int(os.environ.get("WATCH_EPISODES", "100")), float(os.environ.get("WATCH_UNDER", "0.2"))
COMMAND = shlex.split(os.environ.get("WATCH_COMMAND", "true"))
"""Such as `curl -d @- https://ntfy.sh/mine`: the message is its standard input. One that fails is tried again."""
LAST = "SELECT won, told FROM tried WHERE at IS NOT NULL ORDER BY at DESC LIMIT :n"


def prepare(db: Connection) -> None:
    """Make the table, before the first event."""
    db.execute(text("CREATE TABLE IF NOT EXISTS tried (name TEXT PRIMARY KEY, won INT, at BIGINT, told INT)"))


def consumer(event: Recorded, db: Connection) -> None:
    """Watch training episodes; alert at most once in WATCH_EPISODES verdicts."""
    match event.fact:
        case EpisodeRequested(origin="online", episode=name):
            db.execute(text("INSERT INTO tried (name) VALUES (:name)"), {"name": name})
        case EpisodeJudged(episode=name, judgment=said) if said.outcome != "undecided":
            row = {"name": name, "won": int(said.outcome == "success"), "at": event.position}
            db.execute(text("UPDATE tried SET won = :won, at = :at WHERE name = :name AND at IS NULL"), row)
            last = db.execute(text(LAST), {"n": EPISODES}).all()
            rate = wilson(sum(one.won for one in last), len(last))
            if len(last) == EPISODES and rate.high < UNDER and not any(one.told for one in last):
                alert = f"success {rate.rate:.0%} [{rate.low:.0%}, {rate.high:.0%}] n={EPISODES}\n"
                sys.stdout.write(alert)
                subprocess.run(COMMAND, input=alert, text=True, timeout=30, check=True)
                db.execute(text("UPDATE tried SET told = 1 WHERE name = :name"), row)
