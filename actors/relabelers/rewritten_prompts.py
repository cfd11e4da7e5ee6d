"""What each step would have read under another instruction: built once, here, so that the learner renders nothing.

From the recorded page, the recorded answers and the run's own renderer and tokenizer. First the prompt under the original
instruction is built and compared with what was recorded: where they differ, something that shapes prompts was changed
since, and nothing can be told.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hindcast.actors.episodes.prompt_reader import prompt_of
from hindcast.actors.relabelers.base import PlayedEpisode
from hindcast.core.domain.arrays import pack_ids, unpack_ids
from hindcast.core.domain.observation import Page
from hindcast.core.errors import RelabelerFailed
from hindcast.core.settings.schema import ActorSettings
from hindcast.events.catalogue.verdict import RewrittenPrompt


class PromptWriter:
    """Writes the prompts of one episode anew."""

    def __init__(
        self, episode: PlayedEpisode, pages: Sequence[Page], *, tokenizer: Any, settings: ActorSettings
    ) -> None:
        """Raises RelabelerFailed when the recorded prompts cannot be built again."""
        self._episode = episode
        self._pages = pages
        self._tokenizer = tokenizer
        self._settings = settings.model_copy(update={"renderer": episode.renderer})
        for index, step in enumerate(episode.steps):
            if pack_ids(self._ids(index, episode.instruction)) != step.prompt_ids:
                raise RelabelerFailed(
                    f"what step {index} read cannot be built again from its page: the renderer, the tokenizer or a "
                    "setting of prompts was changed since"
                )

    def _ids(self, index: int, instruction: str) -> list[int]:
        return prompt_of(
            self._tokenizer,
            self._settings,
            instruction=instruction,
            answers=[step.answer for step in self._episode.steps[:index]],
            page=self._pages[index],
            earlier=self._pages[max(0, index - self._settings.history_pages) : index],
        ).ids

    def rewritten(self, instruction: str, until_step: int) -> tuple[RewrittenPrompt, ...]:
        """Per step up to `until_step`.

        Raises:
            SettingsError: the instruction leaves no room for a page.

        """
        return tuple(
            difference(self._episode.steps[index].prompt_ids, self._ids(index, instruction))
            for index in range(until_step)
        )


def difference(recorded: bytes, ids: Sequence[int]) -> RewrittenPrompt:
    """How token ids differ from recorded ones: what they begin and end with alike stays."""
    old, new = unpack_ids(recorded), np.asarray(ids, dtype=np.int32)
    shorter = min(len(old), len(new))
    head = _alike(old[:shorter], new[:shorter])
    rest = shorter - head
    tail = _alike(old[len(old) - rest :][::-1], new[len(new) - rest :][::-1])
    return RewrittenPrompt(head=head, ids=pack_ids(new[head : len(new) - tail].tolist()), tail=tail)


def _alike(one: Any, other: Any) -> int:
    """How many ids at the beginning of two equally long arrays are equal."""
    unlike = np.flatnonzero(one != other)
    return int(unlike[0]) if len(unlike) else len(one)
