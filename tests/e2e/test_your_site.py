"""The guide docs/your-site.md, run as written on a small site of somebody else's: its files and commands, in their order."""

from pathlib import Path

import pytest

from processes.system import ROOT
from servers.notes_site import PASSWORD, RESET_KEY, serving
from stories.guide_reader import Reader, parts

pytestmark = [pytest.mark.broker, pytest.mark.browser]

GUIDE = ROOT / "docs" / "your-site.md"
SITE = "http://127.0.0.1:8917"
"""Where the guide's site is; the test has it elsewhere."""


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
