"""The audit of evaluations: a true one has no defect, and a false one is found where it is."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hindcast.core.domain.task import FIRST_EVALUATION_SEED
from hindcast.events.catalogue import EvaluationFinished, EvaluationStarted
from hindcast.events.catalogue.evaluation import EvaluationResult
from hindcast.storage.audit.audit import AuditReport
from stories.forged_log import add, audited, forge, positions, values
from stories.training_story import Bench, Member, bench, learn, tell

pytestmark = [pytest.mark.broker, pytest.mark.torch]

TASK = f"store/find:{FIRST_EVALUATION_SEED}"
STARTED = EvaluationStarted(number=0, version=0, tasks=(TASK,), temperatures=(1.0,))
RESULT = EvaluationResult(temperature=1.0, family="store/find", successes=1, failures=0, lost=0, reward=1.0)


def finished(**changes: Any) -> EvaluationFinished:
    values = {"number": 0, "version": 0, "results": (RESULT,), **changes}
    return EvaluationFinished(version_low=0, version_high=0, seconds=1.0, share=0.1, **values)


async def evaluated(folder: Path, end: EvaluationFinished) -> Bench:
    """A trained run with one evaluation of one episode, a success."""
    made = await bench(folder)
    await add(made.log, STARTED, producer="curriculum.1", entity="run")
    played = made.story.group(Member(1.0, 1, origin="evaluation"), seed=FIRST_EVALUATION_SEED)
    await tell(made.log, played)
    await add(made.log, end, producer="curriculum.1", entity="run")
    await learn(made, until=2)
    return made


def defects(report: AuditReport) -> list[str]:
    return [defect.what for defect in report.defects]


async def test_a_true_evaluation_has_no_defects(tmp_path: Path) -> None:
    report = await audited(await evaluated(tmp_path, finished()))
    assert defects(report) == []
    assert report.batches


WRONG = [
    ({"results": (replace(RESULT, successes=0, failures=1),)}, "successes and failures of store/find at 1"),
    ({"results": (replace(RESULT, lost=1),)}, "tasks of store/find"),
    ({"number": 3}, "its number"),
]


@pytest.mark.parametrize(("changes", "what"), WRONG, ids=[what for _, what in WRONG])
async def test_results_that_the_verdicts_do_not_give_are_found(
    tmp_path: Path, changes: dict[str, Any], what: str
) -> None:
    made = await evaluated(tmp_path, finished(**changes))
    report = await audited(made)
    assert defects(report) == [what]
    assert [defect.position for defect in report.defects] == positions(made.log, "evaluation.finished")


async def test_an_evaluation_that_starts_while_another_goes_on_is_found(tmp_path: Path) -> None:
    made = await evaluated(tmp_path, finished())
    for number in (1, 2):
        await add(made.log, replace(STARTED, number=number), producer="curriculum.1", entity="run")
    assert defects(await audited(made)) == ["it starts while another evaluation is open"]


async def test_a_task_that_is_evaluated_and_trained_on_is_found(tmp_path: Path) -> None:
    made = await evaluated(tmp_path, finished())
    trained = made.story.group(Member(1.0, 1), seed=FIRST_EVALUATION_SEED)
    await tell(made.log, trained)
    (found,) = defects(await audited(made))
    assert found.startswith("it trains on task_")
    assert found.endswith("a task of evaluations")


async def test_a_batch_with_an_episode_of_an_evaluation_is_found(tmp_path: Path) -> None:
    made = await evaluated(tmp_path, finished())
    (asked,) = [
        fact["episode"]
        for at in positions(made.log, "episode.requested")
        if (fact := values(made.log.events[at - 1])["payload"])["origin"] == "evaluation"
    ]
    plan = positions(made.log, "batch.planned")[0]
    forge(made.log, plan, lambda event: event["payload"]["episodes"][0].update(episode=asked))
    found = [defect for defect in (await audited(made)).defects if "which is an evaluation" in defect.what]
    assert [defect.position for defect in found] == [plan]
