"""A site as states: how each is recognised and what may be done in it, as its file says. Rules over pages, no model.

Pure: a page in, the state and its choices out. A page in no state is one that nothing is known about: any answer goes.
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
    """Which things on a page are meant; what is left out does not matter."""

    kind: Kinds = ()
    """`link`, `button`, … (`core.domain.observation.Node`), or several."""
    text: str = ""
    """Regular expression that the whole text has to match, white space folded."""

    def match(self, node: Node) -> re.Match[str] | None:
        """How a thing on the page fits; None when it does not."""
        kinds = (self.kind,) if isinstance(self.kind, str) else self.kind
        if kinds and node.kind not in kinds:
            return None
        return re.fullmatch(self.text or ".*", " ".join(node.text.split()), re.DOTALL)


class ActionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Actions that are allowed: one by name, on every element that fits where it takes one."""

    action: str
    """A name of `core.domain.action.ACTIONS`."""
    kind: Kinds = ()
    text: str = ""
    """Regular expression for the element's text."""
    arguments: tuple[str, ...] = ()
    """The only arguments allowed; with `quotes` also empty any text is, or for a dropdown any of its options."""
    quotes: tuple[ElementRule, ...] = ()
    """Arguments from the page: of each thing that fits, the first group of `text`, or the whole."""
    closing: bool = False
    """Whether it is still allowed once the backup has chosen a candidate, where there are such."""

    @property
    def is_fixed(self) -> bool:
        """Whether its arguments are given."""
        return bool(self.arguments or self.quotes) or self.action == "Select Dropdown Option"

    @property
    def needs_element(self) -> bool:
        """Whether it is about elements of the page."""
        takes = ACTIONS[self.action].element
        return takes == "required" or (takes == "optional" and bool(self.kind or self.text))

    def choices(self, page: Page) -> Iterator[ActionChoice]:
        """What it allows on a page, in the page's order."""
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
            for shown in page.nodes:
                found = rule.match(shown)
                if found is not None:
                    yield found.group(1) if found.re.groups else found.group()
        if node is not None and not (self.arguments or self.quotes):
            yield from node.options


class CandidateRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a page that shows a candidate is remembered."""

    reads: tuple[ElementRule, ...]
    """What on the page describes it."""


class SiteState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One state of a site."""

    name: str
    instruction: str
    """What there is to do here; shown in the prompt."""
    layout: str = ""
    """What a page in this state looks like; shown in the prompt on request."""
    path: str = ""
    """Regular expression that the whole path of the address has to match; empty: any."""
    shows: tuple[ElementRule, ...] = ()
    """What has to be on the page, all of it."""
    uses: tuple[str, ...] = ()
    """Groups of allowed actions, by name."""
    actions: tuple[ActionRule, ...] = ()
    """Actions allowed here beside those groups."""
    candidate: CandidateRule | None = None
    """Whether its page shows a candidate, and how to read it."""
    searching: bool = False
    """Whether a candidate is still looked for here, so that the backup may choose one."""

    def covers(self, page: Page) -> bool:
        """Whether a page is in this state."""
        if self.path and not re.fullmatch(self.path, path_of(page)):
            return False
        return all(any(rule.match(node) for node in page.nodes) for rule in self.shows)


class Backup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What choosing a remembered candidate is: one action, its argument taken from the candidate."""

    action: str
    """An action without an element, such as `Goto` or `exit`."""
    argument: Literal["address", "text"]
    """Path of the candidate's page, or what was read there."""


class SiteStates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The states of one environment, as its file has them."""

    environment: str
    state: tuple[SiteState, ...]
    """The first that covers a page is the page's."""
    groups: dict[str, tuple[ActionRule, ...]] = {}
    """Actions that several states allow."""
    backup: Backup | None = None
    rules: str = ""
    """Name and digest of the file; filled in by whoever reads it."""

    def recognise(self, page: Page) -> SiteState | None:
        """The state of a page; None when it has none."""
        return next((state for state in self.state if state.covers(page)), None)

    def rules_of(self, state: SiteState) -> tuple[ActionRule, ...]:
        """Every action rule of a state, those of its groups first."""
        return (*(rule for name in state.uses for rule in self.groups[name]), *state.actions)

    def choices(self, state: SiteState, page: Page, *, closing: bool = False) -> tuple[ActionChoice, ...]:
        """What may be done on a page of a state, never nothing; with `closing` no more than that, where there is any."""
        rules = self.rules_of(state)
        if closing:
            rest = _distinct(choice for rule in rules if rule.closing for choice in rule.choices(page))
            if rest:
                return rest
        return _distinct(choice for rule in rules for choice in rule.choices(page))


def path_of(page: Page) -> str:
    """The path of a page's address: the same on every machine and port."""
    return urlsplit(page.url).path or "/"


def _distinct(choices: Iterator[ActionChoice]) -> tuple[ActionChoice, ...]:
    return tuple(dict.fromkeys(choices))
