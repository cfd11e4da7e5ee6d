"""The tour docs/tour.md, taken as written: a first run, what can be asked of it, a consumer, a fork."""

import re
from pathlib import Path

import pytest

from processes.system import ROOT
from stories.guide_reader import Reader, parts

pytestmark = [pytest.mark.broker, pytest.mark.browser]


@pytest.mark.slow
@pytest.mark.timeout(1800)  # three runs one after the other, and what is asked of them
def test_the_tour_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path, monkeypatch)
    said = {line: reader.run(line) for _, line in parts((ROOT / "docs" / "tour.md").read_text())}
    assert "8 updates" in said["hindcast start first --until updates=8"]
    assert "identical" in said["hindcast verify first"]
    assert "update 2" in said["hindcast lineage update 2 first"]
    assert "policy 1" in said["hindcast lineage update 2 first"]
    assert "strict 2 judged" in said["hindcast rejudge first --judge strict"]
    assert "success_watcher" in said["hindcast consumer list first"]
    assert "lies inside batch 0" in next(text for line, text in said.items() if " fork " in line)
    compared = said["hindcast run compare first faster"]
    assert "learner.learning_rate" in compared
    assert "No update since" not in compared
    assert re.search(r"^ +2 ", compared, re.MULTILINE), compared
