"""The prompt of each step under another instruction, built once here, so that the learner renders nothing.

The input is the recorded page and answers, and the run's renderer and tokenizer. The prompt under the original
instruction is built first and compared with the recorded one. If they differ, something that shapes prompts has changed
since, and no prompt is rewritten.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hindcast.actors.environments.early_stopping_demonstrator import LEAVE
from hindcast.actors.episodes.answerers import demonstrated_thought, write_answer
from hindcast.actors.episodes.prompt_reader import prompt_of
from hindcast.core.domain.arrays import pack_ids, unpack_ids
from hindcast.core.domain.observation import Page
from hindcast.core.errors import RelabelerFailed
from hindcast.core.settings.schema import ActorSettings
from hindcast.events.catalogue.verdict import RewrittenPrompt, StoppingStep
from hindcast.events.log.episode_assembler import AssembledEpisode


class PromptWriter:
    """Rebuilds the prompts of one episode under other instructions."""

    def __init__(
        self, episode: AssembledEpisode, pages: Sequence[Page], *, tokenizer: Any, settings: ActorSettings
    ) -> None:
        """Raises RelabelerFailed when the recorded prompts cannot be rebuilt."""
        self._episode = episode
        self._pages = pages
        self._tokenizer = tokenizer
        self._settings = settings.model_copy(update={"renderer": episode.started.renderer})
        for index, step in enumerate(episode.steps):
            if pack_ids(self._ids(index, episode.started.instruction)) != step.fact.prompt_ids:
                raise RelabelerFailed(
                    f"what step {index} read cannot be built again from its page: the renderer, the tokenizer or a "
                    "setting of prompts was changed since"
                )

    def _ids(self, index: int, instruction: str) -> list[int]:
        return prompt_of(
            self._tokenizer,
            self._settings,
            instruction=instruction,
            answers=[step.fact.answer for step in self._episode.steps[:index]],
            page=self._pages[index],
            earlier=self._pages[max(0, index - self._settings.history_pages) : index],
        ).ids

    def rewritten(self, instruction: str, until_step: int) -> tuple[RewrittenPrompt, ...]:
        """Return the prompt of each step up to `until_step` under another instruction.

        Raises:
            SettingsError: the instruction leaves no room for a page.
        """
        return tuple(self._rewritten(index, instruction) for index in range(until_step))

    def stop(self, instruction: str, until_step: int) -> StoppingStep | None:
        """Return how to stop at the step after the first `until_step`; None if there is no later step.

        Raises:
            SettingsError: the instruction leaves no room for a page.
        """
        if until_step == len(self._pages):
            return None
        page, settings = self._pages[until_step], self._settings
        thought = demonstrated_thought(
            LEAVE, settings=settings, page=page, instruction=instruction, steps=until_step
        )
        written = write_answer(
            LEAVE, tokenizer=self._tokenizer, settings=settings, page=page, thought=thought
        )
        return StoppingStep(
            prompt=self._rewritten(until_step, instruction),
            action_ids=pack_ids(written.token_ids),
            answer_from=written.answer_from,
        )

    def _rewritten(self, index: int, instruction: str) -> RewrittenPrompt:
        return difference(self._episode.steps[index].fact.prompt_ids, self._ids(index, instruction))


def difference(recorded: bytes, ids: Sequence[int]) -> RewrittenPrompt:
    """Encode how token ids differ from recorded ones; the common beginning and end are not repeated."""
    old, new = unpack_ids(recorded), np.asarray(ids, dtype=np.int32)
    shorter = min(len(old), len(new))
    head = _alike(old[:shorter], new[:shorter])
    remaining = shorter - head
    tail = _alike(old[len(old) - remaining :][::-1], new[len(new) - remaining :][::-1])
    return RewrittenPrompt(head=head, ids=pack_ids(new[head : len(new) - tail].tolist()), tail=tail)


def _alike(first: Any, second: Any) -> int:
    """How many ids at the beginning of two equally long arrays are equal."""
    unlike = np.flatnonzero(first != second)
    return int(unlike[0]) if len(unlike) else len(first)
