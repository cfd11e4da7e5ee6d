"""Opening a run, before anybody works on it."""

from pathlib import Path

import pytest

from hindcast.app.runs.open_log import open_log
from hindcast.storage.blobs.store import UNFINISHED
from stories.recorded_home import make_home

pytestmark = pytest.mark.torch


async def test_what_killed_processes_left_unfinished_is_deleted_when_the_run_is_opened(
    tmp_path: Path,
) -> None:
    handle = await make_home(tmp_path / "home", [])
    kept = handle.blobs.put(b"a page")
    left = handle.folder / "blobs" / UNFINISHED / f"{kept.sha256}.1234abcd"
    left.write_bytes(b"a pa")
    await open_log(handle, None)
    assert not left.exists()
    assert handle.blobs.has(kept)
    async with handle.connect_log("reader") as log:
        assert (await log.identity()).last == 1
