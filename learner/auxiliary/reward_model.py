"""Training of the outcome reward model (ORM): cross-entropy of P(YES) over {YES, NO} against the truth judge's verdict.

    L = -1/N sum_i log P(answer_i | prompt_i)        (WebRL, arXiv 2411.02337)

Training starts from the base policy. Half of each mini-batch are successes, so that neither answer is right by default.
"""

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from math import fsum
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from hindcast.core.domain.arrays import pack_floats, unpack_ids
from hindcast.core.models.arithmetic import arithmetic
from hindcast.core.models.logprobs import SampleToScore, packs
from hindcast.core.models.orm import log_odds
from hindcast.core.models.policy import load_policy
from hindcast.core.prompts.verdict_prompt import answer_ids
from hindcast.core.rl.combined_state import ORM
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from hindcast.events.catalogue.training import SampleReport
from hindcast.learner.batch_plan import minibatches_of
from hindcast.learner.buffer.records import Batch, Sample
from hindcast.learner.clocks import Clocks
from hindcast.learner.trained_model import TrainedModel
from hindcast.learner.update import MinibatchReport, step_along


class LabelledEpisode(NamedTuple):
    """One labelled example: a prompt, and whether the episode succeeded."""

    sample: Sample
    success: bool


class RewardModelTraining:
    """Trains the reward model; implements `learner.auxiliary.trainer.AuxiliaryTrainer`."""

    def __init__(
        self, folder: Path, base: Any, settings: LearnerSettings, *, seed: int, check: Callable[[], None]
    ) -> None:
        self._answers = answer_ids(load_policy(folder).tokenizer)
        self._settings = settings
        self._check = check
        self._plan: BatchPlanned | None = None
        self._parts: list[list[LabelledEpisode]] = []
        self.learned = TrainedModel(
            ORM, base.eval(), weight_decay=settings.weight_decay, offload=settings.offload_optimizer
        )

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """See `AuxiliaryTrainer.begin`."""
        self._plan, self._settings = plan, batch.settings
        labelled = [LabelledEpisode(*pair) for pair in zip(batch.samples, batch.succeeded, strict=True)]
        self._parts = [labelled[part.first_sample : part.end_sample] for part in minibatches_of(plan)]

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        """See `AuxiliaryTrainer.step`."""
        assert self._plan is not None, "no batch was begun"
        began = Clocks.now()
        part = self._parts[index]
        losses, odds = self._backward(part)

        def account() -> MinibatchReport:
            likely = [float(torch.sigmoid(torch.tensor(one))) for one in odds]
            return MinibatchReport(
                inputs=inputs_digest(part),
                metrics=orm_metrics(part, losses, likely),
                samples=SampleReport(
                    advantages=pack_floats([one.success - p for one, p in zip(part, likely, strict=True)]),
                    weights=pack_floats([1 / len(part)] * len(part)),
                    ratios=pack_floats([1.0] * len(part)),
                    masks=pack_floats([1.0] * len(part)),
                ),
            )

        return step_along(
            self.learned,
            self._plan,
            index,
            settings=self._settings,
            rate=partial(orm_rate, self._settings),
            account=account,
            began=began,
        )

    def _backward(self, part: Sequence[LabelledEpisode]) -> tuple[list[float], list[float]]:
        """Accumulate the gradient. Returns each example's loss and log-odds of YES before the step."""
        self.learned.forget_gradient()
        prompts = [unpack_ids(one.sample.prompt_ids).tolist() for one in part]
        losses, odds = [0.0] * len(part), [0.0] * len(part)
        scored = [SampleToScore(prompt, [self._answers.yes]) for prompt in prompts]
        for pack in packs(scored, tokens_per_forward=self._settings.tokens_per_forward):
            self._check()
            with arithmetic(self._settings.precision, self.learned.model):
                found = log_odds(self.learned.model, [prompts[index] for index in pack], self._answers)
            wanted = torch.tensor([float(part[index].success) for index in pack])
            own = binary_cross_entropy_with_logits(found, wanted, reduction="none")
            (own.sum() / len(part)).backward()  # type: ignore[no-untyped-call]
            for index, loss, value in zip(pack, own.tolist(), found.tolist(), strict=True):
                losses[index], odds[index] = loss, value
        return losses, odds


def orm_rate(settings: LearnerSettings, update: int) -> float:
    """Learning rate of the model's update 1, 2, 3 …: rises linearly over the warm-up, then stays constant."""
    return settings.orm_rate * min(1.0, update / max(1, settings.warmup_updates))


def orm_metrics(
    part: Sequence[LabelledEpisode], losses: Sequence[float], likely: Sequence[float]
) -> dict[str, float]:
    """Metrics of a mini-batch before the step. `likely`: P(YES) of each example."""
    good = [p for one, p in zip(part, likely, strict=True) if one.success]
    bad = [p for one, p in zip(part, likely, strict=True) if not one.success]
    right = sum(p >= 0.5 for p in good) + sum(p < 0.5 for p in bad)
    return {
        "loss": fsum(losses) / len(part),
        "accuracy": right / len(part),
        "probability_of_successes": fsum(good) / max(1, len(good)),
        "probability_of_failures": fsum(bad) / max(1, len(bad)),
        "episodes": float(len({one.sample.episode for one in part})),
        "samples": float(len(part)),
        "prompt_tokens": float(sum(one.sample.length for one in part)),
    }


def inputs_digest(part: Sequence[LabelledEpisode]) -> str:
    """Digest of an update's inputs: prompts and labels."""
    state = sha256()
    for one in part:
        for content in (one.sample.prompt_ids, bytes([one.success])):
            state.update(len(content).to_bytes(4, "little"))
            state.update(content)
    return state.hexdigest()
