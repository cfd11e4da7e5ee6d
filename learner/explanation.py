"""Which steps moved the policy: an update is recomputed, and its gradient taken apart by the steps that it was summed from.

Two questions are answered of each step of an update, both to first order and both additive over steps, episodes and families:

- `share`: g_i . g / |g|^2, its part of the update's gradient. The parts of an update sum to 1; a negative one pulled against it.
- `pull`: what its part of the step did to the expected reward J of some other episodes, the probe:
  -eta . grad J . P g_i with AdamW's step sizes P. grad J is estimated as in REINFORCE, with the probe's mean reward as baseline.
  Xia et al. 2024 (LESS, arXiv 2402.04333), section 3, select data by this estimate.

Both leave out what later updates did because of this one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from hindcast.core.models.arithmetic import arithmetic
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from hindcast.events.envelope import BlobRef
from hindcast.learner.buffer.records import Batch, Sample
from hindcast.learner.training import Training, learning_rate
from hindcast.storage.blobs.store import BlobStore


class StepShare(msgspec.Struct, frozen=True, kw_only=True):
    """One step's part of an update."""

    update: int
    position: int
    """Of its step.taken."""
    episode: str
    action_ids: bytes
    """Its answer as it was trained on, int32: the recorded one, or one that a relabeler wrote."""
    advantage: float
    rehearsed: bool
    """Whether it is of a stored success that is only imitated."""
    share: float
    pull: float | None
    """Change of the probe's expected reward; None: there is no probe."""


class ProbeStep(NamedTuple):
    """A step of an episode by which updates are judged."""

    sample: Sample
    weight: float
    """(reward - mean reward) / episodes."""


@dataclass(slots=True)
class Inquiry:
    """What is asked about a run's updates, and what was found."""

    updates: range
    """Numbers of consecutive updates of the policy."""
    probe: Sequence[ProbeStep] = ()
    steps: list[StepShare] = field(default_factory=list)
    watched: list[Sample] = field(default_factory=list)
    """Steps whose tokens are compared: the probe's; without one those of the updates."""
    before: list[NDArray[np.float32]] = field(default_factory=list)
    """Log-probabilities of their tokens before the first update  # per step [tokens]."""
    after: list[NDArray[np.float32]] = field(default_factory=list)
    """The same after the last."""


class ExplainedTraining(Training):
    """A `Training` that answers an inquiry while it computes the updates. Their bits stay what they are."""

    def __init__(
        self,
        folder: Path,
        base: BlobRef,
        *,
        blobs: BlobStore,
        settings: LearnerSettings,
        stop: Event | None = None,
        inquiry: Inquiry,
    ) -> None:
        super().__init__(folder, base, blobs=blobs, settings=settings, stop=stop)
        self._inquiry = inquiry
        self._slope: list[torch.Tensor] | None = None
        """Gradient of the probe's expected reward at the beginning of the batch."""

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """See `Trainer.begin`."""
        super().begin(plan, batch)
        self._slope = None

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        """See `Trainer.step`."""
        assert self._plan is not None, "no batch was begun"
        inquiry, number = self._inquiry, self.update + 1
        if self._plan.model != POLICY or number not in inquiry.updates:
            return super().step(index)
        if not inquiry.watched:
            parts = [index] if len(inquiry.updates) == 1 else range(len(self._parts))
            of_updates = [term.sample for part in parts for term in self._terms[part] if term.counts]
            inquiry.watched = [probe.sample for probe in inquiry.probe] or of_updates
            inquiry.before = self.log_probs(inquiry.watched)
        self._take_apart(index, number)
        fact = super().step(index)
        if number == inquiry.updates[-1]:
            inquiry.after = self.log_probs(inquiry.watched)
        return fact

    def _take_apart(self, index: int, number: int) -> None:
        terms = [term for term in self.weighed_terms(index) if term.counts]
        if not terms:
            return
        gradient = self.gradient(terms)
        squared = _dot(gradient, gradient)
        toward = self._toward(gradient, squared, number) if self._inquiry.probe else None
        for term in terms:
            step_gradient = self.gradient([term])
            self._inquiry.steps.append(
                StepShare(
                    update=number,
                    position=term.sample.position,
                    episode=term.sample.episode,
                    action_ids=term.sample.action_ids,
                    advantage=term.advantage,
                    rehearsed=term.rehearsed,
                    share=_dot(step_gradient, gradient) / squared if squared else 0.0,
                    pull=None if toward is None else -_dot(step_gradient, toward),
                )
            )

    def _toward(self, gradient: Sequence[torch.Tensor], squared: float, number: int) -> list[torch.Tensor]:
        """What a gradient is multiplied with to get the probe's loss of expected reward."""
        if self._slope is None:
            self._slope = self._probe_slope()
        clipped = min(1.0, self._settings.max_gradient_norm / max(squared**0.5, 1e-12))
        is_renewed = self._renewed_at == self._policy.update
        rate = learning_rate(self._settings, number, step=1 if is_renewed else self._policy.steps + 1)
        sizes = self._policy.step_sizes(
            [clipped * slope for slope in gradient], learning_rate=rate, anew=is_renewed
        )
        return [clipped * size * slope for size, slope in zip(sizes, self._slope, strict=True)]

    def _probe_slope(self) -> list[torch.Tensor]:
        probe, model = self._inquiry.probe, self._policy.model
        self._policy.forget_gradient()
        passes = self._passes([term.sample for term in probe], self._settings.tokens_per_forward)
        for shared in passes:
            self._check()
            with arithmetic(self._settings.precision, model):
                log_probs = shared.log_probs(model)
            parts = [
                probe[index].weight * values.sum()
                for index, values in zip(shared.indices, log_probs, strict=True)
            ]
            torch.stack(parts).sum().backward()  # type: ignore[no-untyped-call]
        return self._policy.take_gradient()


def _dot(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> float:
    return sum(float(torch.sum(x * y, dtype=torch.float64)) for x, y in zip(left, right, strict=True))
