"""Limits that do not run while somebody waits for a turn, in virtual time."""

import asyncio

import pytest

from fakes.virtual_time import clock_s, run_virtually
from hindcast.actors.endpoint.rate_limit import RateLimit
from hindcast.actors.episodes.time_limit import limited, uncounted


def test_waiting_for_a_turn_leaves_what_was_left_of_the_limit() -> None:
    async def main() -> float:
        async with limited(10):
            await asyncio.sleep(9)
            with uncounted():
                await asyncio.sleep(1000)
            await asyncio.sleep(0.9)
        return clock_s()

    began = run_virtually(_now())
    assert run_virtually(main()) - began == pytest.approx(1009.9)


async def _now() -> float:
    return clock_s()


def test_work_after_the_wait_is_limited_as_before() -> None:
    async def main() -> None:
        async with limited(10):
            await asyncio.sleep(9)
            with uncounted():
                await asyncio.sleep(1000)
            await asyncio.sleep(1.1)

    with pytest.raises(TimeoutError):
        run_virtually(main())


def test_two_that_wait_under_one_limit_stop_it_until_the_first_is_done() -> None:
    async def wait(seconds: float) -> None:
        with uncounted():
            await asyncio.sleep(seconds)

    async def main() -> None:
        async with limited(10), asyncio.TaskGroup() as tasks:
            tasks.create_task(wait(100))
            tasks.create_task(wait(105))
        async with asyncio.timeout(1):
            await wait(0.5)  # where there is no limit nothing is stopped, others' limits neither

    run_virtually(main())


def test_a_judge_is_not_slow_for_those_who_ask_before_it() -> None:
    """Twenty questions of four seconds each, one at a time, each limited to ten seconds."""

    async def main() -> list[int]:
        pace = RateLimit(at_once=1, per_minute=0, clock=asyncio.get_running_loop().time)

        async def ask(number: int) -> int:
            async with limited(10), pace.slot():
                await asyncio.sleep(4)
            return number

        return await asyncio.gather(*map(ask, range(20)))

    assert run_virtually(main()) == list(range(20))


def test_who_is_given_up_while_it_waits_for_its_turn_holds_none() -> None:
    async def main() -> str:
        pace = RateLimit(at_once=1, per_minute=0, clock=asyncio.get_running_loop().time)

        async def ask(seconds: float) -> None:
            async with pace.slot():
                await asyncio.sleep(seconds)

        first, second = asyncio.create_task(ask(5)), asyncio.create_task(ask(5))
        await asyncio.sleep(1)
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        async with asyncio.timeout(1):
            await ask(0)
        return "free"

    assert run_virtually(main()) == "free"
