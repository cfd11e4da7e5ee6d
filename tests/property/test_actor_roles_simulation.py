"""All roles on one log while pages break, policies hang, replies get lost and processes are killed.

Whatever the seed: every requested episode reaches exactly one terminal fact, nothing is judged twice, admission keeps
its limits, and the run gets where it was sent.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest
from curriculum_story import Story, settings_of
from role_simulation import Simulation
from virtual_time import EverybodyWaits, clock_s, run_virtually

from actors.curriculum.projection import CurriculumProjection, episodes_per_batch
from core.settings import Settings
from events.catalogue import (
    EpisodeAbandoned,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    StepTaken,
    WeightsAdopted,
    WeightsPublished,
)
from events.envelope import Recorded
from events.reader import read

LIMIT_S = 4 * 3600.0
"""Virtual time within which a run must get to its end."""


def settings_under_test(seed: int) -> Settings:
    return settings_of(
        run={"seed": seed},
        log={"linger_ms": 5, "append_timeout_s": 30},
        # Every third run has leases that end before episodes do: late ends and late starts are the rule there.
        curriculum={
            "lease_s": 6 if seed % 3 == 0 else 60,
            "max_running": 8,
            "demonstrations": 3,
            "max_attempts": 3,
        },
        actors={"contexts": 3, "generate_timeout_s": 10, "episode_timeout_s": 40},
        learner={"max_staleness": seed // 3 % 3},
        judge={"timeout_s": 5},
    )


async def simulate(
    seed: int, *, probability: float, deadly: bool, episodes: int
) -> tuple[Simulation, list[Recorded]]:
    settings = settings_under_test(seed)
    simulation = Simulation(seed, settings, probability=probability)
    await simulation.begin(Story(settings, task_admitted=False).history[0].fact)
    done, reached = asyncio.Event(), asyncio.Event()
    life = (1, 60) if deadly else None
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        for name, role in (
            ("actor.1", simulation.actor("actor.1")),
            ("actor.2", simulation.actor("actor.2")),
            ("judge.1", simulation.judge()),
            ("learner.1", simulation.learner()),
        ):
            tasks.create_task(simulation.live(name, role, done, life_s=life))
        if deadly:
            tasks.create_task(simulation.die_for_good("actor.3", simulation.actor("actor.3")))
        await simulation.live("curriculum.1", simulation.curriculum(episodes), reached, life_s=life)
        simulation.mishaps.probability = 0.0
        await come_to_rest(simulation)
        done.set()
    return simulation, [recorded async for recorded in read(simulation.log)]


async def come_to_rest(simulation: Simulation) -> None:
    """Wait until every end has its verdict; the roles go on dying meanwhile."""
    while True:
        history = [recorded async for recorded in read(simulation.log)]
        ended = {recorded.fact.episode for recorded in history if isinstance(recorded.fact, EpisodeEnded)}
        judged = {recorded.fact.episode for recorded in history if isinstance(recorded.fact, EpisodeJudged)}
        if ended == judged:
            return
        await asyncio.sleep(5)


def facts_of(history: Iterable[Recorded], *kinds: type) -> list[Recorded]:
    return [recorded for recorded in history if isinstance(recorded.fact, kinds)]


def check_every_episode_ends_once(history: list[Recorded]) -> None:
    requested = Counter(recorded.fact.episode for recorded in facts_of(history, EpisodeRequested))
    started = Counter(recorded.fact.episode for recorded in facts_of(history, EpisodeStarted))
    terminal = Counter(
        recorded.fact.episode for recorded in facts_of(history, EpisodeEnded, EpisodeAbandoned)
    )
    assert set(requested.values()) == {1}
    assert terminal == requested
    assert started <= requested


def check_nothing_is_judged_twice(history: list[Recorded]) -> None:
    ended = Counter(recorded.fact.episode for recorded in facts_of(history, EpisodeEnded))
    judged = Counter(recorded.fact.episode for recorded in facts_of(history, EpisodeJudged))
    assert judged == ended, "abandoned episodes get no verdict, ended ones exactly one"


def check_ended_episodes_have_all_steps(history: list[Recorded]) -> None:
    steps: dict[str, list[Recorded]] = defaultdict(list)
    for recorded in history:
        if isinstance(recorded.fact, StepTaken):
            steps[recorded.fact.episode].append(recorded)
        elif isinstance(recorded.fact, EpisodeEnded):
            mine = steps[recorded.fact.episode]
            assert [step.fact.index for step in mine] == list(range(recorded.fact.steps))
            assert {step.envelope.incarnation for step in mine} == {recorded.envelope.incarnation}


def check_steps_are_taken_by_who_started_the_episode(history: list[Recorded]) -> None:
    owners: dict[str, str] = {}
    for recorded in history:
        if isinstance(recorded.fact, EpisodeStarted):
            owners[recorded.fact.episode] = recorded.envelope.incarnation
        elif isinstance(recorded.fact, StepTaken):
            assert owners.get(recorded.fact.episode) == recorded.envelope.incarnation


def check_limits(history: list[Recorded], settings: Settings) -> None:
    projection = CurriculumProjection(
        curriculum=settings.curriculum, learner=settings.learner, judge=settings.judge.judges[0]
    )
    state = projection.initial()
    batch = episodes_per_batch(settings.curriculum, settings.learner)
    for recorded in history:
        state = projection.apply(state, recorded)
        under_way = sum(member.standing in ("running", "owed") for _, member in state.members("online"))
        assert state.running <= settings.curriculum.max_running
        assert state.waiting + under_way <= (settings.learner.max_staleness + 1) * batch


def check_only_known_versions_sampled(history: list[Recorded]) -> None:
    known: dict[str, set[int]] = defaultdict(set)
    published = {0}
    for recorded in history:
        fact = recorded.fact
        if isinstance(fact, WeightsPublished):
            published.add(fact.version)
        elif isinstance(fact, WeightsAdopted):
            assert fact.version in published
            known[recorded.envelope.incarnation].add(fact.version)
        elif isinstance(fact, StepTaken) and recorded.envelope.policy_version != -1:
            assert recorded.envelope.policy_version in known[recorded.envelope.incarnation]


def check(simulation: Simulation, history: list[Recorded], episodes: int) -> None:
    check_every_episode_ends_once(history)
    check_nothing_is_judged_twice(history)
    check_ended_episodes_have_all_steps(history)
    check_steps_are_taken_by_who_started_the_episode(history)
    check_limits(history, simulation.settings)
    check_only_known_versions_sampled(history)
    online = {
        recorded.fact.episode
        for recorded in facts_of(history, EpisodeRequested)
        if recorded.fact.origin == "online"
    }
    ended = {recorded.fact.episode for recorded in facts_of(history, EpisodeEnded)}
    assert len(online & ended) >= episodes, "the run did not get where it was sent"


@pytest.mark.parametrize("seed", range(20))
def test_whatever_dies_every_episode_ends_once_and_the_run_goes_on(seed: int) -> None:
    simulation, history = run_virtually(simulate(seed, probability=0.5, deadly=True, episodes=40))
    check(simulation, history, 40)


def test_without_mishaps_nothing_is_abandoned_and_the_policy_improves_version_by_version() -> None:
    simulation, history = run_virtually(simulate(7, probability=0.0, deadly=False, episodes=60))
    check(simulation, history, 60)
    assert not facts_of(history, EpisodeAbandoned)
    versions = [recorded.fact.version for recorded in facts_of(history, WeightsPublished)]
    assert versions == list(range(1, len(versions) + 1))
    assert len(versions) >= 2
    assert all(world.closed == 1 for host in simulation.hosts for world in host.worlds)


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
