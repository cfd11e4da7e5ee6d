"""A benchmark measures the source tree that it belongs to, wherever it starts a system."""

import os
import subprocess
from pathlib import Path

from bench.command import hindcast


def test_the_command_line_of_this_tree_is_started_and_no_other(tmp_path: Path) -> None:
    """Another `app` lies in the folder and on the path, as an editable install of another clone would."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "cli.py").write_text("def main(): print('another')")
    done = subprocess.run(
        hindcast("start", "--help"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.startswith("Usage: hindcast start ")
