"""States of a site: rules that recognize the state of a page and list its allowed actions, without a model.

Pure: maps a page, and the element that led to it, to a state and its choices. A page in no state allows any answer.
"""

import re
from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from hindcast.core.domain.action import ACTIONS, Action
from hindcast.core.domain.observation import Node, Page
from hindcast.core.grammar.answer_constraints import ActionChoice

Kinds = str | tuple[str, ...]


class ElementRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Matches elements of a page; an omitted field matches anything."""

    kind: Kinds = ()
    """`link`, `button`, … (`core.domain.observation.Node`), or several."""
    text: str = ""
    """Regular expression for the whole text, with white space folded."""

    def match(self, node: Node) -> re.Match[str] | None:
        """Match an element of the page; None if it does not match."""
        kinds = (self.kind,) if isinstance(self.kind, str) else self.kind
        if kinds and node.kind not in kinds:
            return None
        return re.fullmatch(self.text or ".*", " ".join(node.text.split()), re.DOTALL)


class ActionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Allows an action by name, on every matching element if it takes an element."""

    action: str
    """A name of `core.domain.action.ACTIONS`."""
    kind: Kinds = ()
    text: str = ""
    """Regular expression for the element's text."""
    arguments: tuple[str, ...] = ()
    """Allowed arguments. If these and `quotes` are empty: any text, or any option of a dropdown."""
    quotes: tuple[ElementRule, ...] = ()
    """Arguments from the page: for each matching element the first group of `text`, or its whole text."""
    closing: bool = False
    """Whether the action stays allowed after the backup chose a candidate. If no rule is closing, all stay allowed."""

    @property
    def is_fixed(self) -> bool:
        """Whether its arguments are fixed."""
        return bool(self.arguments or self.quotes) or self.action == "Select Dropdown Option"

    @property
    def needs_element(self) -> bool:
        """Whether it applies to elements of the page."""
        takes = ACTIONS[self.action].element
        return takes == "required" or (takes == "optional" and bool(self.kind or self.text))

    def choices(self, page: Page) -> Iterator[ActionChoice]:
        """Yield the allowed choices on a page, in the page's order."""
        if not self.needs_element:
            yield from self._with_arguments(None, page)
            return
        about = ElementRule(self.kind, self.text)
        for node in page.nodes:
            if node.id is not None and not node.disabled and about.match(node) is not None:
                yield from self._with_arguments(node, page)

    def _with_arguments(self, node: Node | None, page: Page) -> Iterator[ActionChoice]:
        element = None if node is None else node.id
        if ACTIONS[self.action].argument == "none":
            yield ActionChoice(action=Action(name=self.action, element=element))
        elif not self.is_fixed:
            yield ActionChoice(action=Action(name=self.action, element=element), free=True)
        else:
            for argument in self._arguments(node, page):
                yield ActionChoice(action=Action(name=self.action, element=element, argument=argument))

    def _arguments(self, node: Node | None, page: Page) -> Iterator[str]:
        yield from self.arguments
        for rule in self.quotes:
            for page_node in page.nodes:
                match = rule.match(page_node)
                if match is not None:
                    yield match.group(1) if match.re.groups else match.group()
        if node is not None and not (self.arguments or self.quotes):
            yield from node.options


class CandidateRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reads a candidate from its page."""

    reads: tuple[ElementRule, ...]
    """Elements of the page that describe it."""


class SiteState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A state that pages of a site are recognised as, with the actions that are allowed there."""

    name: str
    instruction: str
    """What to do here; shown in the prompt."""
    layout: str = ""
    """What a page in this state looks like; shown in the prompt on request."""
    path: str = ""
    """Regular expression for the whole path of the address; empty: any."""
    shows: tuple[ElementRule, ...] = ()
    """Elements that must all be on the page."""
    after: ElementRule | None = None
    """Element that the step before must have acted on; None: any step may have led here."""
    uses: tuple[str, ...] = ()
    """Groups of allowed actions, by name."""
    actions: tuple[ActionRule, ...] = ()
    """Allowed actions in addition to those groups."""
    candidate: CandidateRule | None = None
    """How to read a candidate on its page; None: its page shows none."""
    searching: bool = False
    """Whether the episode still searches for a candidate here, so that the backup may choose one."""

    def covers(self, page: Page, used: Node | None = None) -> bool:
        """Whether a page is in this state. `used`: element that the step before acted on; None: none."""
        if self.path and not re.fullmatch(self.path, path_of(page)):
            return False
        if self.after is not None and (used is None or self.after.match(used) is None):
            return False
        return all(any(rule.match(node) for node in page.nodes) for rule in self.shows)


class Backup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Chooses a remembered candidate with one action, whose argument comes from the candidate."""

    action: str
    """An action without an element, such as `Goto` or `exit`."""
    argument: Literal["address", "text"]
    """Path of the candidate's page, or the text read there."""


class SiteStates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The states of one environment, as in its file."""

    environment: str
    state: tuple[SiteState, ...]
    """States in order; a page has the first state that covers it."""
    groups: dict[str, tuple[ActionRule, ...]] = {}
    """Actions that several states allow."""
    backup: Backup | None = None
    rules: str = ""
    """Name and digest of the file; the reader of the file sets it."""

    def recognise(self, page: Page, used: Node | None = None) -> SiteState | None:
        """Return the state of a page; None if no state covers it. `used`: element that the step before acted on."""
        return next((state for state in self.state if state.covers(page, used)), None)

    def rules_of(self, state: SiteState) -> tuple[ActionRule, ...]:
        """Return every action rule of a state, those of its groups first."""
        return (*(rule for name in state.uses for rule in self.groups[name]), *state.actions)

    def choices(self, state: SiteState, page: Page, *, closing: bool = False) -> tuple[ActionChoice, ...]:
        """Return the allowed choices on a page of a state, never empty. With `closing`, only closing ones if there are any."""
        rules = self.rules_of(state)
        if closing:
            closing_choices = _distinct(
                choice for rule in rules if rule.closing for choice in rule.choices(page)
            )
            if closing_choices:
                return closing_choices
        return _distinct(choice for rule in rules for choice in rule.choices(page))


def path_of(page: Page) -> str:
    """Return the path of a page's address, which does not depend on machine and port."""
    return urlsplit(page.url).path or "/"


def _distinct(choices: Iterator[ActionChoice]) -> tuple[ActionChoice, ...]:
    return tuple(dict.fromkeys(choices))
