"""Consumers that the tests attach, as their users would write them: each is `attached_consumers:NAME`."""

import os
import time
from pathlib import Path

from sqlalchemy import Connection, text

from hindcast.api import Recorded
from hindcast.core.errors import BlobMissing

POISON = int(os.environ.get("POISON", "0"))
"""Position that `poisoned` refuses."""
NOTE = os.environ.get("NOTE", "")
"""File that `stuck` writes when it is stuck."""
SLOW_S = float(os.environ.get("SLOW_S", "0.002"))
"""How long `slow` takes for each event."""


def prepare(db: Connection) -> None:
    db.execute(text("CREATE TABLE IF NOT EXISTS ledger (position BIGINT)"))


def ledger(event: Recorded, db: Connection) -> None:
    """Writes every position down; without a key, so that one taken twice stands there twice."""
    db.execute(text("INSERT INTO ledger VALUES (:position)"), {"position": event.position})


def slow(event: Recorded, db: Connection) -> None:
    """The same, slowly."""
    ledger(event, db)
    time.sleep(SLOW_S)


def poisoned(event: Recorded, db: Connection) -> None:
    """The same, but for one event that it refuses after it has written."""
    ledger(event, db)
    if event.position == POISON:
        raise KeyError("no such product")


def missing(event: Recorded, db: Connection) -> None:
    """The same, but with an error of ours, as from a blob store that it asks."""
    ledger(event, db)
    if event.position == POISON:
        raise BlobMissing("no such page")


def stuck(event: Recorded, db: Connection) -> None:
    """Takes one event and never comes back."""
    ledger(event, db)
    if event.position == POISON:
        Path(NOTE).write_text("stuck")
        time.sleep(3600)


class Types:
    """A fold: how many events of each type."""

    def initial(self) -> dict[str, int]:
        return {}

    def apply(self, state: dict[str, int], event: Recorded) -> dict[str, int]:
        state[event.envelope.type] = state.get(event.envelope.type, 0) + 1
        if event.position == POISON:
            raise ValueError("refused after it changed the state")
        return state


class Unkept:
    """A fold whose state cannot be kept."""

    def initial(self) -> object:
        return object()

    def apply(self, state: object, event: Recorded) -> object:
        return state


async def asynchronous(event: Recorded, db: Connection) -> None:
    """Not a consumer."""


def of_one(event: Recorded) -> None:
    """Not a consumer."""


number = 7
