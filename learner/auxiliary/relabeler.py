"""Training of the learned relabeler: cross-entropy of the goals that episodes achieved (HSL's backward model).

    L = -1/T sum_i sum_t log P(y_it | episode_i, y_i<t),   T = sum_i |y_i|

y_i: the goals that episode i achieved, as text; the sums run over a mini-batch. Every token has the same weight. So the first
token, which decides whether there is any goal, has the same weight in every example. A mean per example would give it twenty
times the weight in `nothing` (two tokens) that it has in an example of forty. Training starts from the base policy.
"""

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from math import exp, fsum
from pathlib import Path
from typing import Any

from hindcast.core.domain.arrays import pack_floats, unpack_ids
from hindcast.core.models.arithmetic import arithmetic
from hindcast.core.models.logprobs import SampleToScore, packs, score_pack
from hindcast.core.rl.combined_state import RELABELER
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from hindcast.events.catalogue.training import SampleReport
from hindcast.learner.batch_plan import minibatches_of
from hindcast.learner.buffer.records import Batch, Sample
from hindcast.learner.clocks import Clocks
from hindcast.learner.trained_model import TrainedModel
from hindcast.learner.update import MinibatchReport, step_along


class RelabelerTraining:
    """Trains the relabeler; implements `learner.auxiliary.trainer.AuxiliaryTrainer`."""

    def __init__(
        self, folder: Path, base: Any, settings: LearnerSettings, *, seed: int, check: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._check = check
        self._plan: BatchPlanned | None = None
        self._parts: list[list[Sample]] = []
        self.learned = TrainedModel(
            RELABELER, base.eval(), weight_decay=settings.weight_decay, offload=settings.offload_optimizer
        )

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """See `AuxiliaryTrainer.begin`."""
        self._plan, self._settings = plan, batch.settings
        self._parts = [batch.samples[part.first_sample : part.end_sample] for part in minibatches_of(plan)]

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        """See `AuxiliaryTrainer.step`."""
        assert self._plan is not None, "no batch was begun"
        began = Clocks.now()
        part = self._parts[index]
        losses = self._backward(part)

        def account() -> MinibatchReport:
            count, tokens = len(part), sum(one.tokens for one in part)
            return MinibatchReport(
                inputs=inputs_digest(part),
                metrics=backward_metrics(part, losses),
                samples=SampleReport(
                    advantages=pack_floats([0.0] * count),
                    weights=pack_floats([one.tokens / tokens for one in part]),
                    ratios=pack_floats([1.0] * count),
                    masks=pack_floats([1.0] * count),
                ),
            )

        return step_along(
            self.learned,
            self._plan,
            index,
            settings=self._settings,
            rate=partial(backward_rate, self._settings),
            account=account,
            began=began,
        )

    def _backward(self, part: Sequence[Sample]) -> list[float]:
        """Accumulate the gradient. Returns each sample's loss, summed over its tokens, before the step."""
        self.learned.forget_gradient()
        tokens = sum(one.tokens for one in part)
        losses = [0.0] * len(part)
        scored = [
            SampleToScore(unpack_ids(one.prompt_ids).tolist(), unpack_ids(one.action_ids).tolist())
            for one in part
        ]
        for pack in packs(scored, tokens_per_forward=self._settings.tokens_per_forward):
            self._check()
            with arithmetic(self._settings.precision, self.learned.model):
                found = score_pack(self.learned.model, [scored[index] for index in pack], temperature=1.0)
            own = [-logprobs.sum() for logprobs in found]
            (sum(own[1:], own[0]) / tokens).backward()  # type: ignore[no-untyped-call]
            for index, loss in zip(pack, own, strict=True):
                losses[index] = float(loss.detach())
        return losses


def backward_rate(settings: LearnerSettings, update: int) -> float:
    """Learning rate of the model's update 1, 2, 3 …: rises linearly over the warm-up, then stays constant."""
    return settings.relabeler_rate * min(1.0, update / max(1, settings.warmup_updates))


def backward_metrics(part: Sequence[Sample], losses: Sequence[float]) -> dict[str, float]:
    """Metrics of a mini-batch before the step. `losses`: of each sample, summed over its tokens."""
    loss = fsum(losses) / sum(one.tokens for one in part)
    return {
        "loss": loss,
        "perplexity": exp(min(loss, 50.0)),
        "episodes": float(len({one.episode for one in part})),
        "samples": float(len(part)),
        "prompt_tokens": float(sum(len(one.prompt_ids) // 4 for one in part)),
        "tokens": float(sum(one.tokens for one in part)),
    }


def inputs_digest(part: Sequence[Sample]) -> str:
    """Digest of an update's inputs: prompts and target texts."""
    state = sha256()
    for one in part:
        for content in (one.prompt_ids, one.action_ids):
            state.update(len(content).to_bytes(4, "little"))
            state.update(content)
    return state.hexdigest()
