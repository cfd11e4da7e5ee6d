"""Training of the critic: cross-entropy of V(s_t) against the episode's outcome R (WebRL, arXiv 2411.02337).

    L = mean over the states of a mini-batch of -[R log V(s) + (1 - R) log(1 - V(s))], summed over the heads

With two heads, as released, each state counts once for itself and once as the next state of the step before it.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from math import fsum
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hindcast.core.domain.arrays import pack_floats, unpack_ids
from hindcast.core.models.arithmetic import arithmetic
from hindcast.core.models.critic import Critic, outcome_losses, value_packs, values_of
from hindcast.core.rl.combined_state import CRITIC
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from hindcast.events.catalogue.training import SampleReport
from hindcast.learner.batch_plan import Minibatch, minibatches_of
from hindcast.learner.buffer.records import Batch, Sample
from hindcast.learner.clocks import Clocks
from hindcast.learner.trained_model import TrainedModel
from hindcast.learner.update import MinibatchReport, step_along


class _State(NamedTuple):
    """One state of a mini-batch with its target."""

    sample: Sample
    outcome: float
    share: float
    """Share of the loss; 0 where a replayed step is left out."""


class CriticTraining:
    """Trains the critic; implements `learner.auxiliary.trainer.AuxiliaryTrainer`."""

    def __init__(
        self, folder: Path, base: Any, settings: LearnerSettings, *, seed: int, check: Callable[[], None]
    ) -> None:
        self._critic = Critic(base, settings.critic_heads, seed=seed).eval()
        self._check = check
        self._settings = settings
        self._plan: BatchPlanned | None = None
        self._parts: list[list[_State]] = []
        self.learned = TrainedModel(
            CRITIC, self._critic, weight_decay=settings.weight_decay, offload=settings.offload_optimizer
        )

    def values(self, samples: Sequence[Sample], *, tokens_per_forward: int) -> list[float]:
        """V of the state that each step was taken in, in the order of `samples`."""
        prompts, found = _prompts(samples), [0.0] * len(samples)
        with torch.no_grad():
            for pack in value_packs(prompts, tokens_per_forward=tokens_per_forward):
                self._check()
                with arithmetic(self._settings.precision, self._critic):
                    values = values_of(self._critic([prompts[index] for index in pack]))
                for index, value in zip(pack, values, strict=True):
                    found[index] = value
        return found

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """See `AuxiliaryTrainer.begin`."""
        self._plan, self._settings = plan, batch.settings
        twice = batch.settings.critic_heads == "double"
        self._parts = [_states(plan, batch, part, twice=twice) for part in minibatches_of(plan)]

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        """See `AuxiliaryTrainer.step`."""
        assert self._plan is not None, "no batch was begun"
        began = Clocks.now()
        states = self._parts[index]
        losses, values = self._backward(states)

        def account() -> MinibatchReport:
            return MinibatchReport(
                inputs=_inputs_digest(states),
                metrics=_metrics(states, losses, values),
                samples=SampleReport(
                    advantages=pack_floats([one.outcome - v for one, v in zip(states, values, strict=True)]),
                    weights=pack_floats([one.share for one in states]),
                    ratios=pack_floats([1.0] * len(states)),
                    masks=pack_floats([float(one.share > 0) for one in states]),
                ),
            )

        return step_along(
            self.learned,
            self._plan,
            index,
            settings=self._settings,
            rate=lambda _: self._settings.critic_learning_rate,
            account=account,
            began=began,
        )

    def _backward(self, states: Sequence[_State]) -> tuple[list[float], list[float]]:
        """Accumulate the gradient. Returns each state's loss, not multiplied by its share, and its value before the step."""
        self.learned.forget_gradient()
        prompts = _prompts([one.sample for one in states])
        losses, values = [0.0] * len(states), [0.0] * len(states)
        for pack in value_packs(prompts, tokens_per_forward=self._settings.tokens_per_forward):
            self._check()
            with arithmetic(self._settings.precision, self._critic):
                log_probs = self._critic([prompts[index] for index in pack])
            own = outcome_losses(log_probs, torch.tensor([states[index].outcome for index in pack]))
            (own * torch.tensor([states[index].share for index in pack])).sum().backward()  # type: ignore[no-untyped-call]
            found = values_of(log_probs.detach())
            for index, loss, value in zip(pack, own.detach().tolist(), found, strict=True):
                losses[index], values[index] = loss, value
        return losses, values


def _prompts(samples: Sequence[Sample]) -> list[list[int]]:
    return [unpack_ids(sample.prompt_ids).tolist() for sample in samples]


def _states(plan: BatchPlanned, batch: Batch, part: Minibatch, *, twice: bool) -> list[_State]:
    """The states of a mini-batch in training order. `twice`: every state but an episode's first has double weight."""
    samples = iter(batch.samples[part.first_sample : part.end_sample])
    found = []
    for planned in plan.episodes[part.first_episode : part.end_episode]:
        kept = planned.kept or bytes([1] * planned.samples)
        for step, counts in enumerate(kept):
            weight = float(counts) * (2 if twice and step > 0 else 1)
            found.append(_State(next(samples), planned.reward, weight))
    total = sum(bool(one.share) for one in found)
    return [one._replace(share=one.share / total) for one in found]


def _metrics(states: Sequence[_State], losses: Sequence[float], values: Sequence[float]) -> dict[str, float]:
    """Metrics over the states with a positive share; values are those before the step."""
    counted = [
        (one, loss, value) for one, loss, value in zip(states, losses, values, strict=True) if one.share > 0
    ]
    good = [value for one, _, value in counted if one.outcome >= 0.5]
    bad = [value for one, _, value in counted if one.outcome < 0.5]
    right = sum(value >= 0.5 for value in good) + sum(value < 0.5 for value in bad)
    return {
        "loss": fsum(one.share * loss for one, loss, _ in counted),
        "value_mean": fsum(value for _, _, value in counted) / len(counted),
        "value_of_successes": fsum(good) / max(1, len(good)),
        "value_of_failures": fsum(bad) / max(1, len(bad)),
        "accuracy": right / len(counted),
        "outcome_mean": fsum(one.outcome for one, _, _ in counted) / len(counted),
        "episodes": float(len({one.sample.episode for one, _, _ in counted})),
        "samples": float(len(counted)),
        "prompt_tokens": float(sum(len(one.sample.prompt_ids) // 4 for one, _, _ in counted)),
    }


def _inputs_digest(states: Sequence[_State]) -> str:
    """Digest of an update's inputs: prompts, outcomes, shares."""
    state = sha256()
    for one in states:
        for content in (one.sample.prompt_ids, pack_floats([one.outcome, one.share])):
            state.update(len(content).to_bytes(4, "little"))
            state.update(content)
    return state.hexdigest()
