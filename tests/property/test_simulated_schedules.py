"""Seeded schedules of all roles under faults: every invariant of docs/architecture.md holds after each, and nobody hangs.

What fails names its seed; `PYTHONPATH=tests python -m simulation --seed N` plays it again, callback by callback.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import hindcast.actors.episodes.actor as actor_role
import hindcast.actors.queue_worker as queue_worker
from fakes.virtual_time import EverybodyWaits, Lane, VirtualLoop, clock_s, run_virtually
from hindcast.app.system.supervisor import STOP_AFTER_S
from hindcast.core.rl.combined_state import CRITIC, POLICY
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeAbandoned,
    EpisodeEnded,
    EpisodeStarted,
    WeightsPublished,
)
from simulation.invariants import check
from simulation.processes import Process
from simulation.sabotage import SABOTAGES, Sabotage, notice
from simulation.schedules import (
    ARCHIVED,
    LOST,
    PHASED,
    REHEARSING,
    Outcome,
    Schedule,
    clear_away,
    play,
    stage,
)

pytestmark = [pytest.mark.broker, pytest.mark.torch]

CHUNK = 25
CHUNKS = [0, *(pytest.param(chunk, marks=pytest.mark.slow) for chunk in range(1, 8))]
"""Every `CHUNK` schedules are a test, the first of which `make test` runs."""
FETCH_S = actor_role.FETCH_S
"""As it really is: `stage` makes it longer."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with stage() as folder:
        yield folder


def play_all(seeds: range, folder: Path) -> list[Outcome]:
    outcomes = []
    for seed in seeds:
        try:
            outcome = play(seed, folder)
            check(outcome)
        except Exception as error:
            error.add_note(f"Play it again: PYTHONPATH=tests {sys.executable} -m simulation --seed {seed}")
            raise
        outcomes.append(outcome)
    return outcomes


@pytest.mark.parametrize("chunk", CHUNKS)
def test_whatever_goes_wrong_every_invariant_holds_and_the_run_gets_where_it_was_sent(
    chunk: int, folder: Path
) -> None:
    play_all(range(CHUNK * chunk, CHUNK * (chunk + 1)), folder)


def test_the_same_holds_where_batches_are_gone_through_again_and_successes_rehearsed(folder: Path) -> None:
    outcomes = play_all(range(REHEARSING, REHEARSING + CHUNK), folder)
    plans = [
        each.fact for outcome in outcomes for each in outcome.history if isinstance(each.fact, BatchPlanned)
    ]
    assert any(planned.rehearsed for plan in plans for planned in plan.episodes)


@pytest.mark.parametrize("chunk", CHUNKS[:2])
def test_the_same_holds_where_the_log_moves_to_an_archive_and_the_run_is_forked_afterwards(
    chunk: int, folder: Path
) -> None:
    first = ARCHIVED + CHUNK * chunk
    outcomes = play_all(range(first, first + CHUNK), folder)
    continued = [outcome.continued for outcome in outcomes if outcome.continued is not None]
    assert len(continued) == CHUNK
    assert any(each.moved for each in continued)
    assert any(each.pages_released for each in continued)


def test_the_same_holds_where_the_policy_learns_in_phases_with_a_critic(folder: Path) -> None:
    outcomes = play_all(range(PHASED, PHASED + CHUNK), folder)
    plans = [
        each.fact for outcome in outcomes for each in outcome.history if isinstance(each.fact, BatchPlanned)
    ]
    assert {plan.model for plan in plans} == {POLICY, CRITIC}
    assert any(planned.kept is not None for plan in plans for planned in plan.episodes)


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.name.replace(" ", "-"))
def test_a_fault_put_in_on_purpose_is_noticed(sabotage: Sabotage, folder: Path) -> None:
    found = notice(sabotage, folder)
    assert found is not None, "no schedule shows it"
    seed, how = found
    assert how.startswith(sabotage.noticed_by), f"seed {seed}: {how}"


def test_one_seed_is_one_schedule(folder: Path) -> None:
    """Also in a process that hashes and places its objects otherwise."""
    told = play(11, folder).story()
    assert told == play(11, folder).story()
    code = "from simulation.schedules import play, stage\nwith stage() as folder: print(play(11, folder).story())"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONHASHSEED": "5"}
    other = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=500
    )
    assert other.stdout.strip() == str(told)


def play_calmly(seed: int, folder: Path, *, loses_an_actor: bool = False) -> Outcome:
    """A schedule in which nothing goes wrong, or nothing else."""
    random = Random(seed)
    loop = VirtualLoop(random)
    schedule = Schedule(seed, random, folder, mishaps=0, loses_an_actor=loses_an_actor)
    schedule.broker.heal()
    schedule.site.mishaps.probability = schedule.site.slowness = 0.0
    outcome = loop.run_until_complete(schedule.run())
    loop.close()
    check(outcome)
    assert not loop.complaints
    return outcome


def test_without_mishaps_nothing_is_abandoned_and_the_policy_improves_version_by_version(
    folder: Path,
) -> None:
    outcome = play_calmly(3, folder)
    facts = [recorded.fact for recorded in outcome.history]
    assert not [fact for fact in facts if isinstance(fact, EpisodeAbandoned)]
    versions = [fact.version for fact in facts if isinstance(fact, WeightsPublished)]
    assert versions == list(range(len(versions)))
    assert len(versions) > 1
    worlds = [world for host in outcome.site.hosts for world in host.worlds]
    assert worlds
    assert all(world.closed == 1 for world in worlds)


@pytest.mark.parametrize("seed", range(4))
def test_of_an_actor_that_never_comes_back_only_the_lease_tells(seed: int, folder: Path) -> None:
    outcome = play_calmly(seed, folder, loses_an_actor=True)
    facts = [recorded.fact for recorded in outcome.history]
    begun = {fact.episode for fact in facts if isinstance(fact, EpisodeStarted) and fact.actor == LOST}
    ended = {fact.episode for fact in facts if isinstance(fact, EpisodeEnded) and fact.actor == LOST}
    given_up = {
        recorded.fact.episode: (recorded.fact.reason, recorded.envelope.producer)
        for recorded in outcome.history
        if isinstance(recorded.fact, EpisodeAbandoned) and recorded.fact.episode in begun
    }
    assert begun - ended
    assert given_up == dict.fromkeys(begun - ended, ("lease_expired", "curriculum.1"))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_page_or_a_policy_does_a_process_that_is_told_to_stop_does_so_in_time(
    seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (actor_role, queue_worker):
        monkeypatch.setattr(module, "FETCH_S", FETCH_S)
    random = Random(seed)
    loop = VirtualLoop(random)
    schedule = Schedule(seed, random, folder)
    schedule.broker.heal()
    schedule.site.mishaps.probability = 1.0

    async def stop_all() -> dict[str, float]:
        await schedule._begin()
        roles = {
            name: role for name, role in schedule.roles().items() if not name.startswith(("learner", "view"))
        }
        lives = [Process(schedule.site, name, role, schedule.settings) for name, role in roles.items()]
        await asyncio.sleep(random.uniform(1, 20))
        took = {}
        for process in lives:
            told = clock_s()
            process.stop()
            await asyncio.wait([process.over], timeout=60)
            took[process.name] = clock_s() - told
        return took

    took = loop.run_until_complete(stop_all())
    clear_away(loop, schedule)
    loop.close()
    assert len(took) >= 3
    # a judgment under way comes to its end; the worker may cut it
    judging_s = FETCH_S + schedule.settings.judge.timeout_s
    assert took.pop("judge.1") < judging_s + 0.5
    assert max(took.values()) < STOP_AFTER_S, took


def test_a_frozen_lane_holds_up_nobody_and_catches_up_when_thawed() -> None:
    async def scenario() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        said: list[str] = []

        async def talk(name: str) -> None:
            for _ in range(3):
                await asyncio.sleep(1)
                said.append(name)

        lanes = Lane("a"), Lane("b")
        tasks = [loop.start(lane, talk(lane.name)) for lane in lanes]
        await asyncio.sleep(0.5)
        loop.freeze(lanes[0])
        await tasks[1]
        assert said == ["b"] * 3
        loop.thaw(lanes[0])
        await tasks[0]
        return said

    assert run_virtually(scenario(), random=Random(1)) == ["b"] * 3 + ["a"] * 3


def test_the_simulation_shows_a_hang_instead_of_hanging() -> None:
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(EverybodyWaits):
        run_virtually(wait_for_ever())


def test_virtual_time_passes_as_fast_as_it_can() -> None:
    async def sleep() -> float:
        before = clock_s()
        await asyncio.sleep(100_000)
        return clock_s() - before

    assert run_virtually(sleep()) == pytest.approx(100_000)
