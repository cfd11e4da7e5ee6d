"""What others say of a curriculum in phases: the audit, the read model, the command."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from fakes.virtual_time import run_virtually
from hindcast.core.rl.statistics import wilson
from hindcast.events.catalogue import (
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    PhaseStarted,
    RecipeChanged,
    StateValued,
    TaskAdmitted,
    TaskChecked,
    TaskProposed,
    TaskRejected,
)
from hindcast.events.catalogue.consulted import Consulted
from hindcast.events.envelope import Fact, Recorded
from hindcast.events.log.reader import read
from hindcast.storage.audit.audit import audit
from hindcast.storage.audit.defects import Defect
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.fold import apply
from hindcast.storage.readmodel.task_queries import list_phases, list_tasks
from stories.curriculum_story import run_started
from stories.evolving_story import TASKS, Bench, Lengths, critic


@pytest.fixture(scope="module")
def told() -> Bench:
    """Two phases, the second with tasks that a critic filtered and of which some were played."""

    async def main() -> Bench:
        bench = Bench(valuer=Lengths())
        await bench.tell(run_started(bench.settings), critic(3))
        await bench.until_second_phase()
        await bench.decide()
        await bench.play()
        return bench

    return run_virtually(main())


def checked(task: str, *, feasible: bool | None) -> TaskChecked:
    consulted = Consulted(
        model="m", request="0" * 64, answer="", prompt_tokens=1, answer_tokens=1, cost_usd=0.0, tries=1
    )
    return TaskChecked(
        task_id=task,
        feasible=feasible,
        reason="so it looks",
        checker="endpoint/1 m",
        prompt="0" * 64,
        consulted=consulted,
    )


def of_tasks(bench: Bench, *added: tuple[str, Fact]) -> list[Defect]:
    """What the audit holds against tasks, once facts are added."""

    async def main() -> list[Defect]:
        other = await bench.copy(10**6)
        for producer, fact in added:
            await other.tell(fact, by=producer)
        report = await audit(other.log, other.blobs, depth="none")
        return [defect for defect in report.defects if defect.check in ("task", "reference")]

    return run_virtually(main())


def facts(bench: Bench, kind: type[Fact]) -> list[Any]:
    return run_virtually(bench.facts(kind))


def generated(bench: Bench) -> list[TaskProposed]:
    return [fact for fact in facts(bench, TaskProposed) if fact.source == "generated"]


def fresh(bench: Bench, **changes: Any) -> TaskProposed:
    """A generated task that was not proposed."""
    like = generated(bench)[0]
    task = msgspec.structs.replace(like.task, instruction="Something else.")
    return msgspec.structs.replace(like, task=task, **changes)


def test_the_audit_holds_nothing_against_tasks_made_by_the_rules(told: Bench) -> None:
    assert of_tasks(told) == []


def test_the_audit_finds_tasks_that_do_not_follow_from_the_log(told: Bench) -> None:
    won = next(fact.task_id for fact in facts(told, EpisodeJudged) if fact.judgment.outcome == "success")
    rejected = facts(told, TaskRejected)[0]
    proposal = fresh(told)
    name = proposal.task.id
    cases: list[tuple[list[Fact], str]] = [
        ([fresh(told, parents=())], "a generated task has no parents"),
        ([fresh(told, parents=(won,))], "had not failed"),
        ([fresh(told, phase=5)], "for a phase that is not under way"),
        ([proposal, TaskAdmitted(task_id=name, phase=0)], "for another phase than it was made for"),
        ([proposal, TaskAdmitted(task_id=name, phase=1, value=0.9)], "not within the window"),
        (
            [
                proposal,
                StateValued(task_id=name, critic_version=3, value=0.5),
                TaskAdmitted(task_id=name, phase=1, value=0.6),
            ],
            "another value than the state was given",
        ),
        ([TaskAdmitted(task_id=rejected.task_id, phase=1, value=rejected.value)], "not within the window"),
        ([PhaseStarted(phase=1, reference_version=1)], "a phase begins again"),
    ]
    for added, what in cases:
        (defect,) = of_tasks(told, *(("curriculum.1", fact) for fact in added))
        assert what in defect.what


def test_the_audit_wants_a_yes_where_a_model_is_to_be_asked(told: Bench) -> None:
    proposal = fresh(told)
    name = proposal.task.id
    asks = RecipeChanged(author="a", reason="", changes={"evolution": {"feasibility": "endpoint"}})
    admitted = TaskAdmitted(task_id=name, phase=1)
    for answer in (None, False):
        told_so = [] if answer is None else [checked(name, feasible=answer)]
        (defect,) = of_tasks(told, *(("curriculum.1", fact) for fact in (asks, proposal, *told_so, admitted)))
        assert "no model said that the task can be done" in defect.what
    sound = (asks, proposal, checked(name, feasible=True), admitted)
    assert of_tasks(told, *(("curriculum.1", fact) for fact in sound)) == []
    (defect,) = of_tasks(told, ("curriculum.1", checked("task_0", feasible=True)))
    assert "was never proposed" in defect.what
    (defect,) = of_tasks(told, *(("curriculum.1", fact) for fact in (*sound[:3], sound[2], admitted)))
    assert f"the task {name} is checked again" in defect.what


def test_the_audit_lets_what_was_under_way_when_settings_changed_end_under_those_it_began_with(
    told: Bench,
) -> None:
    def change(**evolution: Any) -> RecipeChanged:
        return RecipeChanged(author="a", reason="", changes={"evolution": evolution})

    proposal = fresh(told)
    name = proposal.task.id
    low = TaskAdmitted(task_id=name, phase=1, value=0.1)
    unasked = TaskAdmitted(task_id=name, phase=1)
    narrow, asks = change(value_low=0.2), change(feasibility="endpoint")
    for facts_, what in (
        ((proposal, narrow, low), ""),
        ((narrow, proposal, low), "not within the window"),
        ((narrow, change(tasks_per_phase=7), proposal, low), "not within the window"),
        ((proposal, narrow, change(value_low=0.3), low), ""),
        ((proposal, asks, unasked), ""),
        ((asks, proposal, unasked), "no model said"),
        ((asks, proposal, change(feasibility="rules"), unasked), ""),
    ):
        defects = of_tasks(told, *(("curriculum.1", fact) for fact in facts_))
        assert len(defects) == bool(what)
        assert all(what in defect.what for defect in defects)


@pytest.fixture
def model(told: Bench, tmp_path: Any) -> Any:
    async def recordeds() -> list[Recorded]:
        return [recorded async for recorded in read(told.log)]

    model = ReadModel(f"sqlite:///{tmp_path}/model.sqlite", run="r")
    model.prepare()
    with model.writing() as connection:
        apply(connection, run_virtually(recordeds()))
    yield model
    model.close()


def test_phases_are_counted_as_by_hand(told: Bench, model: ReadModel) -> None:
    with model.reading() as connection:
        first, second = list_phases(connection)
    own = {fact.task.id for fact in generated(told)}
    assert (first.phase, first.proposed, first.admitted, first.rejected) == (0, 12, 12, {})
    assert (first.valued, first.value_median, first.changes) == (0, None, {})
    assert (second.phase, second.reference_version) == (1, 1)
    assert (second.proposed, second.admitted) == (len(own), TASKS)
    reasons = Counter(fact.reason for fact in facts(told, TaskRejected))
    assert second.rejected == dict(reasons)
    assert set(reasons) <= {"too hard", "too easy"}
    assert second.changes == dict(Counter(fact.change for fact in generated(told)))
    values = sorted(fact.value for fact in facts(told, StateValued))
    assert second.valued == len(own) == len(values)
    assert (second.value_low, second.value_high) == (values[0], values[-1])
    requests = {fact.episode: fact for fact in facts(told, EpisodeRequested)}
    outcomes = {fact.episode: fact.judgment.outcome for fact in facts(told, EpisodeJudged)}
    assert len(outcomes) == len(facts(told, EpisodeEnded))
    for row in (first, second):
        played = [
            r for r in requests.values() if (r.task.id in own) == (row.phase == 1) and r.episode in outcomes
        ]
        won = sum(outcomes[r.episode] == "success" for r in played)
        assert (row.success.judged, row.success.successes) == (len(played), won)
        assert row.success.low == wilson(won, len(played)).low
        assert row.episodes == sum(r.phase == row.phase for r in requests.values())
        revisited = [r for r in requests.values() if r.revisits and r.phase == row.phase]
        assert row.revisits.judged == sum(r.episode in outcomes for r in revisited)


def test_tasks_say_why_they_were_rejected_and_what_they_were_worth(told: Bench, model: ReadModel) -> None:
    with model.reading() as connection:
        rows = {row.task: row for row in list_tasks(connection, phase=1, limit=1000)}
    assert set(rows) == {fact.task.id for fact in generated(told)}
    for fact in facts(told, TaskRejected):
        row = rows[fact.task_id]
        assert (row.state, row.reason, row.value) == ("rejected", fact.reason, fact.value)
    for fact in generated(told):
        assert rows[fact.task.id].change == fact.change
