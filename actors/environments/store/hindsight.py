"""What an episode in the store achieved, whatever its task: goals, the step that first reached each, and relevant steps.

It uses only rules over recorded data. Each task family (`families`) finds its own goals in the session's journal. Goals
that differ only in the words for the same thing count as one, worded as the episode's own search where possible. The
first achievement is the step with the first facts for which the goal holds.

A fact is needed when the goal no longer holds without it. Facts are removed one at a time from the earliest on, together
with those found needless before, so of two facts that show the same thing the later one counts. A step is relevant to a
goal when

1. it recorded a needed fact, or gave the answer that reached the goal; or
2. it led to the page on which a relevant step found its target: the first page with the same address that showed the
   target since the relevant fact before. This does not apply to targets on every page, such as the shop's header; or
3. it was the last to fill in a field whose value a relevant step sent from the same page.

All other steps are irrelevant: failures, undone changes, the way back from pages where nothing was needed.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from hindcast.actors.environments.store.evaluators import StoreGoalAchieved, achieved_goals, ending_of
from hindcast.actors.environments.store.families import FAMILIES, Goal, ReachedGoal, StoreFamily, VisitEnd
from hindcast.core.domain.action import Action
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Node, Page
from hindcast.core.domain.task import Task
from hindcast.core.seeds import derive_seed

FILLING = ("Type", "Select Dropdown Option")
SENDING = ("Click", "Search", "Press")
CHOICES = ("radio", "checkbox")
FREE = ("Goto", "New_tab")
"""Actions that need no page."""
COUNT = re.compile(r" \(\d+\)$")


class Walk(NamedTuple):
    """An episode's steps: what each saw and did."""

    pages: Sequence[Page]
    actions: Sequence[Action | None]
    """None: the answer was no action."""
    worked: Sequence[bool]
    """Whether the action could be executed."""

    @property
    def ordinals(self) -> list[int]:
        """Facts recorded before each step."""
        return [page.ordinal for page in self.pages]

    def step_of(self, ordinal: int) -> int:
        """The step that recorded the fact of this number; -1: it was there on arrival. The last step answers."""
        return max(
            (step for step, facts_before in enumerate(self.ordinals) if facts_before < ordinal),
            default=-1,
        )


def needed_facts(family: StoreFamily, reached: ReachedGoal, ending: VisitEnd) -> list[int]:
    """Ordinals of the facts that the goal needs, in order."""
    answered = reached.ordinal > len(ending.journal)
    journal = list(ending.journal[: reached.ordinal])
    needed = list(range(len(journal)))

    def holds(without: set[int]) -> bool:
        shorter = VisitEnd(
            ending.catalogue,
            opening=ending.opening,
            journal=[journal[index] for index in needed if index not in without],
            answer=ending.answer if answered else None,
        )
        if not family.check(reached.goal, shorter).success:
            return False
        return any(other.goal == reached.goal for other in family.reached(shorter))

    for index in range(len(journal)):
        if holds({index}):
            needed.remove(index)
    return [index + 1 for index in needed]


def relevant_steps(walk: Walk, roots: Iterable[int]) -> set[int]:
    """The steps of rule 1, which `roots` gives, with those of rules 2 and 3."""
    relevant: set[int] = set()
    first = 0
    for root in sorted(roots):
        step: int | None = root
        while step is not None and step not in relevant:
            relevant.add(step)
            relevant |= _filled(walk, first, step)
            step = _opener(walk, first, step)
        first = root + 1
    return relevant


def _opener(walk: Walk, first: int, step: int) -> int | None:
    """The step that led to the page that this one acted on; None where none was needed since `first`."""
    action, page = walk.actions[step], walk.pages[step]
    if action is None or action.name in FREE:
        return None
    address = _address(page)
    if not _shows(page, action, page):
        return None  # its target is on every page
    elsewhere = address != _address(walk.pages[first])
    if elsewhere and action.name == "exit":
        return None  # the needed facts showed what is answered
    if (
        elsewhere
        and action.element is not None
        and all(_shows(seen_page, action, page) for seen_page in walk.pages)
    ):
        return None
    opened = next(
        earlier_step
        for earlier_step in range(first, step + 1)
        if _address(walk.pages[earlier_step]) == address and _shows(walk.pages[earlier_step], action, page)
    )
    return opened - 1 if opened > first else None


def _shows(page: Page, action: Action, acted_on: Page) -> bool:
    """Whether a page shows the action's target from the page that it was taken on."""
    if action.name == "exit":
        answer_text = (action.argument or "").casefold()
        return any(answer_text in node.text.casefold() for node in page.nodes)
    if action.element is None:
        return True
    target = _node(acted_on, action.element)
    return target is not None and any(
        (node.kind, _label(node)) == (target.kind, _label(target))
        and node.id is not None
        and not node.disabled
        for node in page.nodes
    )


def _label(node: Node) -> str:
    """A node's text without a count after it, such as that of the cart in the header."""
    return COUNT.sub("", node.text)


def _filled(walk: Walk, first: int, step: int) -> set[int]:
    action, page = walk.actions[step], walk.pages[step]
    if action is None or action.name not in SENDING or _is_choice(action, page):
        return set()
    latest: dict[tuple[str, str], int] = {}
    for earlier_step in range(step - 1, first - 1, -1):
        if _address(walk.pages[earlier_step]) != _address(page):
            break
        earlier_action = walk.actions[earlier_step]
        if earlier_action is None or earlier_action.element is None or not walk.worked[earlier_step]:
            continue
        if earlier_action.name in FILLING or (
            earlier_action.name == "Click" and _is_choice(earlier_action, walk.pages[earlier_step])
        ):
            node = _node(walk.pages[earlier_step], earlier_action.element)
            if node is not None:
                latest.setdefault((node.kind, "" if node.kind == "radio" else node.text), earlier_step)
    return set(latest.values())


def _is_choice(action: Action, page: Page) -> bool:
    node = None if action.element is None else _node(page, action.element)
    return node is not None and node.kind in CHOICES


def _node(page: Page, number: int) -> Node | None:
    return next((node for node in page.nodes if node.id == number), None)


def _address(page: Page) -> tuple[str, str]:
    url = urlsplit(page.url)
    return url.path, url.query


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
    """1 or 0 per step up to `until_step`; see above."""


def goal_key(family: str, goal: Goal) -> bytes:
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


def hindsight_of(
    task: Task, evidence: Evidence, walk: Walk, *, max_goals: int, families: Collection[str] | None = None
) -> list[Hindsight]:
    """The goals that an episode achieved, at most `max_goals`: the task's own first, then families in turn.

    `families`: those that goals may be of; None: all. Empty where the store left no usable record.
    Deterministic: draws follow from the seed of the session.
    """
    ending = ending_of(evidence)
    if isinstance(ending, str) or not walk.pages:
        return []
    goals = [
        goal
        for goal in achieved_goals(evidence)
        if goal.ordinal > walk.ordinals[0] and (families is None or goal.family in families)
    ]
    return [
        _demonstration(achieved, ending, walk)
        for achieved in _one_wording_each(task, goals, ending)[:max_goals]
    ]


def first_achieved(evidence: Evidence, walk: Walk) -> dict[tuple[str, bytes], int]:
    """Every goal that an episode achieved, by family and meaning, with the number of steps until its first achievement."""
    steps_by_goal: dict[tuple[str, bytes], int] = {}
    for goal in achieved_goals(evidence) if walk.pages else ():
        if goal.ordinal > walk.ordinals[0]:
            key = goal.family, goal_key(goal.family, goal.goal)
            steps_by_goal.setdefault(key, walk.step_of(goal.ordinal) + 1)
    return steps_by_goal


def _one_wording_each(
    task: Task, goals: Sequence[StoreGoalAchieved], ending: VisitEnd
) -> list[StoreGoalAchieved]:
    """One wording of each goal, families in turn."""
    by_family: dict[str, dict[bytes, list[StoreGoalAchieved]]] = {}
    for goal in goals:
        by_family.setdefault(goal.family, {}).setdefault(goal_key(goal.family, goal.goal), []).append(goal)
    own_goal = by_family.get(task.family, {}).pop(goal_key(task.family, task.goal), [])
    rows = [[_as_asked(task, own_goal)]] if own_goal else []
    for family, wordings_by_goal in by_family.items():
        random = Random(derive_seed(task.seed, "store", "hindsight", family))
        row = [_as_searched(wordings, ending, random) for wordings in wordings_by_goal.values()]
        random.shuffle(row)
        rows.append(row)
    length = max((len(row) for row in rows), default=0)
    return [row[index] for index in range(length) for row in rows if index < len(row)]


def _as_asked(task: Task, wordings: Sequence[StoreGoalAchieved]) -> StoreGoalAchieved:
    wording = next((wording for wording in wordings if wording.goal == task.goal), wordings[0])
    return msgspec.structs.replace(wording, instruction=task.instruction)


def _as_searched(
    wordings: Sequence[StoreGoalAchieved], ending: VisitEnd, random: Random
) -> StoreGoalAchieved:
    """The wording that names the episode's own search and order; else one that needs no sorting."""
    wordings = [wording for wording in wordings if wording.ordinal == wordings[0].ordinal]
    searched = {
        (fact.query.casefold(), fact.sort)
        for ordinal, fact in ending.facts("listed")
        if ordinal <= wordings[0].ordinal
    }

    def rank(wording: StoreGoalAchieved) -> tuple[int, int]:
        targets = wording.goal.get("items", [wording.goal])
        target_searches = [
            (str(entry.get("query", "")).casefold(), entry.get("sort", "relevance")) for entry in targets
        ]
        return (
            -sum(entry in searched for entry in target_searches),
            sum(sort != "relevance" and (query, sort) not in searched for query, sort in target_searches),
        )

    best = min(map(rank, wordings))
    return random.choice([wording for wording in wordings if rank(wording) == best])


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
