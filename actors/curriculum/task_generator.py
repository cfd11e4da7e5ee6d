"""Tasks in words, varied from failed ones by a model behind an endpoint (WebRL, arXiv 2411.02337, section 2.2).

A new task has the start (family and session) of the failed one that it varies, and a goal in words alone, which no rule
can judge. A model judges it (`orm`, `endpoint`), as in WebRL, and the settings must name one of them first.

A model's answers are not repeatable, but proposed tasks are in the log. A curriculum that dies in between asks again for
the missing ones, and no instruction is proposed twice. An equal question is answered from the cache.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import structlog

from hindcast.actors.curriculum.phases import wording
from hindcast.actors.curriculum.task_variation import VariationBasis
from hindcast.actors.endpoint.client import Endpoint
from hindcast.actors.endpoint.completion import Answered
from hindcast.actors.endpoint.prompts import json_in, prompt_text, schema_of
from hindcast.actors.judges.endpoint import page_text
from hindcast.core.domain.observation import Page
from hindcast.core.domain.task import Task
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.endpoint import ENDPOINT
from hindcast.core.structs import decode_json
from hindcast.events.catalogue import TaskProposed

PROMPT = prompt_text("tasks-1")
SHOWN = 16
"""Failed tasks, and known ones, in one question."""
IN_WORDS = "words"
"""How such a task differs from its parent."""
SEEDS = 2**31
"""Servers take seeds below this."""

logger = structlog.get_logger(__name__)


class _New(msgspec.Struct, forbid_unknown_fields=True):
    varies: int
    instruction: str


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    tasks: list[_New]


SCHEMA = schema_of(_Said, name="tasks")


class TaskGenerator:
    """Invents tasks by asking a model."""

    def __init__(self, endpoint: Endpoint, *, run_seed: int) -> None:
        self._endpoint = endpoint
        self._run_seed = run_seed
        self.name = f"{ENDPOINT}/{PROMPT.version} {endpoint.settings.model}"
        """The generator's name in `task.proposed`."""

    async def candidates(
        self,
        basis: VariationBasis,
        *,
        count: int,
        environments: Sequence[str],
        earlier_instructions: Sequence[str],
        page_of: Callable[[Task], Page | None],
    ) -> list[TaskProposed]:
        """Return up to `count` new tasks that vary failed ones of `environments`; none where no answer comes.

        `earlier_instructions`: those that were invented for the phase before. `page_of`: the first page of a task, where one is recorded.
        """
        failed = [task for task in basis.failed if task.environment in environments]
        if not failed:
            return []
        names = ("evolution", basis.phase, basis.first)
        failed.sort(key=lambda task: derive_seed(self._run_seed, *names, task.id))
        failed = [task for task in failed if task.environment == failed[0].environment][:SHOWN]
        page = await asyncio.to_thread(page_of, failed[0])
        max_characters = self._endpoint.settings.prompt_characters
        failed_lines = [f"{number}. {task.instruction}" for number, task in enumerate(failed, 1)]
        answer = await self._endpoint.ask(
            PROMPT.filled(
                {
                    "count": str(count),
                    "failed": "\n".join(failed_lines),
                    "known": "\n".join(earlier_instructions[-SHOWN:]) or "none but the failed ones",
                    "page": "not seen" if page is None else page_text(page, max_characters=max_characters),
                }
            ),
            lambda text: new_tasks(text, failed),
            schema=SCHEMA,
            seed=derive_seed(self._run_seed, *names) % SEEDS,
        )
        if not isinstance(answer, Answered):
            logger.warning("no tasks were invented", phase=basis.phase, trouble=answer.trouble)
            return []
        proposed_wordings, proposed = set(basis.proposed_digests), list[TaskProposed]()
        for task, parent in answer.value:
            if wording(task) in proposed_wordings or len(proposed) == count:
                continue
            proposed_wordings.add(wording(task))
            proposed.append(
                TaskProposed(
                    task=task,
                    source="generated",
                    parents=(parent.id,),
                    phase=basis.phase,
                    generator=self.name,
                    change=IN_WORDS,
                    prompt=PROMPT.digest,
                    consulted=None if proposed else answer.consulted,
                )
            )
        return proposed


def new_tasks(text: str, failed: Sequence[Task]) -> list[tuple[Task, Task]]:
    """Parse the tasks of an answer, each with the one that it varies.

    Raises:
        ValueError, msgspec.DecodeError: a task is invalid; the message explains it to the model.
    """
    tasks = []
    for entry in decode_json(json_in(text), _Said).tasks:
        instruction = " ".join(entry.instruction.split())
        if not instruction:
            raise ValueError("a task has no instruction")
        if not 1 <= entry.varies <= len(failed):
            raise ValueError(f"{instruction!r} varies task {entry.varies}, and there are 1 to {len(failed)}")
        parent = failed[entry.varies - 1]
        goal = {"words": instruction}
        tasks.append((msgspec.structs.replace(parent, instruction=instruction, goal=goal), parent))
    return tasks
