"""The verdict on a visit to the store. Reads evidence only, so that judging again is a replay."""

from random import Random
from typing import Any

import msgspec

from hindcast.actors.environments.store.catalogue import build_catalogue
from hindcast.actors.environments.store.control import VisitRecord
from hindcast.actors.environments.store.families import FAMILIES, VisitEnd
from hindcast.actors.environments.store.families.base import distinct
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.seeds import derive_seed


class StoreGoalAchieved(msgspec.Struct, frozen=True, kw_only=True):
    """A goal that a visit did reach, whatever its task was."""

    family: str
    goal: dict[str, Any]
    """As in a task of this family: `evaluate` accepts the visit."""
    instruction: str
    """An instruction that asks for the goal."""
    ordinal: int
    """Number of the fact (from 1) that first reached it. The step that reached it is the one whose observation has a smaller
    `world_ordinal` and whose successor's has not. One past the journal's end when the answer reached it, which is the last
    step.
    """


def _record_of(evidence: Evidence) -> VisitRecord | str:
    try:
        return msgspec.convert(evidence.probes, VisitRecord)
    except msgspec.ValidationError as error:
        return f"the store's record is missing or damaged: {error}"


def ending_of(evidence: Evidence) -> VisitEnd | str:
    """The end of the visit; a string: why it is unknown."""
    record = _record_of(evidence)
    return record if isinstance(record, str) else _ending(record, evidence.answer)


def _ending(record: VisitRecord, answer: str | None) -> VisitEnd:
    return VisitEnd(
        build_catalogue(record.products, record.catalogue_seed),
        opening=record.opening,
        journal=record.journal,
        answer=answer,
    )


def evaluate(task: Task, evidence: Evidence) -> Judgment:
    """Reward 1 when the task's goal is reached at the end, else 0; undecided without a usable record."""
    record = _record_of(evidence)
    if isinstance(record, str):
        return Judgment(outcome="undecided", reward=0.0, reason=record)
    family = FAMILIES.get(task.family)
    if family is None:
        return Judgment(
            outcome="undecided", reward=0.0, reason=f"no evaluator for the family {task.family!r}"
        )
    if record.catalogue != task.goal.get("catalogue"):
        text = (
            f"the store showed catalogue {record.catalogue}, the task is about {task.goal.get('catalogue')}"
        )
        return Judgment(outcome="undecided", reward=0.0, reason=text)
    finding = family.check(task.goal, _ending(record, evidence.answer))
    return Judgment(
        outcome="success" if finding.success else "failure",
        reward=1.0 if finding.success else 0.0,
        reason=finding.reason,
    )


def achieved_goals(evidence: Evidence) -> tuple[StoreGoalAchieved, ...]:
    """Every goal of every family that the visit reached, each once, by ordinal. Empty without a usable record."""
    record = _record_of(evidence)
    if isinstance(record, str):
        return ()
    ending = _ending(record, evidence.answer)
    found: list[StoreGoalAchieved] = []
    for family in FAMILIES.values():
        for index, reached in enumerate(distinct(family.reached(ending))):
            random = Random(derive_seed(record.seed, "store", "hindsight", family.name, index))
            found.append(
                StoreGoalAchieved(
                    family=family.name,
                    goal={**reached.goal, "catalogue": record.catalogue},
                    instruction=family.say(reached.goal, random),
                    ordinal=reached.ordinal,
                )
            )
    return tuple(sorted(found, key=lambda achieved: achieved.ordinal))
