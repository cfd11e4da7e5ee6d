"""What an episode in the store achieved, whatever its task: goals, the step that first reached each, and relevant steps.

It uses only rules over recorded data. Each task family (`families`) finds its own goals in the session's journal. Goals
that differ only in the words for the same thing count as one, worded as the episode's own search where possible. The
first achievement is the step with the first facts for which the goal holds.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec

from hindcast.actors.environments.store.evaluators import StoreGoalAchieved, achieved_goals, ending_of
from hindcast.actors.environments.store.families import FAMILIES, Goal, ReachedGoal, VisitEnd
from hindcast.actors.environments.store.relevance import Walk, needed_facts, relevant_steps
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task
from hindcast.core.seeds import derive_seed

POINTING = ("phrase", "query", "sort", "title")
"""Parts of a goal that only identify the product, order or line of the cart."""
OWN_WORDS = {"compare": ("query",), "find_product": (), "impossible": (*POINTING, "size")}
"""Families in which other or fewer parts are mere words."""


class Hindsight(NamedTuple):
    """A goal that an episode achieved."""

    family: str
    goal: Goal
    """As in a task of the family: its evaluator accepts the episode up to `until_step`."""
    instruction: str
    until_step: int
    """Exclusive end of the demonstration: the step before it first reached the goal."""
    relevance: tuple[float, ...]
    """1 or 0 per step up to `until_step`; see `relevance`."""


def meaning(family: str, goal: Goal) -> bytes:
    """A goal without its wording: equal for goals that count as one."""
    words = OWN_WORDS.get(family, POINTING)
    if goal.get("kind") == "product":
        words = ()  # among impossible goals, a product that does not exist is identified by its words alone
    stripped: dict[str, Any] = {
        key: value for key, value in goal.items() if key not in words and key != "catalogue"
    }
    if "items" in stripped:
        items = [{key: value for key, value in item.items() if key not in words} for item in goal["items"]]
        stripped["items"] = sorted(items, key=lambda item: item["product"])
    return msgspec.json.encode(stripped, order="sorted")


def hindsight_of(task: Task, evidence: Evidence, walk: Walk, *, most: int) -> list[Hindsight]:
    """The goals that an episode achieved, at most `most`: the task's own first, then families in turn.

    Empty where the store left no usable record. Deterministic: draws follow from the seed of the session.
    """
    ending = ending_of(evidence)
    if isinstance(ending, str) or not walk.pages:
        return []
    goals = [goal for goal in achieved_goals(evidence) if goal.ordinal > walk.ordinals[0]]
    return [_demonstration(achieved, ending, walk) for achieved in _chosen(task, goals, ending)[:most]]


def first_achieved(evidence: Evidence, walk: Walk) -> dict[tuple[str, bytes], int]:
    """Every goal that an episode achieved, by family and meaning, with the number of steps until its first achievement."""
    found: dict[tuple[str, bytes], int] = {}
    for goal in achieved_goals(evidence) if walk.pages else ():
        if goal.ordinal > walk.ordinals[0]:
            key = goal.family, meaning(goal.family, goal.goal)
            found.setdefault(key, walk.step_of(goal.ordinal) + 1)
    return found


def _chosen(task: Task, goals: Sequence[StoreGoalAchieved], ending: VisitEnd) -> list[StoreGoalAchieved]:
    """One wording of each goal, families in turn."""
    kinds: dict[str, dict[bytes, list[StoreGoalAchieved]]] = {}
    for goal in goals:
        kinds.setdefault(goal.family, {}).setdefault(meaning(goal.family, goal.goal), []).append(goal)
    asked = kinds.get(task.family, {}).pop(meaning(task.family, task.goal), [])
    rows = [[_as_asked(task, asked)]] if asked else []
    for family, ways in kinds.items():
        random = Random(derive_seed(task.seed, "store", "hindsight", family))
        row = [_as_searched(same, ending, random) for same in ways.values()]
        random.shuffle(row)
        rows.append(row)
    length = max((len(row) for row in rows), default=0)
    return [row[place] for place in range(length) for row in rows if place < len(row)]


def _as_asked(task: Task, ways: Sequence[StoreGoalAchieved]) -> StoreGoalAchieved:
    way = next((way for way in ways if way.goal == task.goal), ways[0])
    return msgspec.structs.replace(way, instruction=task.instruction)


def _as_searched(ways: Sequence[StoreGoalAchieved], ending: VisitEnd, random: Random) -> StoreGoalAchieved:
    """The wording that names the episode's own search and order; else one that needs no sorting."""
    ways = [way for way in ways if way.ordinal == ways[0].ordinal]
    searched = {
        (fact.query.casefold(), fact.sort)
        for ordinal, fact in ending.facts("listed")
        if ordinal <= ways[0].ordinal
    }

    def rank(way: StoreGoalAchieved) -> tuple[int, int]:
        targets = way.goal.get("items", [way.goal])
        asked = [(str(one.get("query", "")).casefold(), one.get("sort", "relevance")) for one in targets]
        return (
            -sum(one in searched for one in asked),
            sum(sort != "relevance" and (query, sort) not in searched for query, sort in asked),
        )

    best = min(map(rank, ways))
    return random.choice([way for way in ways if rank(way) == best])


def _demonstration(achieved: StoreGoalAchieved, ending: VisitEnd, walk: Walk) -> Hindsight:
    family = FAMILIES[achieved.family]
    goal = {key: value for key, value in achieved.goal.items() if key != "catalogue"}
    last = walk.step_of(achieved.ordinal)
    needed = needed_facts(family, ReachedGoal(goal, achieved.ordinal), ending)
    roots = {step for ordinal in needed if (step := walk.step_of(ordinal)) >= 0}
    relevant = relevant_steps(walk, {*roots, last})
    return Hindsight(
        family=achieved.family,
        goal=achieved.goal,
        instruction=achieved.instruction,
        until_step=last + 1,
        relevance=tuple(float(step in relevant) for step in range(last + 1)),
    )
