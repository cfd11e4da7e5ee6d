"""The run in Weights & Biases: WANDB_PROJECT and WANDB_MODE are its own variables. Needs `pip install wandb`.

The W&B run resumes after a restart. Its id ends in the digest of the first event read, so that runs of one name stay apart. A
row that is repeated after a crash has the same `position`.
"""

from functools import cache
from typing import Any

import wandb
from sqlalchemy import Connection, text

from hindcast.api import Recorded, events
from hindcast.app.attach.curves import points_of


@cache
def board(run: str, log: str) -> Any:
    """The W&B run of a log; each chart is drawn over an axis of its own."""
    made = wandb.init(id=f"{run}-{log}", name=run, resume="allow")
    for axis, charts in (("update", "update/*"), ("version", "held_out/*"), ("position", "episode/*")):
        made.define_metric(charts, step_metric=axis)
    return made


def consumer(event: Recorded, db: Connection) -> None:
    """The settings, and a row for each point of the run's curves."""
    db.execute(text("CREATE TABLE IF NOT EXISTS log (place INT PRIMARY KEY, digest TEXT)"))
    if (log := db.scalar(text("SELECT digest FROM log"))) is None:
        log = event.digest.hex()[:12]
        db.execute(text("INSERT INTO log VALUES (1, :digest)"), {"digest": log})
    to = board(event.envelope.run, str(log))
    if isinstance(event.fact, events.RunStarted):
        settings = {**event.fact.settings, "recipe": event.fact.recipe}
        to.config.update(settings, allow_val_change=True)
    if (points := points_of(event.fact, position=event.position)) is not None:
        to.log({"position": event.position, points.axis: points.at, **points.values})
