"""Models in the curriculum process that value the first states of generated tasks: critic, or outcome reward model.

A state is read with the prompt of an actor's policy, and alone, so that its value does not depend on the other states in
the call.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from hindcast.actors.curriculum.feasibility import FirstState
from hindcast.actors.episodes.prompt_reader import prompt_of
from hindcast.actors.scaffold.scaffold import scaffold_of
from hindcast.core.models.auxiliary import Critic, CriticForm, OutcomeModel, load_critic, values_of
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.prompts.verdict_prompt import build_verdict_prompt
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import WeightsPublished
from hindcast.storage.blobs.store import BlobStore


class CriticValuer:
    """`Valuer` by the published weights of the critic; loads them on first use."""

    def __init__(self, folder: Path, form: CriticForm, *, blobs: BlobStore, settings: Settings) -> None:
        """`folder`: of the run's base policy; the critic shares its architecture and tokenizer."""
        self._folder = folder
        self._form = form
        self._blobs = blobs
        self._settings = settings
        self._tokenizer: Any = None
        self._loaded: tuple[str, Critic] | None = None
        """Digest of the loaded weights, and the critic."""

    def values(self, states: Sequence[FirstState], published: WeightsPublished) -> list[float]:
        """See `Valuer`. Raises BlobMissing when the weights were deleted."""
        torch.set_num_threads(self._settings.policy.threads)
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self._folder)
        model = self._critic(published)
        state_values = []
        for state in states:
            task = state.task
            scaffold = scaffold_of(task, self._settings.scaffold)
            heading = ""
            if scaffold is not None:
                heading = scaffold.frame(state.page, step=0, instruction=task.instruction).heading
            prompt = prompt_of(
                self._tokenizer,
                self._settings.actors,
                instruction=task.instruction,
                answers=(),
                page=state.page,
                earlier=(),
                heading=heading,
            )
            with torch.no_grad():
                state_values += values_of(model([prompt.ids]))
        return state_values

    def _critic(self, published: WeightsPublished) -> Critic:
        if self._loaded is None or self._loaded[0] != published.weights.sha256:
            weights = self._blobs.checked_path(published.weights)
            self._loaded = (
                published.weights.sha256,
                load_critic(
                    self._folder, self._form, weights=weights, device=self._settings.policy.model_device
                ),
            )
        return self._loaded[1]


class OutcomeValuer:
    """`Valuer` by the outcome reward model: P(YES) of an episode of the task at its first page, with the judge's prompt."""

    def __init__(self, folder: Path, *, blobs: BlobStore, settings: Settings) -> None:
        """`folder`: of the run's base policy; the model shares its architecture and tokenizer."""
        self._folder = folder
        self._blobs = blobs
        self._settings = settings
        self._loaded: tuple[str, OutcomeModel] | None = None
        """Digest of the loaded weights, and the model."""

    def values(self, states: Sequence[FirstState], published: WeightsPublished) -> list[float]:
        """See `Valuer`. Raises BlobMissing when the weights were deleted."""
        if self._loaded is None or self._loaded[0] != published.weights.sha256:
            weights = self._blobs.checked_path(published.weights)
            model = OutcomeModel(
                self._folder,
                weights,
                threads=self._settings.policy.threads,
                device=self._settings.policy.model_device,
            )
            self._loaded = published.weights.sha256, model
        _, model = self._loaded
        prompts = [
            build_verdict_prompt(
                model.tokenizer,
                instruction=state.task.instruction,
                answers=(),
                page=state.page,
                max_tokens=self._settings.judge.orm_prompt_tokens,
            )
            for state in states
        ]
        return [model.probability(prompt.ids) for prompt in prompts]
