"""Somebody who does what a page of the documentation says: its files and commands, in their order."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hindcast.app.cli import app
from processes.system import COMMAND, ROOT

COMMAND_S = 600.0
PARTS = re.compile(r"Save as `([\w.-]+)`:\n\n```toml\n(.*?)```|```bash\n(.*?)```", re.DOTALL)


def parts(text: str) -> list[tuple[str, str]]:
    """Files as (name, content), commands as ("", line)."""
    found: list[tuple[str, str]] = []
    for name, content, commands in PARTS.findall(text):
        found += [(name, content)] if name else [("", line) for line in commands.splitlines()]
    return found


class Reader:
    """In a folder of their own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        monkeypatch.chdir(folder)
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.setenv("HINDCAST_HOME", str(folder / "home"))
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        # a busy machine takes long over a page, and that is not what the guide is about
        monkeypatch.setenv("HINDCAST__ACTORS__PAGE_TIMEOUT_S", "90")

    def run(self, line: str) -> str:
        words = shlex.split(line)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self._monkeypatch.setenv(name, value)
            return ""
        assert words[0] == "hindcast"
        if words[1] == "start":  # it takes over the process's signals
            done = subprocess.run([*COMMAND, *words[1:]], capture_output=True, text=True, timeout=COMMAND_S)
            status, text = done.returncode, done.stdout + done.stderr
        else:
            result = CliRunner().invoke(app, words[1:])
            status, text = result.exit_code, f"{result.output}{result.exception or ''}"
        assert status == 0, f"{line}\n{text}"
        return text
