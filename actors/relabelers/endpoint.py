"""The relabeler `endpoint`: a model behind an OpenAI-compatible server describes what an episode achieved (as in HSL).

It reads every page and answer, and names goals, the first step that achieved each, and the steps that were relevant. Its
reply is checked against the episode (`goals.v1`: instruction, step, relevant steps) and recorded like the goals of the
rules, but without family and goal, which words do not have. The event holds prompt, model, tokens and cost.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from hindcast.actors.endpoint.client import Endpoint
from hindcast.actors.endpoint.completion import Answered
from hindcast.actors.endpoint.prompts import json_in, prompt_text, schema_of
from hindcast.actors.judges.endpoint import identity_of, page_text
from hindcast.actors.judges.judged_episode import read_page
from hindcast.actors.relabelers.base import AchievedGoal, RelabelResult, why_not_goal
from hindcast.core.domain.observation import Page
from hindcast.core.errors import RelabelerUnavailable
from hindcast.core.settings.endpoint import ENDPOINT
from hindcast.core.structs import decode_json
from hindcast.events.log.episode_assembler import AssembledEpisode
from hindcast.storage.blobs.store import BlobStore

PROMPT = prompt_text("relabel-1")


class _Goal(msgspec.Struct, forbid_unknown_fields=True):
    instruction: str
    step: int
    relevant: list[int]


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    goals: list[_Goal]


SCHEMA = schema_of(_Said, name="goals")


class EndpointRelabeler:
    """Relabels by asking a model behind an endpoint."""

    def __init__(self, endpoint: Endpoint, *, blobs: BlobStore, max_goals: int) -> None:
        """`max_goals`: largest number of goals per episode (`relabeler.goals`)."""
        self.identity = identity_of(ENDPOINT, PROMPT.version, endpoint.settings.model, PROMPT.digest)
        self._endpoint = endpoint
        self._blobs = blobs
        self._max_goals = max_goals

    async def goals(self, episode: AssembledEpisode, pages: Sequence[Page]) -> RelabelResult:
        """See `Relabeler.goals`."""
        final = await asyncio.to_thread(read_page, self._blobs, episode.ended.final_observation)
        room = self._endpoint.settings.prompt_characters // (len(pages) + 1)
        steps = [
            f"Step {number}. The page:\n{page_text(page, max_characters=room)}\nThe answer:\n{step.fact.answer.strip()}"
            for number, (page, step) in enumerate(zip(pages, episode.steps, strict=True), 1)
        ]
        messages = PROMPT.filled(
            {
                "most": str(self._max_goals),
                "told": episode.started.instruction,
                "steps": "\n\n".join(steps),
                "end": "not kept" if final is None else page_text(final, max_characters=room),
            }
        )
        answer = await self._endpoint.ask(
            messages, lambda text: goals_of(text, steps=len(pages)), schema=SCHEMA
        )
        if isinstance(answer, Answered):
            return RelabelResult(tuple(answer.value), consulted=answer.consulted)
        if answer.may_pass:
            raise RelabelerUnavailable(answer.reason)
        return RelabelResult((), consulted=answer.consulted, failure=f"{answer.trouble}: {answer.reason}")


def goals_of(text: str, *, steps: int) -> list[AchievedGoal]:
    """Parse the goals that a reply names for an episode of so many steps.

    Raises:
        ValueError, msgspec.DecodeError: the reply is invalid; the message explains it to the model.
    """
    goals: dict[str, AchievedGoal] = {}
    for goal in decode_json(json_in(text), _Said).goals:
        instruction = goal.instruction.strip()
        if not 1 <= goal.step <= steps:  # before anything of that length is made
            raise ValueError(
                f"the goal {instruction!r} is achieved by step {goal.step}, and there are 1 to {steps}"
            )
        outside = [step for step in goal.relevant if not 1 <= step <= goal.step]
        if goal.step not in goal.relevant or outside:
            raise ValueError(
                f"the relevant steps {goal.relevant} of the goal {instruction!r} must lie from 1 to {goal.step}, the step that "
                "achieved it, and hold that one"
            )
        relevance = tuple(float(number in goal.relevant) for number in range(1, goal.step + 1))
        achieved = AchievedGoal(instruction, goal.step, relevance)
        wrong = why_not_goal(achieved, steps=steps)
        if wrong is not None:
            raise ValueError(wrong)
        goals.setdefault(instruction.casefold(), achieved)
    return list(goals.values())
