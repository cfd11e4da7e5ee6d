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
    """Estimates the value of the states that episodes begin with, with the critic or the reward model."""

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
        self, tasks: Sequence[Task], *, site_tasks: Sequence[Task], page_of: Callable[[Task], Page | None]
    ) -> list[TaskChecked]:
        """Check the tasks concurrently and return the results in their order.

        `site_tasks`: tasks that the sites gave. `page_of`: the first page of a task, where one is recorded.
        """
        return list(
            await asyncio.gather(
                *(self._check(task, site_tasks=site_tasks, page_of=page_of) for task in tasks)
            )
        )

    async def _check(
        self, task: Task, *, site_tasks: Sequence[Task], page_of: Callable[[Task], Page | None]
    ) -> TaskChecked:
        page = await asyncio.to_thread(page_of, task)
        alike = [
            site_task.instruction for site_task in site_tasks if site_task.environment == task.environment
        ]
        answer = await self._endpoint.ask(
            PROMPT.filled(
                {
                    "task": task.instruction,
                    "own": "\n".join(alike[:SHOWN]) or "not shown",
                    "page": "not seen"
                    if page is None
                    else page_text(page, max_characters=self._endpoint.settings.prompt_characters),
                }
            ),
            _parse_answer,
            schema=SCHEMA,
        )
        if isinstance(answer, Answered):
            feasible, reason = answer.value.feasible == "YES", answer.value.reason
        else:
            feasible, reason = None, f"{answer.trouble}: {answer.reason}"
        return TaskChecked(
            task_id=task.id,
            feasible=feasible,
            reason=reason,
            checker=self.name,
            prompt=PROMPT.digest,
            consulted=answer.consulted,
        )


def _parse_answer(text: str) -> _Said:
    return decode_json(json_in(text), _Said)
