"""Asks a model behind an endpoint whether a generated task can be done at all (WebRL, arXiv 2411.02337, section 2.2).

It serves tasks in words, for which no site knows the truth. Each answer is an event (`task.checked`) and is never asked
again. Without an answer the task is rejected, with the reason.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from hindcast.actors.endpoint.client import Endpoint
from hindcast.actors.endpoint.completion import Answered
from hindcast.actors.endpoint.prompts import json_in, prompt_text, schema_of
from hindcast.actors.judges.endpoint import page_text
from hindcast.core.domain.observation import Page
from hindcast.core.domain.task import Task
from hindcast.core.settings.endpoint import ENDPOINT
from hindcast.core.structs import decode_json
from hindcast.events.catalogue import TaskChecked, WeightsPublished


class FirstState(msgspec.Struct, frozen=True):
    """The state that an episode of a task begins with."""

    task: Task
    page: Page


class Valuer(Protocol):
    """Values first states."""

    def values(self, states: Sequence[FirstState], published: WeightsPublished) -> list[float]:
        """V of each state under these weights, in [0, 1]. Blocks; equal states get equal values."""
        ...


PROMPT = prompt_text("feasible-1")
SHOWN = 16
"""Number of the site's own tasks in one question."""


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    reason: str
    feasible: Literal["YES", "NO"]


SCHEMA = schema_of(_Said, name="feasibility")


class FeasibilityChecker:
    """Checks the feasibility of tasks by asking a model."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.name = f"{ENDPOINT}/{PROMPT.version} {endpoint.settings.model}"
        """The checker's name in `task.checked`."""

    async def check(
        self, tasks: Sequence[Task], *, own: Sequence[Task], page_of: Callable[[Task], Page | None]
    ) -> list[TaskChecked]:
        """Check the tasks concurrently and return the results in their order.

        `own`: tasks that the sites gave. `page_of`: the first page of a task, where one is recorded.
        """
        return list(await asyncio.gather(*(self._check(task, own=own, page_of=page_of) for task in tasks)))

    async def _check(
        self, task: Task, *, own: Sequence[Task], page_of: Callable[[Task], Page | None]
    ) -> TaskChecked:
        page = await asyncio.to_thread(page_of, task)
        alike = [one.instruction for one in own if one.environment == task.environment]
        said = await self._endpoint.ask(
            PROMPT.filled(
                {
                    "task": task.instruction,
                    "own": "\n".join(alike[:SHOWN]) or "not shown",
                    "page": "not seen"
                    if page is None
                    else page_text(page, most=self._endpoint.settings.prompt_characters),
                }
            ),
            _read,
            schema=SCHEMA,
        )
        if isinstance(said, Answered):
            feasible, reason = said.value.feasible == "YES", said.value.reason
        else:
            feasible, reason = None, f"{said.trouble}: {said.reason}"
        return TaskChecked(
            task_id=task.id,
            feasible=feasible,
            reason=reason,
            checker=self.name,
            prompt=PROMPT.digest,
            consulted=said.consulted,
        )


def _read(text: str) -> _Said:
    return decode_json(json_in(text), _Said)
