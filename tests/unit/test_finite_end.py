"""The end of a finite run: recorded, and nothing undone that people did to the run meanwhile."""

import asyncio
from pathlib import Path

from hindcast.app.runs.open_log import resize_log
from hindcast.app.system.progress import Progress
from hindcast.app.system.start import _finish
from hindcast.events.catalogue import RunFinished
from hindcast.events.codec import decode
from stories.recorded_home import make_home
from stories.synthetic_run import a_run

LIMIT = 16 << 30


async def test_the_end_of_a_run_leaves_a_log_the_room_it_was_given_while_the_run_went_on(
    tmp_path: Path,
) -> None:
    facts = a_run(1, groups=1)
    at_the_start = await make_home(tmp_path / "home", facts)
    assert at_the_start.settings.log.max_bytes != LIMIT
    await resize_log(at_the_start, LIMIT)
    async with asyncio.timeout(30):
        await _finish(
            at_the_start,
            Progress(position=len(facts), updates=3),
            "updates=3",
            say=print,
            stop=asyncio.Event(),
        )
    async with at_the_start.connect_log() as log:
        assert (await log.fill()).limit_bytes == LIMIT
        (last,) = await log.read(after=(await log.identity()).last - 1, limit=1)
        recorded = decode(last)
    assert recorded is not None
    assert isinstance(recorded.fact, RunFinished)
    assert recorded.fact.updates == 3
