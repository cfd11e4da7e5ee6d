"""Tasks in words from failed ones, by a model behind an endpoint: what is asked, what is proposed, who may judge it."""

import asyncio
import json
from typing import Any

import pytest

from fakes.virtual_time import run_virtually
from hindcast.actors.curriculum.evolution import Evolver, Told
from hindcast.actors.curriculum.phases import wording
from hindcast.actors.curriculum.pool import configured_pool
from hindcast.actors.curriculum.state import CurriculumState
from hindcast.actors.curriculum.task_generator import PROMPT, TaskGenerator, new_tasks
from hindcast.actors.endpoint.client import Endpoint
from hindcast.actors.judges.base import reach_verdict
from hindcast.actors.judges.rules import RuleJudge
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.evidence import Evidence
from hindcast.core.errors import SettingsError
from hindcast.core.settings.endpoint import EndpointSettings
from hindcast.events.catalogue import TaskAdmitted, TaskProposed
from servers.chat_server import Body, ChatServer, Reaction, chatting, fails, in_turn, says
from stories.evolving_story import TASKS, Bench, settings_of, state_of
from stories.judge_story import judged_episode

SETTINGS = settings_of(feasibility="none")


def told(*tasks: tuple[int, str]) -> Reaction:
    listed = [{"varies": varies, "instruction": instruction} for varies, instruction in tasks]
    return says(json.dumps({"tasks": listed}))


@pytest.fixture(scope="module")
def story() -> tuple[Bench, CurriculumState]:
    """A run whose second phase begins: most of what was asked for has failed."""

    async def main() -> tuple[Bench, CurriculumState]:
        bench = Bench(SETTINGS)
        await bench.until_second_phase()
        return bench, await state_of(bench)

    bench, state = run_virtually(main())
    state.phase = 1
    state.phases.begin(episodes=8)
    assert len(state.phases.seeds) > 2
    return bench, state


async def next_facts(server: ChatServer, bench: Bench, state: CurriculumState) -> list[Told]:
    endpoint = EndpointSettings(base_url=server.base_url, model="maker", retries=0)
    async with Endpoint(endpoint, environment={}) as asked:
        evolver = Evolver(
            sources=bench.sources,
            pool=configured_pool(bench.sources, SETTINGS.curriculum),
            settings=SETTINGS,
            blobs=bench.blobs,
            valuer=None,
            inventor=TaskGenerator(asked, run_seed=1),
        )
        return await evolver.next_facts(state)


def proposed(facts: list[Told]) -> list[TaskProposed]:
    found = [fact for fact, _ in facts]
    assert all(isinstance(fact, TaskProposed) for fact in found)
    return found  # type: ignore[return-value]


def test_new_tasks_begin_where_failed_ones_did_and_have_a_goal_in_words(
    story: tuple[Bench, CurriculumState],
) -> None:
    bench, state = story
    known = state.phases.seeds[0].instruction
    answer = told(
        (1, "Find the cheapest lamp."), (2, "Buy  two mugs."), (1, known.upper()), (1, "buy two mugs")
    )
    with chatting(in_turn(answer)) as server:
        facts = proposed(asyncio.run(next_facts(server, bench, state)))
    assert [fact.task.instruction for fact in facts] == ["Find the cheapest lamp.", "Buy two mugs."], (
        "once each"
    )
    seeds = {task.id: task for task in state.phases.seeds}
    for fact in facts:
        parent = seeds[fact.parents[0]]
        assert (fact.task.family, fact.task.seed, fact.task.max_steps) == (
            parent.family,
            parent.seed,
            parent.max_steps,
        )
        assert fact.task.goal == {"words": fact.task.instruction}
        assert (fact.phase, fact.source, fact.generator) == (1, "generated", "endpoint/1 maker")
        assert fact.prompt == PROMPT.digest
    first, second = facts
    assert first.consulted is not None
    assert second.consulted is None, "one answer is paid for once"
    question = server.asked[0]["messages"]
    assert f"Write {TASKS} tasks." in question[0]["content"]
    assert all(task.instruction in question[1]["content"] for task in state.phases.seeds[:16])
    assert "page Store" in question[1]["content"], "the page that its family begins on"


async def test_rules_cannot_judge_a_goal_in_words(story: tuple[Bench, CurriculumState]) -> None:
    parent = story[1].phases.seeds[0]
    ((task, _),) = new_tasks(json.dumps({"tasks": [{"varies": 1, "instruction": "Go."}]}), [parent])
    evidence = Evidence(answer="done", final_url="http://store/", probes={})
    verdict = await reach_verdict(RuleJudge(), judged_episode(task, evidence), timeout_s=60)
    assert verdict.judgment.outcome == "undecided"


def test_candidates_are_admitted_as_they_come_and_none_comes_twice(
    story: tuple[Bench, CurriculumState],
) -> None:
    bench, _ = story

    async def again() -> CurriculumState:
        return await state_of(bench)

    state = run_virtually(again())
    state.phase = 1
    state.phases.begin(episodes=8)
    with chatting(in_turn(told((1, "One."), (1, "Two.")))) as server:
        facts = proposed(asyncio.run(next_facts(server, bench, state)))
        for fact in facts:
            state.proposed.add(fact.task.id)
            state.phases.propose(fact)
        decided = [fact for fact, _ in asyncio.run(next_facts(server, bench, state))]
        assert decided == [TaskAdmitted(task_id=fact.task.id, phase=1) for fact in facts]
        state.admitted |= {fact.task.id for fact in facts}
        assert asyncio.run(next_facts(server, bench, state)) == [], "equal tasks once more are none"
    assert "One.\nTwo." in server.asked[1]["messages"][1]["content"]
    assert wording(facts[0].task) in state.phases.asked


@pytest.mark.parametrize("reaction", [fails(500), says(None, refusal="no"), says("{}"), told((99, "x"))])
def test_where_no_answer_comes_the_phase_goes_on_as_it_is(
    story: tuple[Bench, CurriculumState], reaction: Reaction
) -> None:
    bench, state = story
    with chatting(in_turn(reaction)) as server:
        assert asyncio.run(next_facts(server, bench, state)) == []


def test_nothing_is_asked_where_nothing_failed(story: tuple[Bench, CurriculumState]) -> None:
    bench, _ = story

    def rule(_: Body) -> Reaction:
        raise AssertionError("it was asked")

    async def fresh() -> CurriculumState:
        return await state_of(bench)

    state = run_virtually(fresh())
    state.phase = 1
    state.phases.begin(episodes=8)
    state.phases.seeds = []
    with chatting(rule) as server:
        assert asyncio.run(next_facts(server, bench, state)) == []
    assert server.asked == []


ENDPOINT: list[str] = ["endpoint.base_url=http://h/v1", "endpoint.model=m", "learner.phase_episodes=8"]


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ([], "must begin with endpoint, orm or webrl_orm"),
        (["judge.judges=rules,endpoint"], "must begin with endpoint, orm or webrl_orm"),
        (["judge.judges=endpoint,rules"], "evolution.feasibility = 'rules'"),
    ],
)
def test_goals_in_words_need_a_judge_that_reads(overrides: list[str], why: str) -> None:
    generator: list[Any] = ["evolution.generator=endpoint", *ENDPOINT, *overrides]
    with pytest.raises(SettingsError, match=why):
        resolve(environment={}, overrides=generator)


def test_the_settings_of_the_documentation_go_together() -> None:
    values = ["evolution.generator=endpoint", "evolution.feasibility=none", "judge.judges=endpoint,rules"]
    settings = resolve(environment={}, overrides=[*ENDPOINT, *values]).settings
    assert settings.evolution.generator == "endpoint"
