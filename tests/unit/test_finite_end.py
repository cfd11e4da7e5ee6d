"""The end of a finite run: recorded, and nothing undone that people did to the run meanwhile."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from hindcast.app.runs.open_log import resize_log
from hindcast.app.system.progress import Progress
from hindcast.app.system.start import _finish
from hindcast.events.catalogue import ControlRequested, RunFinished, RunStarted
from hindcast.events.catalogue.operation import EVALUATE
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


@pytest.mark.parametrize(
    ("stopped", "why"), [(True, "before the stop"), (False, "within evaluation.final_wait_s = 1 s")]
)
async def test_a_last_policy_that_could_not_be_evaluated_is_named_in_the_reason_of_the_end(
    tmp_path: Path, stopped: bool, why: str
) -> None:
    first, *others = a_run(1, groups=1)
    assert isinstance(first.fact, RunStarted)
    settings = first.fact.settings | {"evaluation": {"every": 1, "final_wait_s": 1.0}}
    facts = [first._replace(fact=msgspec.structs.replace(first.fact, settings=settings)), *others]
    home = await make_home(tmp_path / "home", facts)
    stop = asyncio.Event()
    if stopped:
        stop.set()
    async with asyncio.timeout(30):
        await _finish(home, Progress(position=len(facts)), "updates=3", say=print, stop=stop)
    async with home.connect_log() as log:
        *_, asked, over = await log.read(after=(await log.identity()).last - 2, limit=2)
    drain, finished = decode(asked), decode(over)
    assert drain is not None
    assert isinstance(drain.fact, ControlRequested)
    assert drain.fact.arguments == {EVALUATE: True}
    assert finished is not None
    assert isinstance(finished.fact, RunFinished)
    assert finished.fact.reason == f"updates=3; its last policy was not evaluated {why}"
