"""The run in Trackio: project TRACKIO_PROJECT; files are in TRACKIO_DIR. Needs `pip install trackio`.

A row has the position of its event as step, so a restart continues after the last row. `trackio show` draws over any column.
"""

import os
from typing import Any

import trackio
from trackio.sqlite_storage import SQLiteStorage

from hindcast.app.attach.trackers import TrackerBridge, TrackerEntry

PROJECT = os.environ.get("TRACKIO_PROJECT", "hindcast")


class TrackioTracker:
    """A run of Trackio. Its name is the id, because Trackio resumes runs by their names."""

    def __init__(self, _: str, run_id: str, settings: dict[str, Any]) -> None:
        self.run = trackio.init(
            PROJECT, name=run_id, config=settings, resume="allow", auto_log_cpu=False, auto_log_gpu=False
        )
        self.close = self.run.finish
        self.last_position = SQLiteStorage.get_max_step_for_run(PROJECT, run_id) or 0

    def add(self, entry: TrackerEntry) -> None:
        """Log a row; raise alerts."""
        row: dict[str, Any] = {**entry.row()}
        if entry.episodes:
            row["episodes"] = trackio.Table(data=entry.episodes)
        self.run.log(row, step=entry.position)
        for incident in entry.incidents:
            self.run.alert(incident.kind, incident.text, step=entry.position)


consumer = TrackerBridge("trackio", TrackioTracker)
