"""The curriculum's process: what it appends, what it survives, and that only one decides."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from fakes.virtual_time import clock_s, run_virtually
from hindcast.actors.curriculum.role import run_curriculum
from hindcast.core.errors import BrokerUnreachable, SettingsError
from hindcast.core.settings.changes import apply_change
from hindcast.events.catalogue import (
    ControlApplied,
    ControlRequested,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeRequested,
    EpisodeStarted,
    PhaseStarted,
    RecipeChanged,
    TaskAdmitted,
    TaskProposed,
    TaskRejected,
    WaitExceeded,
)
from hindcast.events.envelope import Fact, Stored
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.reader import read
from stories.curriculum_bench import Bench, ended
from stories.curriculum_story import SOURCES

TASKS = 16
"""4 families with 4 tasks each."""


def test_the_pool_is_admitted_once_however_often_the_curriculum_starts() -> None:
    async def main() -> None:
        bench = Bench()
        for _ in range(3):
            await bench.decide(for_s=2)
        first, *_ = await bench.facts(Fact)
        assert first == PhaseStarted(phase=0, reference_version=0)
        proposed = [fact.task.id for fact in await bench.facts(TaskProposed)]
        assert len(proposed) == len(set(proposed)) == TASKS
        assert [fact.task_id for fact in await bench.facts(TaskAdmitted)] == proposed
        assert len(await bench.facts(PhaseStarted)) == 1

    run_virtually(main())


def test_a_pool_of_which_a_part_was_proposed_is_completed_and_what_was_rejected_stays_out() -> None:
    async def main() -> None:
        bench = Bench()
        first, second = SOURCES["shop"].task("buy", 0), SOURCES["shop"].task("buy", 1)
        await bench.tell(TaskProposed(task=first, source="seeded"))
        await bench.tell(
            TaskProposed(task=second, source="seeded"), TaskRejected(task_id=second.id, reason="too hard")
        )
        await bench.decide()
        proposed = Counter(fact.task.id for fact in await bench.facts(TaskProposed))
        assert set(proposed.values()) == {1}
        admitted = [fact.task_id for fact in await bench.facts(TaskAdmitted)]
        assert len(admitted) == TASKS - 1
        assert second.id not in admitted

    run_virtually(main())


def test_other_families_are_drawn_from_once_the_run_says_so_and_not_before() -> None:
    async def main() -> None:
        bench = Bench(families=["shop/buy"])
        with_others = RecipeChanged(
            author="me", reason="", changes={"curriculum": {"families": ["shop/buy", "shop/find"]}}
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(bench.decide(for_s=20))
            await asyncio.sleep(5)
            before = await bench.facts(TaskAdmitted, EpisodeRequested)
            await bench.tell(with_others)
        families = {fact.task.family for fact in await bench.facts(TaskProposed)}
        assert families == {"buy", "find"}
        early = [fact for fact in before if isinstance(fact, EpisodeRequested)]
        assert early
        assert {fact.task.family for fact in early} == {"buy"}
        admitted = [fact.task_id for fact in await bench.facts(TaskAdmitted)]
        assert len(admitted) == len(set(admitted)) == 8
        for request in early:
            await bench.tell(ended(request))
        # a curriculum that starts later is given what holds by then
        bench.settings = apply_change(bench.settings, with_others.changes)
        await bench.decide(for_s=5)
        assert len(await bench.facts(TaskAdmitted)) == 8

    run_virtually(main())


@pytest.mark.parametrize("jump_s", [86_400, -86_400])
def test_a_wall_clock_that_jumps_a_day_abandons_nothing_at_once_and_expires_leases_as_ever(
    jump_s: int,
) -> None:
    async def main() -> None:
        bench = Bench(lease_s=30, max_running=4)
        bench.clock_ahead_s = 2 * 86_400
        await bench.decide(for_s=1)
        first, *_ = requests = await bench.facts(EpisodeRequested)
        bench.clock_ahead_s += jump_s
        await bench.tell(EpisodeStarted(episode=first.episode, actor="actor.9", instruction="", renderer=""))
        await bench.decide(for_s=28)
        assert await bench.facts(EpisodeAbandoned) == []
        await bench.decide(for_s=32)
        gone = {fact.episode for fact in await bench.facts(EpisodeAbandoned)}
        assert gone >= {request.episode for request in requests}

    run_virtually(main())


def test_an_expired_lease_is_abandoned_recorded_as_a_wait_and_tried_again() -> None:
    async def main() -> None:
        bench = Bench(lease_s=30, max_running=4)
        await bench.decide(for_s=1)
        first, second, *_ = await bench.facts(EpisodeRequested)
        await bench.tell(EpisodeStarted(episode=first.episode, actor="actor.9", instruction="", renderer=""))
        await bench.tell(ended(second))
        await bench.decide(for_s=32)
        gone = {fact.episode: fact for fact in await bench.facts(EpisodeAbandoned)}
        assert second.episode not in gone
        assert gone[first.episode].reason == "lease_expired"
        assert gone[first.episode].detail == "actor.9 started it and did not end it within 30 s"
        waits = await bench.facts(WaitExceeded)
        assert {wait.setting for wait in waits} == {"curriculum.lease_s"}
        assert len(waits) == len(gone)
        retries = [fact for fact in await bench.facts(EpisodeRequested) if fact.attempt == 1]
        assert {(fact.group, fact.member) for fact in retries} >= {(first.group, 0)}

    run_virtually(main())


def test_a_group_that_was_cut_short_by_a_crash_is_completed_first() -> None:
    async def main() -> None:
        bench = Bench(max_running=100)
        whole = Bench(max_running=100)
        await whole.decide()
        kept = [r async for r in read(whole.log) if not isinstance(r.fact, EpisodeRequested)]
        requests = await whole.facts(EpisodeRequested)
        await bench.tell(*(recorded.fact for recorded in kept), *requests[:6])
        await bench.decide()
        assert await bench.facts(EpisodeRequested) == requests

    run_virtually(main())


def test_two_curricula_at_once_request_nothing_twice() -> None:
    async def main() -> None:
        bench = Bench(max_running=12)

        async def finish_everything() -> None:
            done: set[str] = set()
            for _ in range(40):
                await asyncio.sleep(0.5)
                for request in await bench.facts(EpisodeRequested):
                    if request.episode not in done:
                        done.add(request.episode)
                        await bench.tell(
                            EpisodeAbandoned(
                                episode=request.episode, task_id="", reason="error", detail="", steps=0
                            )
                        )

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(finish_everything())
            tasks.create_task(bench.decide(for_s=25, name="curriculum.1"))
            tasks.create_task(bench.decide(for_s=25, name="curriculum.2"))
        requests = await bench.facts(EpisodeRequested)
        assert len(requests) > 50
        assert len({request.episode for request in requests}) == len(requests)
        places = Counter((request.group, request.member, request.attempt) for request in requests)
        assert set(places.values()) == {1}
        producers = Counter([r.envelope.producer async for r in read(bench.log)])
        assert producers["curriculum.1"]
        assert producers["curriculum.2"]

    run_virtually(main())


def test_a_finite_run_returns_by_itself() -> None:
    async def main() -> None:
        bench = Bench()

        async def play() -> None:
            done: set[str] = set()
            while True:
                await asyncio.sleep(1)
                for request in await bench.facts(EpisodeRequested):
                    if request.episode not in done:
                        done.add(request.episode)
                        await bench.tell(ended(request))

        async with asyncio.TaskGroup() as tasks:
            playing = tasks.create_task(play())
            before = clock_s()
            async with bench.publisher("curriculum.1") as publisher:
                await run_curriculum(
                    log=bench.log,
                    publisher=publisher,
                    blobs=bench.blobs,
                    sources=SOURCES,
                    settings=bench.settings,
                    stop=asyncio.Event(),
                    until_episodes=6,
                )
            playing.cancel()
        assert clock_s() - before < 20
        assert len(await bench.facts(EpisodeEnded)) == 8

    run_virtually(main())


def test_a_log_that_takes_events_and_delivers_none_is_an_error_and_no_hang() -> None:
    class Deaf(MemoryLog):
        async def tail(self, *, after: int, headers: bool = True) -> AsyncIterator[list[Stored]]:  # type: ignore[override]
            await asyncio.sleep(1_000_000)
            yield []

    async def main() -> None:
        bench = Bench()
        bench.log = Deaf("r", clock=clock_s)
        with pytest.raises(ExceptionGroup) as caught:
            await bench.decide(for_s=60)
        assert caught.group_contains(BrokerUnreachable, match="no event arrived for 20 s")

    run_virtually(main())


def test_a_family_that_does_not_exist_is_a_worded_error_before_anything_is_appended() -> None:
    async def main() -> None:
        bench = Bench(families=("shop/steal",))
        with pytest.raises(ExceptionGroup) as caught:
            await bench.decide()
        assert caught.group_contains(SettingsError, match="shop/steal")
        assert not bench.log.events

    run_virtually(main())


def test_only_families_with_a_demonstrator_are_demonstrated() -> None:
    async def story() -> None:
        bench = Bench(demonstrations=6)
        families = sorted(
            f"{name}/{family}" for name, source in SOURCES.items() for family in source.families()
        )
        environment, _, family = families[1].partition("/")
        await bench.decide(shown_by={(environment, family)})
        requests = [r.fact async for r in read(bench.log) if isinstance(r.fact, EpisodeRequested)]
        shown = [fact for fact in requests if fact.origin == "demonstration"]
        assert len(shown) == 6
        assert {(fact.task.environment, fact.task.family) for fact in shown} == {(environment, family)}

    run_virtually(story())


def test_demonstrations_that_nobody_can_give_are_a_worded_error_before_anything_is_appended() -> None:
    async def story() -> None:
        bench = Bench(demonstrations=1)
        with pytest.raises(ExceptionGroup) as raised:
            await bench.decide(shown_by=())
        assert raised.group_contains(SettingsError, match="none of the run's families has a demonstrator")
        assert bench.log.events == []

    run_virtually(story())


def test_what_was_shown_already_needs_nobody_who_can_show_it_again() -> None:
    """Settings that a run changes to: families without a demonstrator, once all demonstrations are under way."""

    async def story() -> None:
        bench = Bench(families=["shop/buy"], demonstrations=2)
        await bench.decide(shown_by={("shop", "buy")})
        bench.settings = apply_change(bench.settings, {"curriculum": {"families": ["shop/find"]}})
        for request in await bench.facts(EpisodeRequested):
            await bench.tell(ended(request))
        await bench.decide(shown_by={("shop", "buy")})
        later = [fact for fact in await bench.facts(EpisodeRequested) if fact.task.family == "find"]
        assert later
        assert {fact.origin for fact in later} == {"online"}
        bench.settings = apply_change(bench.settings, {"curriculum": {"demonstrations": 3}})
        with pytest.raises(ExceptionGroup) as raised:
            await bench.decide(shown_by={("shop", "buy")})
        assert raised.group_contains(SettingsError, match="wants 1 more")

    run_virtually(story())


def test_a_drain_cancels_what_nobody_started_and_is_answered_once() -> None:
    bench = Bench()

    async def story() -> None:
        await bench.decide()
        requests = await bench.facts(EpisodeRequested)
        taken, waiting = requests[0], requests[1:]
        await bench.tell(
            EpisodeStarted(episode=taken.episode, actor="actor.1", instruction="", renderer="lines/1"),
            ControlRequested(command="drain", arguments={}, author="test", reason="goal reached"),
        )
        await bench.decide()
        await bench.decide()
        cancelled = await bench.facts(EpisodeCancelled)
        assert [fact.episode for fact in cancelled] == [request.episode for request in waiting]
        assert await bench.facts(ControlApplied) == [ControlApplied(command="drain", role="curriculum")]
        assert await bench.facts(EpisodeRequested) == requests

    run_virtually(story())


def test_an_episode_that_somebody_wants_cancelled_is_cancelled_once_waiting_or_under_way() -> None:
    bench = Bench()

    async def story() -> None:
        await bench.decide()
        requests = await bench.facts(EpisodeRequested)
        taken, waiting = requests[0].episode, requests[1].episode
        facts = [EpisodeStarted(episode=taken, actor="actor.1", instruction="", renderer="lines/1")]
        for episode in (taken, waiting, "ep_no"):
            arguments = {"episode": episode}
            facts.append(  # type: ignore[arg-type]
                ControlRequested(command="cancel", arguments=arguments, author="me", reason="no use")
            )
        await bench.tell(*facts)
        await bench.decide()
        await bench.decide()
        cancelled = await bench.facts(EpisodeCancelled)
        assert {fact.episode for fact in cancelled} == {taken, waiting}
        assert len(cancelled) == 2
        assert {(fact.reason, fact.detail) for fact in cancelled} == {("cancelled", "me: no use")}
        applied = await bench.facts(ControlApplied)
        assert applied == [ControlApplied(command="cancel", role="curriculum")] * 2

    run_virtually(story())


def test_the_curriculum_pauses_once_when_room_runs_out_and_resumes_once_when_there_is_some() -> None:
    async def main() -> None:
        bench = Bench()
        short = {"now": ""}
        asked: list[bool] = []

        async def check(halted: bool) -> str:
            asked.append(halted)
            return short["now"]

        async def story() -> None:
            await asyncio.sleep(5)
            short["now"] = "the log is nearly full"
            await asyncio.sleep(15)
            short["now"] = ""

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(story())
            tasks.create_task(bench.decide(for_s=40, room_check=check))
        said = [(fact.command, fact.reason) for fact in await bench.facts(ControlRequested)]
        assert said == [("pause", "the log is nearly full"), ("resume", "there is room again")]
        assert asked[0] is False
        assert True in asked
        assert await bench.facts(EpisodeRequested)

    run_virtually(main())
