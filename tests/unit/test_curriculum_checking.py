"""Whether a generated task can be done, asked of a model: who is asked about what, what is made of the answer, what is kept."""

import asyncio
import json
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from fakes.virtual_time import run_virtually
from hindcast.actors.curriculum.evolution import Evolver, Told
from hindcast.actors.curriculum.feasibility import PROMPT, FeasibilityChecker
from hindcast.actors.curriculum.pool import configured_pool
from hindcast.actors.curriculum.projection import CurriculumProjection
from hindcast.actors.curriculum.snapshots import curriculum_kind
from hindcast.actors.curriculum.state import CurriculumState
from hindcast.actors.endpoint.client import Endpoint
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.endpoint import EndpointSettings
from hindcast.events.catalogue import TaskAdmitted, TaskChecked, TaskProposed, TaskRejected
from hindcast.events.envelope import Envelope, Fact, Recorded
from hindcast.events.registry import BY_CLASS
from servers.chat_server import Body, ChatServer, Reaction, chatting, fails, says
from stories.evolving_story import Bench, settings_of, state_of

SETTINGS = settings_of(feasibility="endpoint")
SAID = {
    "Find a lamp.": {"reason": "Lamps are sold.", "feasible": "YES"},
    "Fly to the moon.": {"reason": "A shop does not fly.", "feasible": "NO"},
}


def answers(body: Body) -> Reaction:
    """By the task that is asked about; about any other there is no answer."""
    question = body["messages"][1]["content"]
    said = next((answer for words, answer in SAID.items() if f"<task>\n{words}\n</task>" in question), None)
    return says(json.dumps(said)) if said else fails(500)


@pytest.fixture
def story() -> tuple[Bench, CurriculumState]:
    """A run whose second phase has begun, with three candidates in words."""

    async def main() -> tuple[Bench, CurriculumState]:
        bench = Bench(settings_of())
        await bench.until_second_phase()
        return bench, await state_of(bench)

    bench, state = run_virtually(main())
    state.phase = 1
    state.phases.begin(episodes=8)
    parent = state.phases.seeds[0]
    for words in (*SAID, "Read my mind."):
        task = msgspec.structs.replace(parent, instruction=words, goal={"words": words})
        proposed = TaskProposed(task=task, source="generated", parents=(parent.id,), phase=1)
        state.proposed.add(task.id)
        state.phases.propose(proposed)
    return bench, state


def asking(server: ChatServer) -> Endpoint:
    settings = EndpointSettings(base_url=server.base_url, model="reader", retries=0)
    return Endpoint(settings, environment={})


def evolver_of(bench: Bench, endpoint: Endpoint) -> Evolver:
    return Evolver(
        sources=bench.sources,
        pool=configured_pool(bench.sources, SETTINGS.curriculum),
        settings=SETTINGS,
        blobs=bench.blobs,
        valuer=None,
        checker=FeasibilityChecker(endpoint),
    )


async def decide(server: ChatServer, bench: Bench, state: CurriculumState) -> list[Told]:
    async with asking(server) as endpoint:
        return await evolver_of(bench, endpoint).next_facts(state)


def candidates(state: CurriculumState) -> list[Task]:
    return [state.phases.generated[name] for name in state.phases.candidates]


def test_what_a_model_calls_feasible_is_admitted_and_all_else_rejected_with_its_reason(
    story: tuple[Bench, CurriculumState],
) -> None:
    bench, state = story
    with chatting(answers) as server:
        told = asyncio.run(decide(server, bench, state))
    lamp, moon, mind = candidates(state)
    assert [entity for _, entity in told] == [lamp.id, lamp.id, moon.id, moon.id, mind.id, mind.id]
    checks = [fact for fact, _ in told if isinstance(fact, TaskChecked)]
    assert [(fact.feasible, fact.checker) for fact in checks] == [
        (True, "endpoint/1 reader"),
        (False, "endpoint/1 reader"),
        (None, "endpoint/1 reader"),
    ]
    assert all(fact.prompt == PROMPT.digest for fact in checks)
    assert [fact.consulted.tries for fact in checks] == [1, 1, 1]
    verdicts = [fact for fact, _ in told if not isinstance(fact, TaskChecked)]
    assert verdicts[:2] == [
        TaskAdmitted(task_id=lamp.id, phase=1),
        TaskRejected(task_id=moon.id, reason="unreachable: A shop does not fly."),
    ]
    last = verdicts[2]
    assert isinstance(last, TaskRejected)
    assert last.reason.startswith("unchecked: outage: "), "who cannot be asked has not said yes"
    question = server.asked[0]["messages"][1]["content"]
    assert state.phases.seeds[0].instruction in question, "what the site itself asks for"
    assert "page Store" in question, "the page that its family begins on"


def test_what_the_log_holds_is_not_asked_again_nor_what_its_value_rules_out(
    story: tuple[Bench, CurriculumState],
) -> None:
    bench, state = story
    lamp, moon, mind = candidates(state)
    with chatting(answers) as server:
        before = asyncio.run(decide(server, bench, state))
        # a crash right behind the first two answers: neither task was decided on
        state.phases.checked |= {
            fact.task_id: fact
            for fact, _ in before
            if isinstance(fact, TaskChecked) and fact.task_id != mind.id
        }
        state.phases.values[mind.id] = 0.99
        server.asked.clear()
        again = [fact for fact, _ in asyncio.run(decide(server, bench, state))]
        assert server.asked == []
    assert again == [
        TaskAdmitted(task_id=lamp.id, phase=1),
        TaskRejected(task_id=moon.id, reason="unreachable: A shop does not fly."),
        TaskRejected(task_id=mind.id, reason="too easy", value=0.99),
    ]
    state.phases.begin(episodes=8)
    assert state.phases.checked == {}, "a phase's own"


def test_a_task_that_a_model_invented_is_never_shown_as_one_of_the_sites_own(
    story: tuple[Bench, CurriculumState],
) -> None:
    bench, state = story
    lamp, moon, mind = candidates(state)
    for task in (lamp, moon):
        state.phases.judge(task, 0.0, episodes=8)
    state.phase = 2
    state.phases.begin(episodes=8)
    assert state.phases.seeds == [lamp, moon], "they failed, as what nobody can do does"
    invented = TaskProposed(task=mind, source="generated", parents=(moon.id,), phase=2)
    del state.phases.generated[mind.id]
    state.phases.propose(invented)
    with chatting(answers) as server:
        asyncio.run(decide(server, bench, state))
    (question,) = (body["messages"][1]["content"] for body in server.asked)
    own = question.partition("<own>\n")[2].partition("\n</own>")[0].splitlines()
    pool = configured_pool(bench.sources, SETTINGS.curriculum)
    assert sorted(own) == sorted(task.instruction for tasks in pool.values() for task in tasks.values())
    assert set(own[: len(pool)]) == {next(iter(tasks.values())).instruction for tasks in pool.values()}


def folded(state: CurriculumState, facts: Sequence[Fact]) -> CurriculumState:
    """The state after these facts."""
    projection, state = CurriculumProjection.under(SETTINGS), deepcopy(state)
    for fact in facts:
        kind, last = BY_CLASS[type(fact)], state.position
        envelope = Envelope(
            id=f"{last + 1}",
            type=kind.name,
            version=kind.version,
            run="r",
            entity="e",
            ordinal=0,
            causation=None,
            correlation=None,
            producer="curriculum.1",
            incarnation="1",
            producer_seq=last,
            prev_hash=b"",
            occurred_ns=last,
            policy_version=None,
            code_rev="",
            payload=msgspec.Raw(b"\x80"),
        )
        state = projection.apply(state, Recorded(last + 1, envelope, fact, bytes(32)))
    return state


async def to_the_end(
    endpoint: Endpoint, bench: Bench, state: CurriculumState, before: Sequence[Fact] = ()
) -> list[Any]:
    """All facts about the phase's tasks, those from `before` included, until nothing is left to decide."""
    facts, evolver = list(before), evolver_of(bench, endpoint)
    state = folded(state, before)
    while told := await evolver.next_facts(state):
        new = [fact for fact, _ in told]
        facts += new
        state = folded(state, new)
    return facts


def of(facts: Sequence[Any], kind: type[Fact]) -> dict[str, Any]:
    found = {fact.task_id: fact for fact in facts if isinstance(fact, kind)}
    assert len(found) == sum(isinstance(fact, kind) for fact in facts), "once each"
    return found


def proposed(facts: Sequence[Any]) -> dict[str, Task]:
    return {fact.task.id: fact.task for fact in facts if isinstance(fact, TaskProposed)}


def by_sum(body: Body) -> Reaction:
    """What a model might say of any task: follows from its words alone."""
    task, _, _ = body["messages"][1]["content"].partition("</task>")
    said = "NO" if sum(task.encode()) % 2 else "YES"
    return says(json.dumps({"reason": "so it looks", "feasible": said}))


def test_a_curriculum_that_dies_after_any_event_decides_the_same_and_asks_about_no_task_twice(
    story: tuple[Bench, CurriculumState],
) -> None:
    bench, state = story

    async def main(server: ChatServer) -> list[Any]:
        async with asking(server) as endpoint:
            facts = await to_the_end(endpoint, bench, state)
            checks = of(facts, TaskChecked)
            assert len(server.asked) == len(checks)
            for count in range(len(facts)):
                server.asked.clear()
                again = await to_the_end(endpoint, bench, state, facts[:count])
                assert proposed(again) == proposed(facts)
                assert of(again, TaskAdmitted) == of(facts, TaskAdmitted)
                assert of(again, TaskRejected) == of(facts, TaskRejected)
                assert len(server.asked) == len(checks) - len(of(facts[:count], TaskChecked))
        return facts

    with chatting(by_sum) as server:
        facts = asyncio.run(main(server))
    checks = of(facts, TaskChecked)
    assert set(checks) == set(proposed(facts)) | set(state.phases.candidates)
    assert {fact.feasible for fact in checks.values()} == {True, False}
    after = folded(state, facts)
    assert after.phases.checked == checks
    kind = curriculum_kind(SETTINGS)
    assert kind.decode(kind.encode(after)) == after, "a snapshot holds the answers"


@pytest.mark.parametrize(
    ("reaction", "why"),
    [
        (says(None, refusal="no"), "unchecked: refusal: "),
        (fails(401), "unchecked: rejected: "),
        (says(json.dumps({"reason": "?", "feasible": "MAYBE"})), "unchecked: malformed: "),
    ],
)
def test_no_task_is_lost_where_no_answer_comes(
    story: tuple[Bench, CurriculumState], reaction: Reaction, why: str
) -> None:
    bench, state = story

    async def main(server: ChatServer) -> list[Any]:
        async with asking(server) as endpoint:
            return await to_the_end(endpoint, bench, state)

    with chatting(lambda _: reaction) as server:
        facts = asyncio.run(main(server))
    rejected = of(facts, TaskRejected)
    assert set(rejected) == set(of(facts, TaskChecked)) == set(proposed(facts)) | set(state.phases.candidates)
    assert all(fact.reason.startswith(why) for fact in rejected.values())


def test_an_answer_without_its_form_is_asked_for_once_more_and_both_are_counted(
    story: tuple[Bench, CurriculumState],
) -> None:
    bench, state = story
    seen: set[str] = set()

    def rule(body: Body) -> Reaction:
        question = body["messages"][1]["content"]
        if question in seen:
            return by_sum(body)
        seen.add(question)
        return says("It can be done.")

    with chatting(rule) as server:
        told = asyncio.run(decide(server, bench, state))
    checks = of([fact for fact, _ in told], TaskChecked)
    assert len(checks) == 3
    assert None not in {fact.feasible for fact in checks.values()}
    assert {(fact.consulted.tries, fact.consulted.prompt_tokens) for fact in checks.values()} == {(2, 200)}


WORDS = ["evolution.generator=endpoint", "evolution.feasibility=endpoint", "judge.judges=endpoint,rules"]
SERVER = ["endpoint.base_url=http://h/v1", "endpoint.model=m"]


def test_a_model_may_be_asked_about_tasks_in_words_and_about_varied_ones() -> None:
    for generator in (WORDS, ["evolution.generator=embedded", "evolution.feasibility=endpoint"]):
        settings = resolve(
            environment={}, overrides=["learner.phase_episodes=8", *SERVER, *generator]
        ).settings
        assert settings.evolution.feasibility == "endpoint"
        with pytest.raises(SettingsError, match=r"evolution.feasibility asks the endpoint"):
            resolve(environment={}, overrides=["learner.phase_episodes=8", *generator])
