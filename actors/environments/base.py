"""Interface of environments: reset(task) -> observation, step(action) -> observation, probes -> evidence."""

from collections.abc import Collection
from random import Random
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Observation
from hindcast.core.domain.screen import Box, Mark
from hindcast.core.domain.task import Task
from hindcast.events.catalogue.episode import StepResult

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
        ...

    def families(self) -> tuple[str, ...]:
        """Names of all task families, in a stable order."""
        ...

    def usual(self) -> tuple[str, ...]:
        """Families that are used where none is named, in a stable order."""
        ...

    def task(self, family: str, seed: int) -> Task:
        """The task of a family and seed: the same in every process."""
        ...


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
