"""Whether a goal can be reached, by the store's full knowledge; the curriculum's feasibility filter asks this.

A goal can be reached under three conditions: a visit that does what it asks exists, the family's evaluator accepts that
visit, and hindsight finds that the visit reached this very goal. The last one fails for a false answer, or for a phrase
that fits another product or several.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hindcast.actors.environments.store.catalogue import Catalogue
from hindcast.actors.environments.store.families import FAMILIES, Goal, VisitEnd
from hindcast.actors.environments.store.goals.visits import NotOffered, StartPage, visit
from hindcast.actors.environments.store.initial_state import opening_state
from hindcast.core.domain.task import Task

UNNAMED = "order"
"""Kind of impossible goal that hindsight never finds: an unknown order number has no page to look at."""


def why_unreachable(catalogue: Catalogue, task: Task) -> str:
    """Why the task's goal cannot be reached; empty: it can."""
    if task.family not in FAMILIES:
        return f"the store has no family {task.family!r}"
    goal = {name: value for name, value in task.goal.items() if name != "catalogue"}
    if task.goal.get("catalogue") != catalogue.name:
        return f"the goal is about catalogue {task.goal.get('catalogue')}, the store shows {catalogue.name}"
    place = StartPage(catalogue, opening_state(catalogue, task.family, task.seed))
    try:
        ending = ending_of(task.family, goal, place)
        finding = FAMILIES[task.family].check(goal, ending)
    except NotOffered as error:
        return str(error)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        return f"the goal is not one of {task.family}: {type(error).__name__} {error}"
    if not finding.success:
        return f"the evaluator refuses the visit that does it: {finding.reason}"
    if goal.get("kind") == UNNAMED:
        known = any(order.number == goal["number"] for order in place.opening.orders)
        return f"order {goal['number']} exists" if known else ""
    if not any(reached == goal for reached in reached_by(task.family, ending)):
        return "the words of the goal are not true of what it asks for, or not of that alone"
    return ""


def ending_of(family: str, goal: Goal, place: StartPage) -> VisitEnd:
    """The end of the visit that a goal or a sketch asks for. Raises NotOffered."""
    journal, answer = visit(family, goal, place)
    return VisitEnd(place.catalogue, opening=place.opening, journal=journal, answer=answer)


def reached_by(family: str, ending: VisitEnd) -> Iterator[Goal]:
    """Every goal of the family that a visit reached."""
    for reached in FAMILIES[family].reached(ending):
        yield reached.goal


def goals_like(family: str, sketch: Goal, place: StartPage) -> list[Goal]:
    """Every goal of the family with the effect of a sketch, in any wording; empty when there is none."""
    try:
        ending = ending_of(family, sketch, place)
    except NotOffered:
        return []
    return [goal for goal in reached_by(family, ending) if holds(goal, sketch)]


def holds(goal: Any, sketch: Any) -> bool:
    """Whether a goal contains everything that a sketch contains."""
    if isinstance(sketch, Mapping):
        return isinstance(goal, Mapping) and all(
            name in goal and holds(goal[name], value) for name, value in sketch.items()
        )
    if isinstance(sketch, list):
        return (
            isinstance(goal, list)
            and len(goal) == len(sketch)
            and all(holds(*pair) for pair in zip(goal, sketch, strict=True))
        )
    return bool(goal == sketch)
