"""Interfaces of environments: tasks, worlds, sites, questions to a model, and scripted demonstrators.

A world takes an action and returns an observation; a site is a place that our browser visits. Questions replace
`llm_fuzzy_match` and `llm_ua_match` of the released evaluators, which ask GPT-4. Scripted demonstrators are pure functions
of what a person could see (instruction and observation) and the task's goal. They serve demonstrations at the start of a
run, the training of the base policy, and tests that every task can be solved.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.observation import Box, Mark, Observation, Page
from hindcast.core.domain.task import Task
from hindcast.events.catalogue.episode import StepResult

if TYPE_CHECKING:
    from playwright.async_api import Page as BrowserPage

ResetSemantics = Literal["per_episode", "per_batch", "none"]


class ResetResult(msgspec.Struct, frozen=True, kw_only=True):
    """The start state of an episode."""

    instruction: str
    """The task's own instruction, or the one on the page."""
    observation: Observation


class WindowImage(msgspec.Struct, frozen=True, kw_only=True):
    """A screenshot of a world."""

    image: bytes = b""
    """JPEG; empty where there is none."""
    missing: str = ""
    """Why there is no image, in words."""
    width: int = 0
    """Width of the image in its own pixels."""
    height: int = 0
    scale: float = 1.0
    """Pixels of the image per CSS pixel of the window."""
    marks: tuple[Mark, ...] = ()
    """Positions of the observation's numbered elements in the window."""


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one action. Failures of the action are results, never exceptions."""

    result: StepResult
    detail: str
    """Explanation in words; empty when the result is `ok`."""
    observation: Observation
    done: bool
    """Whether the page itself has ended the episode."""
    act_ms: float
    observe_ms: float
    touched: Box | None = None
    """Box of the action's element in the window at the time of the action; None: no element, or not visible."""


class EpisodeWorld(Protocol):
    """One isolated episode in an environment, from reset to evidence. A `WorldHost` opens it.

    Raises EnvironmentFailed or BrowserUnavailable when the world itself breaks: the episode is then abandoned.
    """

    async def reset(self, task: Task) -> ResetResult:
        """Bring the world into the task's start state."""
        ...

    async def step(self, action: Action | ParseFailure) -> StepOutcome:
        """Execute one action within its time limit and observe. A parse failure changes nothing but is observed."""
        ...

    async def picture(self) -> WindowImage:
        """Take a screenshot of the current observation. Never raises, bounded in time, changes nothing."""
        ...

    async def finish(self, answer: str | None) -> Evidence:
        """Collect the evidence for evaluators. Called once, at the end."""
        ...

    async def close(self) -> None:
        """Release context and pages. Never raises, bounded in time."""
        ...


class TaskSource(Protocol):
    """The tasks of one environment; pure, needs no browser and no server."""

    @property
    def name(self) -> str:
        """Name of the environment, such as `store` or `miniwob`."""
        ...

    @property
    def resets(self) -> ResetSemantics:
        """What a reset restores."""
        return "per_episode"

    def families(self) -> tuple[str, ...]:
        """Names of all task families, in a stable order."""
        ...

    def usual(self) -> tuple[str, ...]:
        """Families that are used where none is named, in a stable order."""
        return self.families()

    def task(self, family: str, seed: int) -> Task:
        """The task of a family and seed: the same in every process. Raises SettingsError for an unknown family."""
        ...


def decided(success: bool, reason: str) -> Judgment:
    """The verdict of a reward that is 1 for a success and 0 for a failure."""
    return Judgment(outcome="success" if success else "failure", reward=float(success), reason=reason)


def undecided(reason: str) -> Judgment:
    """No verdict, for a reason in words."""
    return Judgment(outcome="undecided", reward=0.0, reason=reason)


def first_line(error: BaseException) -> str:
    """The first line of an error, without the call log that Playwright appends."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class Variant(NamedTuple):
    """A task made from another."""

    task: Task
    change: str
    """The kind of change, in one word."""


@runtime_checkable
class GoalSpace(Protocol):
    """Extends a `TaskSource` whose goals can be stated before their page is seen; pure."""

    def vary(self, task: Task, *, families: Collection[str], random: Random) -> Variant | None:
        """A task with a goal close to another's, in one of `families` and the same session; None where there is none."""
        ...

    def why_unreachable(self, task: Task) -> str:
        """Why the task's goal cannot be reached, as far as the site knows; empty: it can."""
        ...


class SiteTraits(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a site; its optional attribute `traits`."""

    reusable: bool = False
    """An episode leaves nothing in the browser but cookies and storage of the allowed origins. After wiping those, the same
    context may serve another episode of this site. Saves 600 ms of CPU per episode with full Chromium.
    """
    init_script: str = ""
    """Runs in every document before the page's own scripts: fixes the date, seeds randomness."""
    ended: str = ""
    """JavaScript expression that is true once the page has ended the episode; empty: no page ever does."""
    viewport: tuple[int, int] = (1280, 1024)
    """Width and height of the window in pixels."""
    probes_active: bool = False
    """Whether `probe` gets the final page of the episode; else the page that entered the site."""
    patience_s: float = 0.0
    """Time limit for entering and for probing where they take longer than one page; 0: `actors.page_timeout_s`."""


class Site(Protocol):
    """A web site on which episodes take place."""

    @property
    def name(self) -> str:
        """Name of the site, such as `store` or `miniwob`."""
        ...

    def origins(self, task: Task) -> tuple[str, ...]:
        """Where an episode of the task may navigate, as `scheme://host:port` or a folder such as `file:///…`."""
        ...

    async def enter(self, page: "BrowserPage", task: Task) -> str:
        """Bring the page into the task's start state; return the page's instruction, or an empty text."""
        ...

    async def probe(self, page: "BrowserPage", task: Task) -> dict[str, Any]:
        """Collect the evidence for evaluators at the end, in plain values."""
        ...

    async def leave(self, task: Task) -> None:
        """Release what the site holds for the episode; most hold nothing."""
        return None


@runtime_checkable
class Browserless(Protocol):
    """An environment without a browser: it opens its worlds itself."""

    @property
    def name(self) -> str:
        """Name of the environment, as of a `Site`."""
        ...

    def open_world(self) -> EpisodeWorld:
        """Open a world, isolated from all others."""
        ...


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """A visit of a site in a browser that is not ours."""

    url: str
    """Address that opens it in the task's start state."""
    token: str
    """The site's own name of it."""


@runtime_checkable
class Visitable(Protocol):
    """A site that agents of the user's own visit in browsers of their own: its record needs no browser of ours."""

    @property
    def name(self) -> str:
        """Name of the environment, as of a `Site`."""
        ...

    async def open_visit(self, task: Task) -> Visit:
        """Prepare the task's start state. Raises EnvironmentFailed."""
        ...

    async def read_visit(self, visit: Visit, task: Task) -> dict[str, Any]:
        """Collect the evidence for evaluators, as `Site.probe`. Raises EnvironmentFailed."""
        ...

    async def close_visit(self, visit: Visit) -> None:
        """Release what the site holds for it. Raises EnvironmentFailed."""
        ...


Venue = Site | Browserless
"""Where episodes take place."""


def traits_of(site: Site) -> SiteTraits:
    """The site's traits, or the careful default: a fresh context for every episode."""
    traits = getattr(site, "traits", None)
    return traits if isinstance(traits, SiteTraits) else SiteTraits()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an answer means what the reference says."""

    kind: Literal["same", "impossible"]
    """`same`: is the answer right; `impossible`: is it the reason why the task cannot be done."""
    task: str
    """The task's instruction."""
    reference: str
    answer: str

    @property
    def words(self) -> str:
        """The question that the reference answers."""
        if self.kind == "impossible":
            return f"Why can this not be done: {self.task}"
        return self.task


Answers = Mapping[Question, bool]
"""A model's answers so far."""
NO_ANSWERS: Answers = {}


Demonstrate = Callable[[Task, str, Observation, Sequence[Action]], Action]
"""Task, instruction, observation, earlier actions -> next action."""


class DemonstratedStep(msgspec.Struct, frozen=True):
    """One demonstrated step: instruction, earlier answers and page, and the demonstrator's action."""

    instruction: str
    answers: tuple[str, ...]
    """Earlier answers, oldest first."""
    page: Page
    action: Action
    source: str
    """Group for breaking down measurements, such as `lookup/click` or `store/find_price`."""
    seed: int = 0
    """Seed of the demonstrated task; all steps of a demonstration share it."""
