"""The guide docs/your-site.md, run as written on a small site of somebody else's: its files and commands, in their order."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from notes_site import PASSWORD, RESET_KEY, serving
from system import COMMAND, ROOT
from typer.testing import CliRunner

from app.cli import app

GUIDE = ROOT / "docs" / "your-site.md"
SITE = "http://127.0.0.1:8917"
"""Where the guide's site is; the test has it elsewhere."""
COMMAND_S = 400.0
PARTS = re.compile(r"Save as `([\w.-]+)`:\n\n```toml\n(.*?)```|```bash\n(.*?)```", re.DOTALL)


def parts(text: str) -> list[tuple[str, str]]:
    """Files as (name, content), commands as ("", line)."""
    found: list[tuple[str, str]] = []
    for name, content, commands in PARTS.findall(text):
        found += [(name, content)] if name else [("", line) for line in commands.splitlines()]
    return found


class Reader:
    """Somebody who does what the guide says."""

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


def test_the_guide_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path, monkeypatch)
    said: dict[str, str] = {}
    with serving() as (site, notes):
        for name, content in parts(GUIDE.read_text().replace(SITE, site)):
            if name:
                (tmp_path / name).write_text(content)
            else:
                said[content.replace(site, SITE)] = reader.run(content)
        assert notes.logins > 5
        assert notes.resets > 5
    evaluations = [text for line, text in said.items() if line.startswith("hindcast eval")]
    assert len(evaluations) == 2
    for text in evaluations:
        assert "0 without a verdict" in text
        assert "did not begin like" not in text
    assert "n=2" in evaluations[0]
    assert "n=3" in evaluations[1]
    recordings = [text for line, text in said.items() if line.startswith("hindcast record")]
    assert len(recordings) == 3
    assert all("By its checks: success" in text for text in recordings)
    assert "3 of 3 episodes replayed alike" in said["hindcast replay steps notes --all --trust-tasks"]
    assert "no defects" in said["hindcast audit notes"]
    spilled = [
        str(path)
        for path in tmp_path.rglob("*")
        if path.is_file()
        for secret in (PASSWORD, RESET_KEY)
        if secret.encode() in path.read_bytes()
    ]
    assert not spilled
