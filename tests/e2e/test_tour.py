"""The tour docs/tour.md, taken as written: a first run, what can be asked of it, a consumer, a fork."""

from pathlib import Path

import pytest
from guide_reader import Reader, parts
from system import ROOT

SMALL = (
    ("CURRICULUM", "FAMILIES", '["miniwob/click-tab-2", "store/find_rating"]'),
    ("CURRICULUM", "GROUP_SIZE", "4"),
    ("CURRICULUM", "MAX_RUNNING", "8"),
    ("ACTORS", "TEMPERATURE", "1.4"),
    ("LEARNER", "GROUP_BATCH", "1"),
)
"""Both of the tour's environments, and groups that differ soon."""


@pytest.mark.slow
def test_the_tour_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path, monkeypatch)
    # what is typed and shown is as on the page; the episodes that an update rests on are fewer
    for section, key, value in SMALL:
        monkeypatch.setenv(f"HINDCAST__{section}__{key}", value)
    said = {line: reader.run(line) for _, line in parts((ROOT / "docs" / "tour.md").read_text())}
    assert "2 updates" in said["hindcast start first --until updates=2"]
    assert "identical" in said["hindcast verify first"]
    assert "update 2" in said["hindcast lineage update 2 first"]
    assert "success_watcher" in said["hindcast consumer list first"]
    assert "learner.kl_coefficient" in said["hindcast run compare first colder"]
