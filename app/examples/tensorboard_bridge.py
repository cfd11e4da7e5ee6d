"""The run as TensorBoard event files, in a folder of its own in TENSORBOARD_FOLDER. Needs `pip install tensorboardX`.

A point that comes again after a crash has the same step and value.
"""

import os
from pathlib import Path
from typing import Any

from tensorboardX import FileWriter
from tensorboardX.summary import scalar, text

from hindcast.app.attach.trackers import SHOWN, TrackerBridge, TrackerEntry


class TensorBoardTracker:
    """A folder of event files, with one file for each start. TensorBoard has no place for settings."""

    last_position = 0

    def __init__(self, _name: str, run_id: str, _settings: dict[str, Any]) -> None:
        self.writer = FileWriter(str(Path(os.environ.get("TENSORBOARD_FOLDER", "tensorboard")) / run_id))
        self.close = self.writer.close

    def add(self, entry: TrackerEntry) -> None:
        """Write points as scalars; episodes and alerts as text."""
        for points in entry.charts:
            for chart, value in points.values.items():
                self.writer.add_summary(scalar(chart, value), points.at, entry.occurred_s)
        texts = [(f"alerts/{one.kind}", one.text) for one in entry.incidents]
        if entry.episodes:
            lines = [SHOWN, ["---"] * len(SHOWN), *(one.values() for one in entry.episodes)]
            cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
            texts.append(("episodes", "\n".join(f"|{'|'.join(line)}|" for line in cells)))
        for name, content in texts:
            self.writer.add_summary(text(name, content), entry.position, entry.occurred_s)
        self.writer.flush()


consumer = TrackerBridge("tensorboard", TensorBoardTracker)
