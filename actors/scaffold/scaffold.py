"""The scaffold of one episode: finds the state of a page, its text in the prompt, and its allowed answers.

It acts only by constraining the form of an answer, also for the backup's choice. The answer is sampled like any other, from
the allowed tokens, and trained on as sampled (invariant 4).
"""

import re
from collections.abc import Sequence

import msgspec

from hindcast.actors.scaffold.files import site_states
from hindcast.actors.scaffold.states import Backup, CandidateRule, SiteState, SiteStates, path_of
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Page
from hindcast.core.domain.sampling import Scaffolded
from hindcast.core.domain.task import Task
from hindcast.core.grammar.answer_constraints import ActionChoice, Form, forms_of
from hindcast.core.grammar.answer_parser import Dialect
from hindcast.core.settings.schema import ScaffoldSettings

_WORD = re.compile(r"\w+")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate whose page the episode opened."""

    address: str
    """Path of its page's address."""
    text: str
    """Text read on that page."""


Memory = tuple[Candidate, ...]
"""Viewed candidates, each once, the latest last."""


def remember(memory: Memory, page: Page, rule: CandidateRule) -> Memory:
    """Return the memory after a page that shows a candidate."""
    texts = (node.text for node in page.nodes if any(element.match(node) for element in rule.reads))
    candidate = Candidate(address=path_of(page), text=" ".join(" ".join(texts).split()))
    return (*(remembered for remembered in memory if remembered.address != candidate.address), candidate)


def best(memory: Memory, instruction: str) -> Candidate | None:
    """Return the candidate whose text has the most words of the instruction, on a tie the later one; None without candidates."""
    instruction_words = _words(instruction)
    if not memory:
        return None
    return max(
        enumerate(memory), key=lambda placed: (len(instruction_words & _words(placed[1].text)), placed[0])
    )[1]


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


class ScaffoldedPage(msgspec.Struct, frozen=True, kw_only=True):
    """The scaffold's view of one page."""

    heading: str
    """Text above the page; empty: none."""
    forms: tuple[Form, ...] | None
    """Allowed forms of an answer; None: any answer is allowed."""
    record: Scaffolded


class Scaffold:
    """The scaffold of one episode. `frame` is called once for each of its pages, in order."""

    def __init__(
        self, site: SiteStates, settings: ScaffoldSettings, *, max_steps: int, dialect: Dialect = "webrl"
    ) -> None:
        self._site = site
        self._settings = settings
        self._max_steps = max_steps
        self._dialect = dialect
        self._memory: Memory = ()
        self._chosen_address = ""
        self._page: Page | None = None
        """The page of the step before."""
        self._acted = 0
        self._used: Node | None = None
        """Element that the latest action acted on; None: it acted on none."""

    def frame(
        self, page: Page, *, step: int, instruction: str, actions: Sequence[Action] = ()
    ) -> ScaffoldedPage:
        """Return the text that precedes a page in the prompt, and the allowed answers.

        `step` counts from 0. `actions`: those of the episode so far; an answer that did not parse is none of them.
        """
        if len(actions) > self._acted:
            self._acted, self._used = len(actions), _element(actions[-1], self._page)
        self._page = page
        settings, state = self._settings, self._site.recognise(page, self._used)
        choices: tuple[ActionChoice, ...] = ()
        if state is not None:
            if settings.memory and state.candidate is not None:
                self._memory = remember(self._memory, page, state.candidate)
            if settings.constrained:
                choices = self._choices(state, page, step=step, instruction=instruction)
        return ScaffoldedPage(
            heading=self._heading(state),
            forms=self._forms(choices, page),
            record=Scaffolded(
                rules=self._site.rules,
                state=state.name if state else "",
                choices=len(choices),
                remembered=len(self._memory),
                chosen=self._chosen_address,
            ),
        )

    def _forms(self, choices: tuple[ActionChoice, ...], page: Page) -> tuple[Form, ...] | None:
        if not choices:
            return None
        return forms_of(choices, page, rationale=self._settings.stages == 2, dialect=self._dialect)

    def _choices(
        self, state: SiteState, page: Page, *, step: int, instruction: str
    ) -> tuple[ActionChoice, ...]:
        backup = self._site.backup
        is_due = self._max_steps - step <= self._settings.backup_at
        if backup is not None and is_due and state.searching and not self._chosen_address:
            candidate = best(self._memory, instruction)
            if candidate is not None:
                self._chosen_address = candidate.address
                choice = _choice_of(backup, candidate, page)
                if choice is not None:
                    return (choice,)
        return self._site.choices(state, page, closing=bool(self._chosen_address))

    def _heading(self, state: SiteState | None) -> str:
        shown = self._settings.shown
        if state is None or shown == "nothing":
            return ""
        lines = [f"state {state.name}: {' '.join(state.instruction.split())}"]
        if shown == "layout" and state.layout.strip():
            lines += ["layout", state.layout.strip("\n")]
        return "\n".join(lines) + "\n"


def _element(action: Action | None, page: Page | None) -> Node | None:
    """Return the element of a page that an action acted on; None if it acted on none."""
    if action is None or action.element is None or page is None:
        return None
    return next((node for node in page.nodes if node.id == action.element), None)


def _choice_of(backup: Backup, candidate: Candidate, page: Page) -> ActionChoice | None:
    """Return the action that chooses a candidate; None if its page is already open."""
    if backup.argument == "text":
        return ActionChoice(action=Action(name=backup.action, argument=candidate.text))
    if candidate.address == path_of(page):
        return None
    return ActionChoice(action=Action(name=backup.action, argument=candidate.address))


def scaffold_of(
    task: Task, settings: ScaffoldSettings, *, dialect: Dialect = "webrl", binding: bool = True
) -> Scaffold | None:
    """Create the scaffold of a task's episode; None if its site has no states. Raises SettingsError.

    `dialect`: dialect of its choices. `binding` False: it does not constrain answers, for demonstrators.
    """
    site = site_states(settings.states, task.environment)
    if site is None:
        return None
    if not binding:
        settings = settings.model_copy(update={"constrained": False})
    return Scaffold(site, settings, max_steps=task.max_steps, dialect=dialect)
