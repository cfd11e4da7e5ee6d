"""Phases and the tasks made for them: what is proposed, on what grounds, and that a restart changes nothing."""

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from fakes.virtual_time import run_virtually
from hindcast.actors.curriculum import evolution
from hindcast.actors.curriculum.evolution import Evolver
from hindcast.actors.curriculum.feasibility import FirstState
from hindcast.actors.curriculum.phases import Phases, goal_digest, wording
from hindcast.actors.curriculum.pool import configured_pool, drawn_from, family_of
from hindcast.actors.curriculum.snapshots import curriculum_kind
from hindcast.actors.curriculum.state import CurriculumState
from hindcast.actors.curriculum.task_variation import (
    CANDIDATES_PER_TASK,
    EMBEDDED,
    basis_of,
    embedded_candidates,
    verdict_on,
)
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.core.errors import BlobMissing, ModelFileError, SettingsError
from hindcast.core.settings.schema import EvolutionSettings
from hindcast.events.catalogue import (
    EpisodeJudged,
    EpisodeRequested,
    PhaseStarted,
    StateValued,
    TaskAdmitted,
    TaskProposed,
    TaskRejected,
    WeightsPublished,
)
from hindcast.events.envelope import Fact
from stories.curriculum_story import SOURCES, published
from stories.evolving_story import TASKS, Bench, Lengths, critic, planned, settings_of, state_of

DECISIONS = (TaskProposed, StateValued, TaskAdmitted, TaskRejected, PhaseStarted)


def test_a_phase_is_over_with_the_first_weights_of_a_batch_planned_since_it_was_full() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.tell(published(0))
        await bench.full_phase()
        await bench.decide()
        assert [fact.phase for fact in await bench.facts(PhaseStarted)] == [0]
        await bench.tell(published(1))
        await bench.decide()
        assert len(await bench.facts(PhaseStarted)) == 1, "no batch was planned of the full phase yet"
        await bench.tell(planned(0))
        await bench.decide()
        assert len(await bench.facts(PhaseStarted)) == 1
        await bench.tell(published(2))
        await bench.decide()
        assert await bench.facts(PhaseStarted) == [
            PhaseStarted(phase=0, reference_version=0),
            PhaseStarted(phase=1, reference_version=2),
        ]

    run_virtually(main())


def test_what_is_decided_beyond_a_full_phase_counts_for_the_next() -> None:
    source = StoreTasks(settings_of().sites)
    won, lost, late = (source.task("buy", seed) for seed in range(3))
    phases = Phases()
    for task, reward in ((won, 1.0), (lost, 0.0), (late, 0.0)):
        assert not phases.over
        phases.judge(task, reward, episodes=2)
        phases.publish()  # of a batch that was planned before the phase was full
    phases.plan(episodes=2)
    phases.publish()
    assert phases.over
    phases.begin(episodes=2)
    assert (phases.seeds, phases.decided, phases.over) == ([lost], 1, False)
    phases.judge(won, 1.0, episodes=2)
    phases.plan(episodes=2)
    phases.publish()
    phases.begin(episodes=2)
    assert (phases.seeds, phases.decided) == ([late], 0)


def test_a_task_has_failed_if_less_than_half_of_its_reward_was_won() -> None:
    source = StoreTasks(settings_of().sites)
    half, less = source.task("buy", 0), source.task("buy", 1)
    phases = Phases()
    for task, rewards in ((half, (1.0, 0.0)), (less, (1.0, 0.0, 0.0))):
        for reward in rewards:
            phases.judge(task, reward, episodes=9)
    phases.begin(episodes=9)
    assert phases.seeds == [less]


def test_a_run_without_phases_stays_in_its_first() -> None:
    async def main() -> None:
        settings = settings_of(generator="")
        learner = settings.learner.model_copy(update={"phase_episodes": 0})
        bench = Bench(settings.model_copy(update={"learner": learner}))
        await bench.until_second_phase()
        await bench.decide()
        assert [fact.phase for fact in await bench.facts(PhaseStarted)] == [0]
        assert (await state_of(bench)).phases.attempted == {}

    run_virtually(main())


def test_tasks_of_a_phase_vary_what_failed_before_it_and_repeat_no_instruction() -> None:
    async def main() -> None:
        bench = Bench()
        for number in range(3):
            if number:
                await bench.full_phase()
                await bench.tell(planned(number), published(number + 1))
            else:
                await bench.until_second_phase()
            await bench.decide()
        proposed = await bench.facts(TaskProposed)
        generated = [fact for fact in proposed if fact.source == "generated"]
        assert Counter(fact.phase for fact in generated) == {1: TASKS, 2: TASKS, 3: TASKS}
        assert len({wording(fact.task) for fact in proposed}) == len(proposed)
        made = [goal_digest(fact.task) for fact in generated]
        assert len(set(made)) == len(made)
        assert not set(made) & {goal_digest(fact.task) for fact in proposed if fact.source == "seeded"}
        failures = {
            fact.task_id for fact in await bench.facts(EpisodeJudged) if fact.judgment.outcome == "failure"
        }
        earlier: set[str] = set()
        for fact in proposed:
            assert set(fact.parents) <= earlier & failures
            assert bool(fact.parents) == (fact.source == "generated")
            assert (fact.generator == EMBEDDED) == (fact.source == "generated")
            earlier.add(fact.task.id)
        families = set(bench.settings.curriculum.families)
        assert {f"store/{fact.task.family}" for fact in proposed} <= families
        admitted = {fact.task_id: fact for fact in await bench.facts(TaskAdmitted)}
        assert {admitted[fact.task.id].phase for fact in generated if fact.phase == 2} == {2}
        assert {admitted[fact.task.id].value for fact in generated} == {None}, "there is no critic"

    run_virtually(main())


def test_where_nothing_failed_the_next_phase_draws_from_everything() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.tell(published(0))
        await bench.full_phase(failing=False)
        await bench.tell(planned(0), published(1))
        await bench.decide()
        assert len(await bench.facts(PhaseStarted)) == 2
        assert {fact.source for fact in await bench.facts(TaskProposed)} == {"seeded"}
        later = [fact for fact in await bench.facts(EpisodeRequested) if fact.phase == 1]
        assert later
        assert not any(fact.revisits for fact in later)

    run_virtually(main())


def test_a_critic_filters_and_every_decision_holds_its_number() -> None:
    async def main() -> None:
        bench = Bench(valuer=Lengths())
        await bench.tell(critic(3))
        await bench.until_second_phase()
        await bench.decide()
        values = {fact.task_id: fact for fact in await bench.facts(StateValued)}
        admitted = {fact.task_id: fact for fact in await bench.facts(TaskAdmitted)}
        rejected = {fact.task_id: fact for fact in await bench.facts(TaskRejected)}
        generated = [fact for fact in await bench.facts(TaskProposed) if fact.source == "generated"]
        assert {fact.critic_version for fact in values.values()} == {3}
        assert set(values) == {fact.task.id for fact in generated}
        for fact in generated:
            value = values[fact.task.id].value
            assert value == (len(fact.task.instruction) % 11) / 10
            if 0.05 <= value <= 0.75:
                assert admitted[fact.task.id].value == value
            else:
                assert rejected[fact.task.id].value == value
                assert rejected[fact.task.id].reason == ("too hard" if value < 0.05 else "too easy")
        assert rejected
        assert sum(fact.task.id in admitted for fact in generated) == TASKS
        assert len(generated) <= CANDIDATES_PER_TASK * TASKS

    run_virtually(main())


def test_a_critic_that_finds_everything_too_hard_ends_the_search_and_the_run_goes_on() -> None:
    class Hopeless(Lengths):
        def values(self, states: Sequence[FirstState], published: WeightsPublished) -> list[float]:
            return [0.0] * len(states)

    async def main() -> None:
        bench = Bench(valuer=Hopeless())
        await bench.tell(critic(1))
        await bench.until_second_phase()
        await bench.decide(for_s=10)
        assert len(await bench.facts(TaskRejected)) == CANDIDATES_PER_TASK * TASKS
        assert [fact for fact in await bench.facts(EpisodeRequested) if fact.phase == 1]

    run_virtually(main())


@pytest.mark.parametrize("valued", [False, True])
def test_a_curriculum_killed_after_any_event_proposes_the_same_and_none_twice(valued: bool) -> None:
    async def main() -> None:
        whole = Bench(valuer=Lengths() if valued else None)
        await whole.tell(critic(3))
        await whole.until_second_phase()
        before = (await whole.log.identity()).last
        await whole.decide()
        decided = await whole.facts(*DECISIONS)
        requested = await whole.facts(EpisodeRequested)
        after = (await whole.log.identity()).last
        assert after - before > 2 * TASKS
        for count in range(before, after + 1):
            again = await whole.copy(count)
            await again.decide()
            found = await again.facts(*DECISIONS)
            assert proposals(found) == proposals(decided)
            assert said(found) == said(decided)
            assert await again.facts(EpisodeRequested) == requested

    run_virtually(main())


def test_the_outcome_reward_model_is_asked_where_the_settings_say_so_and_not_the_critic() -> None:
    async def main() -> None:
        bench = Bench(settings_of(valued_by="orm"), valuer=Lengths())
        await bench.tell(critic(3), msgspec.structs.replace(critic(7), model="orm"))
        await bench.until_second_phase()
        await bench.decide()
        values = await bench.facts(StateValued)
        assert values
        assert {(fact.model, fact.critic_version) for fact in values} == {("orm", 7)}
        admitted = {fact.task_id: fact.value for fact in await bench.facts(TaskAdmitted)}
        assert all(admitted.get(fact.task_id, fact.value) == fact.value for fact in values)

    run_virtually(main())


def proposals(decided: Sequence[Fact]) -> list[Fact]:
    return [fact for fact in decided if isinstance(fact, TaskProposed)]


def said(decided: Sequence[Fact]) -> list[bytes]:
    """What was said of them, in whatever portions."""
    return sorted(msgspec.json.encode(fact) for fact in decided if not isinstance(fact, TaskProposed))


def test_what_no_first_page_is_known_of_is_not_valued() -> None:
    async def main() -> None:
        bench = Bench(valuer=Lengths())
        await bench.tell(critic(3))
        await bench.until_second_phase()
        bench.blobs.contents.clear()  # as where only the pages of the latest episodes are kept
        await bench.decide()
        assert not await bench.facts(StateValued)
        generated = {fact.task.id for fact in await bench.facts(TaskProposed) if fact.source == "generated"}
        admitted = {fact.task_id: fact.value for fact in await bench.facts(TaskAdmitted)}
        assert {admitted[name] for name in generated} == {None}

    run_virtually(main())


class Fails:
    """A critic that cannot be asked."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def values(self, states: Sequence[FirstState], published: WeightsPublished) -> list[float]:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [BlobMissing("gone"), ModelFileError("of another shape"), SettingsError("the page does not fit")],
    ids=lambda error: type(error).__name__,
)
def test_a_critic_that_cannot_be_asked_leaves_the_tasks_without_values(error: Exception) -> None:
    async def main() -> None:
        bench = Bench(valuer=Fails(error))
        await bench.tell(critic(3))
        await bench.until_second_phase()
        await bench.decide()
        assert not await bench.facts(StateValued)
        generated = {fact.task.id for fact in await bench.facts(TaskProposed) if fact.source == "generated"}
        assert generated
        assert generated <= {fact.task_id for fact in await bench.facts(TaskAdmitted)}

    run_virtually(main())


def test_candidates_are_looked_for_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of goals may be drawn: events and leases go on meanwhile."""
    threads = []

    def watched(*args: Any, **kwargs: Any) -> list[TaskProposed]:
        threads.append(threading.current_thread())
        return embedded_candidates(*args, **kwargs)

    async def main() -> tuple[Evolver, CurriculumState]:
        bench = Bench()
        await bench.until_second_phase()
        pool = configured_pool(bench.sources, bench.settings.curriculum)
        evolver = Evolver(
            sources=bench.sources, pool=pool, settings=bench.settings, blobs=bench.blobs, valuer=None
        )
        return evolver, await state_of(bench)

    evolver, state = run_virtually(main())
    monkeypatch.setattr(evolution, "embedded_candidates", watched)
    begun = asyncio.run(evolver.next_facts(state))
    assert [type(fact) for fact, _ in begun] == [PhaseStarted]
    state.phase = 1
    state.phases.begin(episodes=8)
    assert len(asyncio.run(evolver.next_facts(state))) == TASKS
    (only,) = threads
    assert only is not threading.main_thread()


def test_a_snapshot_holds_everything_of_phases() -> None:
    async def main() -> None:
        bench = Bench(valuer=Lengths())
        await bench.tell(critic(3))
        await bench.until_second_phase()
        await bench.decide()
        await bench.play()
        state = await state_of(bench)
        phases = state.phases
        assert all((phases.generated, phases.phase_of, phases.values, phases.seeds, phases.candidates))
        assert all((phases.attempted, phases.asked, phases.ground.pages, phases.ground.critic))
        kind = curriculum_kind(bench.settings)
        assert kind.decode(kind.encode(state)) == state

    run_virtually(main())


def test_two_curricula_at_once_propose_nothing_twice() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.until_second_phase()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(bench.decide(for_s=20, name="curriculum.1"))
            tasks.create_task(bench.decide(for_s=20, name="curriculum.2"))
        generated = [fact.task.id for fact in await bench.facts(TaskProposed) if fact.source == "generated"]
        assert len(generated) == len(set(generated)) == TASKS
        decided = Counter(fact.task_id for fact in await bench.facts(TaskAdmitted, TaskRejected))
        assert {decided[name] for name in generated} == {1}

    run_virtually(main())


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, None),
        (0.05, None),
        (0.75, None),
        (0.4, None),
        (0.0499999, "too hard"),
        (0.7500001, "too easy"),
        (float("nan"), "too hard"),
    ],
)
def test_the_borders_of_the_window_are_inside_it(value: float | None, reason: str | None) -> None:
    source = StoreTasks(settings_of().sites)
    task = source.task("buy", 0)
    fact = verdict_on(
        task, value=value, checked=None, phase=1, settings=EvolutionSettings(), spaces={"store": source}
    )
    if reason is None:
        assert fact == TaskAdmitted(task_id=task.id, phase=1, value=value)
    else:
        assert isinstance(fact, TaskRejected)
        assert fact.reason == reason


def test_what_cannot_be_done_is_rejected_with_the_reason_unless_nobody_asks() -> None:
    source = StoreTasks(settings_of().sites)
    task = source.task("find_price", 0)
    task = msgspec.structs.replace(task, goal={**task.goal, "answer": "$0.01"})
    spaces = {"store": source}
    asked = verdict_on(task, value=0.5, checked=None, phase=1, settings=EvolutionSettings(), spaces=spaces)
    assert isinstance(asked, TaskRejected)
    assert asked.reason.startswith("unreachable: ")
    assert asked.value == 0.5
    nobody = EvolutionSettings(feasibility="none")
    free = verdict_on(task, value=0.5, checked=None, phase=1, settings=nobody, spaces=spaces)
    assert isinstance(free, TaskAdmitted)


def test_a_share_of_the_groups_revisits_the_tasks_of_earlier_phases_and_says_so() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.until_second_phase()
        await bench.decide()
        state = await state_of(bench)
        pool = configured_pool(bench.sources, bench.settings.curriculum)
        own = {name for name, phase in state.phases.phase_of.items() if phase == 1}
        assert len(own) == TASKS
        counted: Counter[bool] = Counter()
        for number in range(1000):
            state.opened["online"] = number
            drawn, revisits = drawn_from(state, pool=pool, revisit_share=0.25, run_seed=1)
            names = {name for tasks in drawn.values() for name in tasks}
            assert names == ({name for tasks in pool.values() for name in tasks} if revisits else own)
            counted[revisits] += 1
        assert 200 <= counted[True] <= 300  # 250 expected, sd 14; drawn from a fixed seed
        assert not drawn_from(state, pool=pool, revisit_share=0.0, run_seed=1)[1]
        for request in await bench.facts(EpisodeRequested):
            assert request.revisits == (request.phase == 1 and request.task.id not in own)
        groups = {request.group for request in await bench.facts(EpisodeRequested) if request.revisits}
        assert (await state_of(bench)).phases.revisits == len(groups)

    run_virtually(main())


def test_tasks_of_a_site_that_knows_no_goals_beforehand_stay_beside_the_generated_ones() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.until_second_phase()
        await bench.decide()
        state = await state_of(bench)
        forms = {"forms/fill": {"task_x": SOURCES["forms"].task("fill", 0)}}
        pool = {**configured_pool(bench.sources, bench.settings.curriculum), **forms}
        for number in range(50):
            state.opened["online"] = number
            drawn, revisits = drawn_from(state, pool=pool, revisit_share=0.5, run_seed=1)
            assert ("forms/fill" in drawn) == (not revisits)

    run_virtually(main())


def test_tasks_made_of_a_family_that_is_named_no_more_are_neither_drawn_nor_varied() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.until_second_phase()
        await bench.decide()
        state = await state_of(bench)
        whole = configured_pool(bench.sources, bench.settings.curriculum)
        generated = {family_of(task) for task in state.phases.generated.values()}
        assert len(generated) > 1
        gone = sorted(generated)[0]
        pool = {family: tasks for family, tasks in whole.items() if family != gone}
        for number in range(50):
            state.opened["online"] = number
            drawn, _ = drawn_from(state, pool=pool, revisit_share=0.5, run_seed=1)
            assert gone not in drawn
        assert gone in {family_of(task) for task in basis_of(state, families=whole).failed}
        assert gone not in {family_of(task) for task in basis_of(state, families=pool).failed}

    run_virtually(main())


def test_where_no_site_knows_its_goals_beforehand_every_phase_draws_from_the_settings_tasks() -> None:
    async def main() -> None:
        settings = settings_of()
        curriculum = settings.curriculum.model_copy(
            update={"environments": tuple(SOURCES), "families": (), "revisit_share": 0.5}
        )
        bench = Bench(settings.model_copy(update={"curriculum": curriculum}))
        bench.sources = SOURCES  # type: ignore[assignment]
        await bench.until_second_phase()
        await bench.decide()
        assert len(await bench.facts(PhaseStarted)) == 2
        assert (await state_of(bench)).phases.seeds, "tasks had failed"
        assert {fact.source for fact in await bench.facts(TaskProposed)} == {"seeded"}
        later = [fact for fact in await bench.facts(EpisodeRequested) if fact.phase == 1]
        assert later
        assert not any(fact.revisits for fact in later)

    run_virtually(main())
