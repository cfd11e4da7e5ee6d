"""Which steps of a visit a goal needed, from the session's facts and the recorded pages.

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
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from hindcast.actors.environments.store.families import ReachedGoal, StoreFamily, VisitEnd
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Page

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
            (step for step, before in enumerate(self.ordinals) if before < ordinal),
            default=-1,
        )


def needed_facts(family: StoreFamily, reached: ReachedGoal, ending: VisitEnd) -> list[int]:
    """Ordinals of the facts that the goal needs, in order."""
    answered = reached.ordinal > len(ending.journal)
    journal = list(ending.journal[: reached.ordinal])
    kept = list(range(len(journal)))

    def holds(without: set[int]) -> bool:
        shorter = VisitEnd(
            ending.catalogue,
            opening=ending.opening,
            journal=[journal[index] for index in kept if index not in without],
            answer=ending.answer if answered else None,
        )
        if not family.check(reached.goal, shorter).success:
            return False
        return any(again.goal == reached.goal for again in family.reached(shorter))

    for index in range(len(journal)):
        if holds({index}):
            kept.remove(index)
    return [index + 1 for index in kept]


def relevant_steps(walk: Walk, roots: Iterable[int]) -> set[int]:
    """The steps of rule 1, which `roots` gives, with those of rules 2 and 3."""
    found: set[int] = set()
    first = 0
    for root in sorted(roots):
        step: int | None = root
        while step is not None and step not in found:
            found.add(step)
            found |= _filled(walk, first, step)
            step = _opener(walk, first, step)
        first = root + 1
    return found


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
    if elsewhere and action.element is not None and all(_shows(other, action, page) for other in walk.pages):
        return None
    opened = next(
        early
        for early in range(first, step + 1)
        if _address(walk.pages[early]) == address and _shows(walk.pages[early], action, page)
    )
    return opened - 1 if opened > first else None


def _shows(page: Page, action: Action, acted_on: Page) -> bool:
    """Whether a page shows the action's target from the page that it was taken on."""
    if action.name == "exit":
        said = (action.argument or "").casefold()
        return any(said in node.text.casefold() for node in page.nodes)
    if action.element is None:
        return True
    sought = _node(acted_on, action.element)
    return sought is not None and any(
        (node.kind, _label(node)) == (sought.kind, _label(sought))
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
    for early in range(step - 1, first - 1, -1):
        if _address(walk.pages[early]) != _address(page):
            break
        done = walk.actions[early]
        if done is None or done.element is None or not walk.worked[early]:
            continue
        if done.name in FILLING or (done.name == "Click" and _is_choice(done, walk.pages[early])):
            node = _node(walk.pages[early], done.element)
            if node is not None:
                latest.setdefault((node.kind, "" if node.kind == "radio" else node.text), early)
    return set(latest.values())


def _is_choice(action: Action, page: Page) -> bool:
    node = None if action.element is None else _node(page, action.element)
    return node is not None and node.kind in CHOICES


def _node(page: Page, number: int) -> Node | None:
    return next((node for node in page.nodes if node.id == number), None)


def _address(page: Page) -> tuple[str, str]:
    parts = urlsplit(page.url)
    return parts.path, parts.query
