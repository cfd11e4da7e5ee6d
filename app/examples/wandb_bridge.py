"""The run in Weights & Biases: WANDB_PROJECT and WANDB_MODE are its own variables. Needs `pip install wandb`.

The W&B run has our run's name and resumes after a restart; a row that is repeated after a crash has the same `position`.
"""

from functools import cache
from typing import Any

import wandb
from sqlalchemy import Connection

from hindcast.api import Recorded
from hindcast.events.catalogue import EpisodeJudged, RunStarted, UpdateApplied


@cache
def board(run: str) -> Any:
    """The W&B run; its charts are drawn over `update` or `position`."""
    made = wandb.init(id=run, name=run, resume="allow")
    made.define_metric("update/*", step_metric="update")
    made.define_metric("episode/*", step_metric="position")
    return made


def consumer(event: Recorded, _: Connection) -> None:
    """The settings, and a row for each verdict and each update of the policy; nothing is kept here."""
    to = board(event.envelope.run)
    match event.fact:
        case RunStarted(settings=settings, recipe=recipe):
            to.config.update({**settings, "recipe": recipe}, allow_val_change=True)
        case EpisodeJudged(judgment=said, judge=judge) if said.outcome != "undecided":
            to.log({"position": event.position, f"episode/{judge.name}": said.reward})
        case UpdateApplied(model="policy", metrics=metrics, update=update):
            told = {f"update/{name}": value for name, value in metrics.items()}
            to.log({"position": event.position, "update": update, **told})
