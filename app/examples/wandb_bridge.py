"""The run in Weights & Biases: WANDB_PROJECT and WANDB_MODE are its own variables. Needs `pip install wandb`.

A row of its history has the position of its event as step. A run that resumes online continues after its last step.
"""

from typing import Any

import wandb

from hindcast.app.attach.trackers import SHOWN, TrackerBridge, TrackerEntry


class WandbTracker:
    """A run of W&B; each chart is drawn over an axis of its own."""

    def __init__(self, name: str, run_id: str, settings: dict[str, Any]) -> None:
        self.run = wandb.init(id=run_id, name=name, config=settings, resume="allow")
        self.close = self.run.finish
        self.last_position = self.run.starting_step - 1
        for axis, charts in (("update", "update/*"), ("version", "held_out/*"), ("position", "success")):
            self.run.define_metric(charts, step_metric=axis)

    def add(self, entry: TrackerEntry) -> None:
        """Log a row of the history; raise alerts."""
        row: dict[str, Any] = {**entry.row()}
        if entry.episodes:
            row["episodes"] = wandb.Table(list(SHOWN), [list(one.values()) for one in entry.episodes])
        self.run.log(row, step=entry.position)
        for incident in entry.incidents:
            self.run.alert(title=incident.kind, text=incident.text)


consumer = TrackerBridge("wandb", WandbTracker)
