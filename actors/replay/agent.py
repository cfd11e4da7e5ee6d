"""Replays the calls of an agent of the user's own: its program is started again and gets the recorded answers.

What is compared is the whole prompt of each call, as text, which the page of a step is a part of. The site of a replay has another
port and another address of the visit, so these do not count.
"""

import re
from collections.abc import Sequence
from difflib import unified_diff
from typing import Any, Literal

from hindcast.actors.agents.model_call import Reply
from hindcast.actors.agents.world import AgentWorld, chat_encoder
from hindcast.actors.environments.base import ResetResult, StepOutcome, WindowImage
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task
from hindcast.events.catalogue import StepTaken

_ADDRESS = re.compile(r"(?:https?://)?(?:127\.0\.0\.1|localhost):\d+(?:/_enter/[\w-]+)?")
"""Address of the site, and the one that opens the visit, which contains its secret (`Visit`)."""
NOTHING = re.compile("(?!)")
"""A pattern without matches."""


def plain_visit(address: str) -> str:
    """An address as it is compared: that of a visit to a site is another one in each."""
    return _ADDRESS.sub("SITE", address)


class ReplayedAgent:
    """An `EpisodeWorld` in which the agent's calls get the recorded answers."""

    def __init__(
        self, world: AgentWorld, steps: Sequence[StepTaken], tokenizer: Any, *, ignored: re.Pattern[str]
    ) -> None:
        """`tokenizer`: of the run's policy, as it was. `ignored`: what does not count in prompts."""
        self._world = world
        self._steps = steps
        self._tokenizer = tokenizer
        self._ignored = ignored
        self._index = 0
        world.read_with(chat_encoder(tokenizer))

    async def reset(self, task: Task) -> ResetResult:
        """See `EpisodeWorld`."""
        return await self._world.reset(task)

    async def step(self, action: Action | ParseFailure) -> StepOutcome:
        """Send the recorded answer to the call that waits; see `EpisodeWorld`."""
        step = self._steps[self._index]
        answer_ids, versions = unpack_ids(step.action_ids).tolist(), unpack_ids(step.versions).tolist()
        self._world.answer(
            Reply(
                text=step.answer,
                finish=self._finish(answer_ids, step),
                prompt_tokens=len(self._world.call.prompt_ids),
                answer_tokens=len(answer_ids),
                version=max(versions),
                number=step.index,
            )
        )
        self._index += 1
        return await self._world.step(action)

    async def picture(self) -> WindowImage:
        """See `EpisodeWorld`."""
        return await self._world.picture()

    async def finish(self, answer: str | None) -> Evidence:
        """See `EpisodeWorld`."""
        return await self._world.finish(answer)

    async def close(self) -> None:
        """See `EpisodeWorld`."""
        await self._world.close()

    def compare_prompt(self, step: StepTaken) -> tuple[str, ...]:
        """Lines that differ between the recorded prompt of a step and the call that waits; empty: none."""
        recorded, replayed = (
            self._ignored.sub("", plain_visit(self._tokenizer.decode(ids)))
            for ids in (unpack_ids(step.prompt_ids).tolist(), self._world.call.prompt_ids)
        )
        compared = unified_diff(recorded.splitlines(), replayed.splitlines(), n=0, lineterm="")
        return tuple(line for line in compared if not line.startswith(("---", "+++", "@@")))

    def _finish(self, answer_ids: Sequence[int], step: StepTaken) -> Literal["stop", "length"]:
        """Why the answer ended, which is not recorded: at the limit of tokens, unless the end token is the last one."""
        full = len(answer_ids) >= step.sampling.max_tokens
        return "length" if full and answer_ids[-1] != self._tokenizer.eos_token_id else "stop"
