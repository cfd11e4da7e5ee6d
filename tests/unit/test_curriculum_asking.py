"""A curriculum that waits for a model's answer still minds what cannot wait: leases, cancelling, pausing, draining, the end."""

import asyncio
from typing import Any

import pytest

from fakes.virtual_time import clock_s, run_virtually
from hindcast.core.settings.changes import apply_change
from hindcast.events.catalogue import (
    ControlApplied,
    ControlRequested,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeRequested,
    PhaseStarted,
    TaskProposed,
)
from stories.evolving_story import Bench, settings_of

LEASE_S = 30.0


class Slow:
    """Invents nothing before it is let, and then nothing at all."""

    def __init__(self) -> None:
        self.asked = 0
        self.dropped = 0
        self.may = asyncio.Event()

    async def candidates(self, *_asked: Any, **_about: Any) -> list[TaskProposed]:
        self.asked += 1
        try:
            await self.may.wait()
        except asyncio.CancelledError:
            self.dropped += 1
            raise
        return []


async def waiting_for(slow: Slow) -> tuple[Bench, EpisodeRequested]:
    """A run at its second phase, with one episode of the first that nobody ended."""
    bench = Bench(apply_change(settings_of(), {"curriculum": {"lease_s": LEASE_S}}), inventor=slow)  # type: ignore[arg-type]
    await bench.decide(for_s=1)
    left = (await bench.facts(EpisodeRequested))[0]
    bench.played.add(left.episode)
    await bench.until_second_phase()
    return bench, left


def asks(command: str, **arguments: str) -> ControlRequested:
    return ControlRequested(command=command, arguments=arguments, author="me", reason="no use")


def test_a_lease_that_runs_out_is_given_up_while_a_model_is_asked() -> None:
    async def main() -> None:
        slow = Slow()
        bench, left = await waiting_for(slow)
        await bench.decide(for_s=LEASE_S + 5)
        assert len(await bench.facts(PhaseStarted)) == 2
        assert (slow.asked, slow.dropped) == (1, 1), "one question, dropped when the process ends"
        assert [fact.episode for fact in await bench.facts(EpisodeAbandoned)] == [left.episode]

    run_virtually(main())


@pytest.mark.parametrize("command", ["cancel", "drain"])
def test_what_is_asked_of_the_run_is_done_while_a_model_is_asked(command: str) -> None:
    async def main() -> None:
        slow = Slow()
        bench, left = await waiting_for(slow)
        asking = asyncio.create_task(bench.decide(for_s=10))
        await asyncio.sleep(2)
        assert slow.asked == 1
        await bench.tell(asks(command, **({"episode": left.episode} if command == "cancel" else {})))
        await asyncio.sleep(3)
        assert [fact.episode for fact in await bench.facts(EpisodeCancelled)] == [left.episode]
        assert [(fact.command, fact.role) for fact in await bench.facts(ControlApplied)] == [
            (command, "curriculum")
        ]
        await asking

    run_virtually(main())


def test_an_answer_that_comes_while_the_run_is_paused_is_used_when_it_goes_on() -> None:
    async def main() -> None:
        slow = Slow()
        bench, _ = await waiting_for(slow)
        before = len(await bench.facts(EpisodeRequested))
        asking = asyncio.create_task(bench.decide(for_s=20))
        await asyncio.sleep(2)
        await bench.tell(asks("pause"))
        await asyncio.sleep(2)
        slow.may.set()
        await asyncio.sleep(5)
        assert len(await bench.facts(EpisodeRequested)) == before
        await bench.tell(asks("resume"))
        await asking
        assert slow.asked == 1, "nothing new was found, which is not asked again"
        assert len(await bench.facts(EpisodeRequested)) > before

    run_virtually(main())


def test_a_curriculum_that_waits_for_an_answer_stops_when_told() -> None:
    async def main() -> None:
        bench, _ = await waiting_for(Slow())
        before = clock_s()
        await bench.decide(for_s=5)
        assert clock_s() - before < 8

    run_virtually(main())
