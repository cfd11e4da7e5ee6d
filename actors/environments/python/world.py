"""An episode in a plain Python class: its text is our page, our actions are its text, its rewards are the evidence.

The page has a line of text per line. Below it are the `choices` that the class offers at this step, as numbered buttons, or a
field for any text. A click sends a choice, typing sends the text, and so does `exit` with a message, which also ends the
episode. The class's methods run in a thread of their own, the same one from `reset` to `close`.
"""

import asyncio
import inspect
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from hindcast.actors.daemon_thread import DaemonThread
from hindcast.actors.environments.base import EpisodeWorld, ResetResult, StepOutcome, WindowImage
from hindcast.actors.environments.snapshot import LIMITS, observe
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Node, Observation, Page
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed, error_and_place
from hindcast.core.settings.schema import ActorSettings
from hindcast.events.catalogue.episode import StepResult

INSTRUCTION = "Do what the text asks for."
"""Instruction of a class that has no `instruction` and no docstring."""
FIELD = 1
"""Number of the field for any text."""
CLOSE_S = 2.0
"""Time limit of the class's `close`."""


def page_of(address: str, text: str, choices: tuple[str, ...]) -> Page:
    """A text as a page: a node per line, then numbered choices, or the field for any text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first_lines = lines[: LIMITS["nodes"]]
    nodes = [Node(kind="text", tag="p", text=line) for line in first_lines]
    if choices:
        nodes += [
            Node(kind="button", tag="button", text=choice, id=number)
            for number, choice in enumerate(choices, start=1)
        ]
    else:
        nodes.append(Node(kind="textarea", tag="textarea", text="Answer", id=FIELD))
    return Page(url=address, title="", nodes=tuple(nodes), truncated=len(lines) > len(first_lines))


class PythonVenue:
    """Where episodes of a class take place; see `Browserless`."""

    def __init__(self, name: str, make: Callable[[], Any], settings: ActorSettings) -> None:
        self.name = name
        self._make = make
        self._settings = settings

    def open_world(self) -> EpisodeWorld:
        """See `Browserless`."""
        return PythonWorld(self.name, self._make, self._settings)


class PythonWorld:
    """An `EpisodeWorld` in an object of the class. Each episode has an object of its own."""

    def __init__(self, name: str, make: Callable[[], Any], settings: ActorSettings) -> None:
        self._name = name
        self._make = make
        self._settings = settings
        self._thread = DaemonThread("environment")
        self._environment: Any = None
        self._address = f"text:{name}"
        self._choices: tuple[str, ...] = ()
        self._reward = 0.0
        self._ended = False

    async def reset(self, task: Task) -> ResetResult:
        """Make an object and reset it. Raises EnvironmentFailed where its code raises or takes too long."""
        limit_s = self._settings.page_timeout_s
        self._environment = await self._call("__init__", self._make, limit_s=limit_s)
        self._address = f"text:{task.full_family}"
        self._reward, self._ended = 0.0, False
        arguments = {"seed": task.seed, "family": task.family}
        parameters = inspect.signature(self._environment.reset).parameters
        takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
        accepted = {name: value for name, value in arguments.items() if takes_all or name in parameters}
        result = await self._call("reset", partial(self._environment.reset, **accepted), limit_s=limit_s)
        text = result[0] if isinstance(result, tuple) and result else result
        instruction = (
            getattr(self._environment, "instruction", "")
            or inspect.getdoc(type(self._environment))
            or INSTRUCTION
        )
        return ResetResult(
            instruction=str(instruction).strip().split("\n\n")[0].replace("\n", " "),
            observation=self._observe(text),
        )

    async def step(self, action: Action | ParseFailure) -> StepOutcome:
        """Send an action's text to the object. Raises EnvironmentFailed as `reset`."""
        began = time.perf_counter()
        result, detail, observation = await self._act(action)
        return StepOutcome(
            result=result,
            detail=detail,
            observation=observation,
            done=self._ended,
            act_ms=1000 * (time.perf_counter() - began),
            observe_ms=0.0,
        )

    async def picture(self) -> WindowImage:
        """Return no image: there is only text."""
        return WindowImage(missing="this environment is text")

    async def finish(self, answer: str | None) -> Evidence:
        """Send the message of `exit`, if any, and return the sum of the rewards as evidence."""
        if answer and not self._ended:
            await self._send(answer)
        probes = {"reward": self._reward, "ended": self._ended}
        return Evidence(answer=answer, final_url=self._address, probes=probes)

    async def close(self) -> None:
        """Call the object's `close`, if it has one. Never raises, bounded in time."""
        environment, self._environment = self._environment, None
        if callable(getattr(environment, "close", None)):
            with suppress(EnvironmentFailed):
                await self._call("close", environment.close, limit_s=CLOSE_S)
        self._thread.stop()

    async def _act(self, action: Action | ParseFailure) -> tuple[StepResult, str, Observation]:
        if isinstance(action, ParseFailure):
            return "parse_failure", action.reason, self._observation
        text = self._text_of(action)
        if text is None:
            offered = "a click on a choice" if self._choices else f"typing into [{FIELD}]"
            return "not_actionable", f"{action.name} does nothing here; expected {offered}", self._observation
        await self._send(text)
        return "ok", "", self._observation

    def _text_of(self, action: Action) -> str | None:
        """What an action sends; None: nothing."""
        if not self._choices:
            is_typed = action.name in ("Type", "Search") and action.element == FIELD
            return action.argument if is_typed else None
        number = action.element
        if action.name != "Click" or number is None or not 1 <= number <= len(self._choices):
            return None
        return self._choices[number - 1]

    async def _send(self, text: str) -> None:
        result = await self._call(
            "step", partial(self._environment.step, text), limit_s=self._settings.action_timeout_s
        )
        if not isinstance(result, tuple) or len(result) not in (3, 4, 5):
            raise EnvironmentFailed(
                f"{self._name}: step returned {type(result).__name__} {str(result)[:80]!r}; expected a text, a reward and whether "
                "the episode is over (or Gymnasium's five values)"
            )
        end_flags = result[2:4] if len(result) == 5 else result[2:3]
        try:
            self._reward += float(result[1])
        except (TypeError, ValueError) as error:
            raise EnvironmentFailed(
                f"{self._name}: step returned the reward {result[1]!r}: {error}"
            ) from error
        self._ended = any(bool(flag) for flag in end_flags)
        self._observe(result[0])

    def _observe(self, text: object) -> Observation:
        self._choices = tuple(str(choice) for choice in getattr(self._environment, "choices", None) or ())
        self._observation = observe(page_of(self._address, str(text), self._choices))
        return self._observation

    async def _call(self, name: str, function: Callable[[], Any], *, limit_s: float) -> Any:
        """Call the class's code. Raises EnvironmentFailed with its file and line, or with the limit that it exceeded."""
        try:
            async with asyncio.timeout(limit_s):
                result = await self._thread.call(function)
                return await result if inspect.isawaitable(result) else result
        except TimeoutError as error:
            raise EnvironmentFailed(
                f"{self._name}: {name} took longer than {limit_s:g} s (actors.action_timeout_s for step, actors.page_timeout_s "
                "for reset)"
            ) from error
        except Exception as error:  # other people's code, which may raise anything
            raise EnvironmentFailed(f"{self._name}: {name} raised {error_and_place(error)}") from error
