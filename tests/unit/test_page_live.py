"""What tells an open page that there is something new to show: the log's position, and whether the system goes on."""

from types import SimpleNamespace
from typing import Any

import pytest

from hindcast.app.page import runs as live
from hindcast.app.page.index_builds import IDLE, IndexBuild


async def test_a_page_is_told_of_a_new_position_and_of_a_run_that_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now: dict[str, Any] = {"position": 7, "going_on": True, "indexing": IDLE}
    monkeypatch.setattr(live, "LIVE_POLL_S", 0.0)
    run: Any = SimpleNamespace(
        handle=SimpleNamespace(name="tale", is_running=lambda: now["going_on"]),
        model=SimpleNamespace(position=lambda: now["position"]),
    )
    indexing: Any = SimpleNamespace(state=lambda name: now["indexing"])
    looks = live.LivePositions(indexing)
    told = [await looks.shown(run)]
    for change in ({"position": 8}, {"going_on": False}, {}, {"going_on": True}):
        now |= change
        told.append(await looks.shown(run))
    assert told == ["7", "8", "8 at rest", "8 at rest", "8"]
    assert told[2] == live.mark(8, going_on=False, indexing=IDLE), "as the page itself names what it shows"
    now["indexing"] = IndexBuild(5, True, "")
    assert await looks.shown(run) == "8, indexing at 5"
