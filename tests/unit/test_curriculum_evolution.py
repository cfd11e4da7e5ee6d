"""Phases and the tasks made for them: what is proposed, on what grounds, and that a restart changes nothing."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bare_step import bare_step
from curriculum_story import NOTHING, RULES, SOURCES, published
from simulation.links import MemoryBlobs
from virtual_time import clock_ns, clock_s, run_virtually

from actors.curriculum.choice import drawn_from
from actors.curriculum.evolving import FirstState
from actors.curriculum.generating import CANDIDATES_PER_TASK, EMBEDDED, verdict_on
from actors.curriculum.phases import spoken
from actors.curriculum.pool import configured_pool
from actors.curriculum.projection import CurriculumProjection
from actors.curriculum.role import run_curriculum
from actors.curriculum.state import CurriculumState
from actors.environments.store.tasks import StoreTasks
from core.errors import SettingsError
from core.evidence import Evidence, Judgment
from core.observation import Page
from core.settings import EvolutionSettings, Settings
from events.catalogue import (
    BatchPlanned,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    PhaseStarted,
    StateValued,
    TaskAdmitted,
    TaskProposed,
    TaskRejected,
    WeightsPublished,
)
from events.envelope import Fact
from events.memory import MemoryLog
from events.publisher import Publisher
from events.reader import read

PHASE = 8
TASKS = 6
DECISIONS = (TaskProposed, StateValued, TaskAdmitted, TaskRejected, PhaseStarted)


def settings_of(**evolution: Any) -> Settings:
    return Settings.model_validate(
        {
            "sites": {"products": 60},
            "curriculum": {
                "environments": ("store",),
                "families": ("store/find_price", "store/find_rating", "store/buy", "store/order_status"),
                "task_pool": 3,
                "group_size": 2,
                "max_running": 8,
                "revisit_share": 0.25,
            },
            "learner": {"phase_episodes": PHASE, "group_batch": 4},
            "evolution": {"generator": "embedded", "tasks_per_phase": TASKS, **evolution},
            "log": {"append_timeout_s": 20},
        }
    )


class Lengths:
    """A critic to whom long instructions look easy: V follows from the words alone."""

    def __init__(self) -> None:
        self.asked = 0

    def values(self, states: Sequence[FirstState], critic: WeightsPublished) -> list[float]:
        self.asked += len(states)
        return [(len(state.instruction) % 11) / 10 for state in states]


class Bench:
    """A curriculum over a log in memory; actors, judge and learner are told."""

    def __init__(self, settings: Settings | None = None, *, valuer: Lengths | None = None) -> None:
        self.settings = settings or settings_of()
        self.log = MemoryLog("r", clock=clock_s)
        self.blobs: Any = MemoryBlobs(Path())
        self.sources = {"store": StoreTasks(self.settings.sites)}
        self.valuer = valuer
        self.played: set[str] = set()

    def publisher(self, name: str) -> Publisher:
        return Publisher(self.log, producer=name, code_rev="", settings=self.settings.log, clock_ns=clock_ns)

    async def tell(self, *facts: Fact) -> None:
        async with self.publisher("story") as publisher:
            for fact in facts:
                await publisher.decide(fact, entity=getattr(fact, "episode", "e"))

    async def decide(self, *, for_s: float = 3, name: str = "curriculum.1") -> None:
        stop = asyncio.Event()
        async with self.publisher(name) as publisher, asyncio.TaskGroup() as tasks:
            tasks.create_task(
                run_curriculum(
                    log=self.log,
                    publisher=publisher,
                    blobs=self.blobs,
                    sources=self.sources,
                    settings=self.settings,
                    stop=stop,
                    clock_ns=clock_ns,
                    demonstrators=(),
                    valuer=self.valuer,
                )
            )
            await asyncio.sleep(for_s)
            stop.set()

    async def facts(self, *kinds: type[Fact]) -> list[Any]:
        return [recorded.fact async for recorded in read(self.log) if isinstance(recorded.fact, kinds)]

    async def play(self, *, failing: bool = True) -> None:
        """Everything requested ends; if `failing` only the tasks of seed 0 are won."""
        page = self.blobs.put(msgspec.msgpack.encode(Page(url="http://store/", title="Store", nodes=())))
        for request in await self.facts(EpisodeRequested):
            if request.episode in self.played:
                continue
            self.played.add(request.episode)
            lost = failing and request.task.seed > 0
            await self.tell(
                EpisodeStarted(episode=request.episode, actor="actor.1", instruction="", renderer=""),
                msgspec.structs.replace(bare_step(request.episode, 0), observation=page),
                ended(request),
                judged(request, won=not lost),
            )

    async def full_phase(self, *, failing: bool = True) -> None:
        """Play until the phase is full."""
        began = len(await self.facts(EpisodeJudged))
        while len(await self.facts(EpisodeJudged)) < began + PHASE:
            await self.decide()
            await self.play(failing=failing)

    async def until_second_phase(self) -> None:
        await self.tell(published(0))
        await self.full_phase()
        await self.tell(planned(0), published(1))

    async def copy(self, count: int) -> "Bench":
        """A run whose log holds the first `count` events of this one, under the names of their producers."""
        other = Bench(self.settings, valuer=None if self.valuer is None else Lengths())
        other.blobs = self.blobs
        recordeds = [recorded async for recorded in read(self.log)][:count]
        for recorded in recordeds:
            async with other.publisher("story") as publisher:
                await publisher.decide(recorded.fact, entity=recorded.envelope.entity)
        return other


def ended(request: EpisodeRequested) -> EpisodeEnded:
    return EpisodeEnded(
        episode=request.episode,
        task_id=request.task.id,
        actor="actor.1",
        reason="done",
        steps=1,
        evidence=Evidence(answer=None, final_url="", probes={}),
        final_observation=None,
        policy_versions=(0, 0),
        duration_ms=1.0,
    )


def judged(request: EpisodeRequested, *, won: bool) -> EpisodeJudged:
    judgment = Judgment(outcome="success" if won else "failure", reward=float(won), reason="")
    return EpisodeJudged(episode=request.episode, task_id=request.task.id, judge=RULES, judgment=judgment)


def planned(batch: int) -> BatchPlanned:
    return BatchPlanned(
        batch=batch,
        algorithm="grpo",
        as_of=1,
        log_digest=b"",
        positions=b"",
        sample_digests=b"",
        minibatches=b"",
        episodes=(),
        consumed=(),
        seed=0,
        version=batch,
        reference_version=None,
        proximal_version=None,
        critic_version=None,
        config_digest="",
    )


def critic(version: int) -> WeightsPublished:
    return WeightsPublished(version=version, model="critic", weights=NOTHING, update=version)


async def state_of(bench: Bench) -> CurriculumState:
    projection = CurriculumProjection.under(bench.settings)
    state = projection.initial()
    async for recorded in read(bench.log):
        state = projection.apply(state, recorded)
    return state


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
        spoken_of = [spoken(fact.task.instruction) for fact in proposed]
        assert len(set(spoken_of)) == len(spoken_of)
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
        def values(self, states: Sequence[FirstState], critic: WeightsPublished) -> list[float]:
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
    fact = verdict_on(task, value=value, phase=1, settings=EvolutionSettings(), spaces={"store": source})
    if reason is None:
        assert fact == TaskAdmitted(task_id=task.id, phase=1, value=value)
    else:
        assert isinstance(fact, TaskRejected)
        assert fact.reason == reason


def test_what_cannot_be_done_is_rejected_with_the_reason_unless_nobody_asks() -> None:
    source = StoreTasks(settings_of().sites)
    task = source.task("find_price", 0)
    task = msgspec.structs.replace(task, goal={**task.goal, "answer": "$0.01"})
    asked = verdict_on(task, value=0.5, phase=1, settings=EvolutionSettings(), spaces={"store": source})
    assert isinstance(asked, TaskRejected)
    assert asked.reason.startswith("unreachable: ")
    assert asked.value == 0.5
    free = verdict_on(
        task, value=0.5, phase=1, settings=EvolutionSettings(feasibility="none"), spaces={"store": source}
    )
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


def test_generated_tasks_need_a_site_whose_goals_are_known() -> None:
    async def main() -> None:
        bench = Bench()
        bench.sources = SOURCES  # type: ignore[assignment]
        curriculum = bench.settings.curriculum.model_copy(
            update={"environments": tuple(SOURCES), "families": ()}
        )
        bench.settings = bench.settings.model_copy(update={"curriculum": curriculum})
        with pytest.raises(ExceptionGroup) as raised:
            await bench.decide()
        (error,) = raised.value.exceptions
        assert isinstance(error, SettingsError)
        assert "none of the run's environments knows its goals" in str(error)

    run_virtually(main())
