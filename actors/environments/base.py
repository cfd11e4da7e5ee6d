"""What every environment offers: reset(task) -> observation, step(action) -> observation, probes -> evidence."""

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
    """What a reset returns."""

    instruction: str
    """The task's own, or the one the page gives."""
    observation: Observation


class WindowImage(msgspec.Struct, frozen=True, kw_only=True):
    """What a person sees of a world, as an image."""

    image: bytes = b""
    """JPEG; empty where it could not be had."""
    missing: str = ""
    """Why not, in words."""
    width: int = 0
    """Of the image, in its own pixels."""
    height: int = 0
    scale: float = 1.0
    """Pixels of the image for one CSS pixel of the window."""
    marks: tuple[Mark, ...] = ()
    """Where the numbered elements of the observation are in the window."""


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one action led to. Failures of the action are results, never exceptions."""

    result: StepResult
    detail: str
    """In words, empty when the result is `ok`."""
    observation: Observation
    done: bool
    """The page itself has ended the episode."""
    act_ms: float
    observe_ms: float
    touched: Box | None = None
    """Where the action's element was in the window when it was acted upon; None: it has none, or it could not be seen."""


class EpisodeWorld(Protocol):
    """One isolated episode in an environment, from reset to evidence. Obtained from an `Environment`.

    Raises EnvironmentFailed or BrowserUnavailable when the world itself breaks: the episode is then abandoned.
    """

    async def reset(self, task: Task) -> ResetResult:
        """Bring the world into the task's start state."""
        ...

    async def step(self, action: Action | ParseFailure) -> StepOutcome:
        """Carry out one action within its deadline and observe. A parse failure changes nothing but is observed."""
        ...

    async def picture(self) -> WindowImage:
        """What the present observation looks like; never raises, bounded in time, changes nothing."""
        ...

    async def finish(self, answer: str | None) -> Evidence:
        """Collect what evaluators need. Called once, at the end."""
        ...

    async def close(self) -> None:
        """Let go of context and pages; never raises, bounded in time."""
        ...


class TaskSource(Protocol):
    """The tasks of one environment; pure, needs no browser and no server."""

    @property
    def name(self) -> str:
        """`store`, `miniwob`."""
        ...

    @property
    def resets(self) -> ResetSemantics:
        """What a reset really resets."""
        ...

    def families(self) -> tuple[str, ...]:
        """Names of all task families, in a stable order."""
        ...

    def usual(self) -> tuple[str, ...]:
        """Those that are drawn from where none is named, in a stable order."""
        ...

    def task(self, family: str, seed: int) -> Task:
        """The task of a family and seed: the same in every process."""
        ...


class Variant(NamedTuple):
    """A task made from another."""

    task: Task
    change: str
    """In a word, what was changed."""


@runtime_checkable
class GoalSpace(Protocol):
    """What a `TaskSource` offers besides where goals can be written down before their page is seen; pure."""

    def vary(self, task: Task, *, families: Collection[str], random: Random) -> Variant | None:
        """A task whose goal lies near another's, in one of `families` and the same session; None where there is none."""
        ...

    def why_unreachable(self, task: Task) -> str:
        """Why nobody could reach the task's goal, by what the site knows; empty: it can be reached."""
        ...
