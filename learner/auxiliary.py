"""Training of the models next to the policy: critic, outcome reward model (ORM) and relabeler.

Each starts from the base policy, learns from batches of its own, and minimizes a cross-entropy:

    critic:       mean over the states of a mini-batch of -[R log V(s) + (1 - R) log(1 - V(s))], summed over the heads,
                  R: the episode's outcome (WebRL, arXiv 2411.02337)
    reward model: -1/N sum_i log P(answer_i | prompt_i), P over {YES, NO}, answer_i: the truth judge's verdict (WebRL)
    relabeler:    -1/T sum_i sum_t log P(y_it | episode_i, y_i<t), T = sum_i |y_i|, y_i: the goals that episode i
                  achieved, as text (HSL's backward model)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from math import exp, fsum
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from hindcast.core.domain.arrays import pack_floats, unpack_ids
from hindcast.core.models.arithmetic import arithmetic
from hindcast.core.models.auxiliary import Critic, log_odds, outcome_losses, value_packs, values_of
from hindcast.core.models.logprobs import SampleToScore, packs, score_pack
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.prompts.verdict_prompt import answer_ids
from hindcast.core.rl.combined_state import CRITIC, ORM, RELABELER
from hindcast.core.rl.statistics import calibration_error, rank_auc
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from hindcast.events.catalogue.training import SampleReport
from hindcast.learner.batch_plan import Minibatch, minibatches_of
from hindcast.learner.buffer.records import Batch, Sample
from hindcast.learner.update import Clocks, MinibatchReport, TrainedModel, step_along

Example = TypeVar("Example")


class AuxiliaryTrainer(ABC, Generic[Example]):
    """Trains one auxiliary model. Deterministic like the policy's trainer; `begin` and `step` may block."""

    name: ClassVar[str]

    def __init__(
        self,
        folder: Path,
        base: Any,
        settings: LearnerSettings,
        *,
        seed: int,
        check: Callable[[], None],
        digest_every: int,
    ) -> None:
        """Make the trainer when its first batch begins.

        `folder`: the policy's. `base`: a model with the policy's base weights, owned by the trainer from here on. `seed`: for random
        initial weights. `check`: called before every forward pass; raises if the computation was asked to stop. `digest_every`: see `TrainedModel`.
        """
        model = self._model(folder, base, settings, seed)
        self.learned = TrainedModel(
            self.name,
            model,
            weight_decay=settings.weight_decay,
            offload=settings.offload_optimizer,
            head=self._head(model),
            arithmetic=settings.arithmetic,
            digest_every=digest_every,
        )
        self._settings = settings
        self._check = check
        self._plan: BatchPlanned | None = None
        self._parts: list[list[Example]] = []

    def begin(self, plan: BatchPlanned, batch: Batch) -> None:
        """Start a batch of this model."""
        self._plan, self._settings = plan, batch.settings
        self._parts = [self._examples(plan, batch, minibatch) for minibatch in minibatches_of(plan)]

    def step(self, index: int) -> UpdateApplied | UpdateSkipped:
        """Compute one mini-batch. The model changes as the returned event says."""
        assert self._plan is not None, "no batch was begun"
        started_at = Clocks.read()
        examples = self._parts[index]
        if not examples:  # of a derived run
            return UpdateSkipped(
                update=self.learned.update + 1,
                model=self._plan.model,
                batch=self._plan.batch,
                minibatch=index,
                reason="the mini-batch has no example",
                state=self.learned.recorded_digest,
            )
        losses, predictions = self._backward(examples)
        return step_along(
            self.learned,
            self._plan,
            index,
            settings=self._settings,
            rate=self._rate,
            head_rate=self._head_rate,
            account=lambda: self._report(examples, losses, predictions),
            started_at=started_at,
        )

    def _model(self, folder: Path, base: Any, settings: LearnerSettings, seed: int) -> Any:
        """The model before its first update."""
        return base.eval()

    def _head(self, model: Any) -> Iterable[torch.nn.Parameter]:
        """Parameters with a learning rate of their own, `_head_rate`."""
        return ()

    @property
    def _head_rate(self) -> float | None:
        """None: that of the others."""
        return None

    @abstractmethod
    def _examples(self, plan: BatchPlanned, batch: Batch, minibatch: Minibatch) -> list[Example]:
        """The examples of a mini-batch in training order."""

    @abstractmethod
    def _rate(self, update: int) -> float:
        """Learning rate of the model's update 1, 2, 3 …."""

    @abstractmethod
    def _backward(self, examples: Sequence[Example]) -> tuple[list[float], list[float]]:
        """Accumulate the gradient. Returns each example's loss and prediction before the step."""

    @abstractmethod
    def _report(
        self, examples: Sequence[Example], losses: Sequence[float], predictions: Sequence[float]
    ) -> MinibatchReport:
        """What is reported of a mini-batch; metrics are from before the step."""

    def _warm(self, rate: float, update: int) -> float:
        """A learning rate that rises linearly over the warm-up, then stays constant."""
        return rate * min(1.0, update / max(1, self._settings.warmup_updates))


class CriticState(NamedTuple):
    """One state of a mini-batch with its target."""

    sample: Sample
    outcome: float
    share: float
    """Share of the loss; 0 where a replayed step is left out."""


class CriticTraining(AuxiliaryTrainer[CriticState]):
    """Trains the critic V(s).

    With two heads, as released, each state counts once for itself and once as the next state of the step before it: every state
    but an episode's first has double weight.
    """

    name = CRITIC

    def _model(self, folder: Path, base: Any, settings: LearnerSettings, seed: int) -> Any:
        return Critic(base, settings.critic_heads, seed=seed).eval()

    def _head(self, model: Any) -> Iterable[torch.nn.Parameter]:
        head: torch.nn.Module = model.head
        return head.parameters()

    @property
    def _head_rate(self) -> float | None:
        return self._settings.critic_head_rate or None

    def values(self, samples: Sequence[Sample], *, tokens_per_forward: int) -> list[float]:
        """V of the state that each step was taken in, in the order of `samples`."""
        prompts, result = _prompts(samples), [0.0] * len(samples)
        with torch.no_grad():
            for pack in value_packs(prompts, tokens_per_forward=tokens_per_forward):
                self._check()
                with arithmetic(self._settings.precision, self.learned.model):
                    values = values_of(self.learned.model([prompts[index] for index in pack]))
                for index, value in zip(pack, values, strict=True):
                    result[index] = value
        return result

    def _examples(self, plan: BatchPlanned, batch: Batch, minibatch: Minibatch) -> list[CriticState]:
        samples = iter(batch.samples[minibatch.first_sample : minibatch.end_sample])
        twice = self._settings.critic_heads == "double"
        states = []
        for planned in plan.episodes[minibatch.first_episode : minibatch.end_episode]:
            counted = planned.kept or bytes([1] * planned.samples)
            for step, counts in enumerate(counted):
                weight = float(counts) * (2 if twice and step > 0 else 1)
                states.append(CriticState(next(samples), planned.reward, weight))
        total = sum(bool(state.share) for state in states)
        return [state._replace(share=state.share / total) for state in states]

    def _rate(self, update: int) -> float:
        return self._settings.critic_learning_rate

    def _backward(self, examples: Sequence[CriticState]) -> tuple[list[float], list[float]]:
        """Losses are not multiplied by their shares; predictions are values."""
        self.learned.forget_gradient()
        prompts = _prompts([example.sample for example in examples])
        losses, values = [0.0] * len(examples), [0.0] * len(examples)
        for pack in value_packs(prompts, tokens_per_forward=self._settings.tokens_per_forward):
            self._check()
            with arithmetic(self._settings.precision, self.learned.model):
                log_probs = self.learned.model([prompts[index] for index in pack])
            pack_losses = outcome_losses(log_probs, torch.tensor([examples[index].outcome for index in pack]))
            (pack_losses * torch.tensor([examples[index].share for index in pack])).sum().backward()  # type: ignore[no-untyped-call]
            pack_values = values_of(log_probs.detach())
            for index, loss, value in zip(pack, pack_losses.detach().tolist(), pack_values, strict=True):
                losses[index], values[index] = loss, value
        return losses, values

    def _report(
        self, examples: Sequence[CriticState], losses: Sequence[float], predictions: Sequence[float]
    ) -> MinibatchReport:
        """Metrics over the states with a positive share."""
        counted = [
            (example, loss, value)
            for example, loss, value in zip(examples, losses, predictions, strict=True)
            if example.share > 0
        ]
        good = [value for example, _, value in counted if example.outcome >= 0.5]
        bad = [value for example, _, value in counted if example.outcome < 0.5]
        metrics = {
            "loss": fsum(example.share * loss for example, loss, _ in counted),
            "value_mean": fsum(value for _, _, value in counted) / len(counted),
            "value_of_successes": fsum(good) / max(1, len(good)),
            "value_of_failures": fsum(bad) / max(1, len(bad)),
            "accuracy": _right(good, bad) / len(counted),
            "calibration": calibration_error(
                [value for _, _, value in counted], [example.outcome for example, _, _ in counted]
            ),
            "outcome_mean": fsum(example.outcome for example, _, _ in counted) / len(counted),
            "episodes": float(len({example.sample.episode for example, _, _ in counted})),
            "samples": float(len(counted)),
            "prompt_tokens": float(sum(len(example.sample.prompt_ids) // 4 for example, _, _ in counted)),
        }
        auc = rank_auc(good, bad)
        if auc is not None:
            metrics["auc"] = auc
        return MinibatchReport(
            inputs=_digest(
                (example.sample.prompt_ids, pack_floats([example.outcome, example.share]))
                for example in examples
            ),
            metrics=metrics,
            samples=_samples(
                advantages=[
                    example.outcome - value for example, value in zip(examples, predictions, strict=True)
                ],
                weights=[example.share for example in examples],
                masks=[float(example.share > 0) for example in examples],
            ),
        )


class LabelledEpisode(NamedTuple):
    """A prompt of the reward model, and whether the episode succeeded."""

    sample: Sample
    success: bool


class RewardModelTraining(AuxiliaryTrainer[LabelledEpisode]):
    """Trains the reward model. Half of each mini-batch are successes, so that neither answer is right by default."""

    name = ORM

    def _model(self, folder: Path, base: Any, settings: LearnerSettings, seed: int) -> Any:
        self._answers = answer_ids(load_tokenizer(folder))
        return base.eval()

    def _examples(self, plan: BatchPlanned, batch: Batch, minibatch: Minibatch) -> list[LabelledEpisode]:
        labelled = [LabelledEpisode(*pair) for pair in zip(batch.samples, batch.succeeded, strict=True)]
        return labelled[minibatch.first_sample : minibatch.end_sample]

    def _rate(self, update: int) -> float:
        return self._warm(self._settings.orm_rate, update)

    def _backward(self, examples: Sequence[LabelledEpisode]) -> tuple[list[float], list[float]]:
        """Predictions are log-odds of YES."""
        self.learned.forget_gradient()
        prompts = _prompts([example.sample for example in examples])
        losses, odds = [0.0] * len(examples), [0.0] * len(examples)
        inputs = [SampleToScore(prompt, [self._answers.yes]) for prompt in prompts]
        for pack in packs(inputs, tokens_per_forward=self._settings.tokens_per_forward):
            self._check()
            with arithmetic(self._settings.precision, self.learned.model):
                pack_odds = log_odds(self.learned.model, [prompts[index] for index in pack], self._answers)
            targets = torch.tensor([float(examples[index].success) for index in pack])
            pack_losses = binary_cross_entropy_with_logits(pack_odds, targets, reduction="none")
            (pack_losses.sum() / len(examples)).backward()  # type: ignore[no-untyped-call]
            for index, loss, value in zip(pack, pack_losses.tolist(), pack_odds.tolist(), strict=True):
                losses[index], odds[index] = loss, value
        return losses, odds

    def _report(
        self, examples: Sequence[LabelledEpisode], losses: Sequence[float], predictions: Sequence[float]
    ) -> MinibatchReport:
        probabilities = [float(torch.sigmoid(torch.tensor(logit))) for logit in predictions]
        good = [p for example, p in zip(examples, probabilities, strict=True) if example.success]
        bad = [p for example, p in zip(examples, probabilities, strict=True) if not example.success]
        metrics = {
            "loss": fsum(losses) / len(examples),
            "accuracy": _right(good, bad) / len(examples),
            "probability_of_successes": fsum(good) / max(1, len(good)),
            "probability_of_failures": fsum(bad) / max(1, len(bad)),
            "episodes": float(len({example.sample.episode for example in examples})),
            "samples": float(len(examples)),
            "prompt_tokens": float(sum(example.sample.length for example in examples)),
        }
        return MinibatchReport(
            inputs=_digest((example.sample.prompt_ids, bytes([example.success])) for example in examples),
            metrics=metrics,
            samples=_samples(
                advantages=[example.success - p for example, p in zip(examples, probabilities, strict=True)],
                weights=[1 / len(examples)] * len(examples),
            ),
        )


class RelabelerTraining(AuxiliaryTrainer[Sample]):
    """Trains the relabeler. Every token has the same weight.

    So the first token, which decides whether there is any goal, has the same weight in every example. A mean per example would
    give it twenty times the weight in `nothing` (two tokens) that it has in an example of forty.
    """

    name = RELABELER

    def _examples(self, plan: BatchPlanned, batch: Batch, minibatch: Minibatch) -> list[Sample]:
        return batch.samples[minibatch.first_sample : minibatch.end_sample]

    def _rate(self, update: int) -> float:
        return self._warm(self._settings.relabeler_rate, update)

    def _backward(self, samples: Sequence[Sample]) -> tuple[list[float], list[float]]:
        """Losses are summed over each example's tokens; nothing is predicted."""
        self.learned.forget_gradient()
        tokens = sum(sample.tokens for sample in samples)
        losses = [0.0] * len(samples)
        inputs = [
            SampleToScore(prompt, unpack_ids(sample.action_ids).tolist())
            for prompt, sample in zip(_prompts(samples), samples, strict=True)
        ]
        for pack in packs(inputs, tokens_per_forward=self._settings.tokens_per_forward):
            self._check()
            with arithmetic(self._settings.precision, self.learned.model):
                log_probs = score_pack(self.learned.model, [inputs[index] for index in pack], temperature=1.0)
            pack_losses = [-logprobs.sum() for logprobs in log_probs]
            (sum(pack_losses[1:], pack_losses[0]) / tokens).backward()  # type: ignore[no-untyped-call]
            for index, loss in zip(pack, pack_losses, strict=True):
                losses[index] = float(loss.detach())
        return losses, []

    def _report(
        self, examples: Sequence[Sample], losses: Sequence[float], predictions: Sequence[float]
    ) -> MinibatchReport:
        tokens = sum(example.tokens for example in examples)
        loss = fsum(losses) / tokens
        metrics = {
            "loss": loss,
            "perplexity": exp(min(loss, 50.0)),
            "episodes": float(len({example.episode for example in examples})),
            "samples": float(len(examples)),
            "prompt_tokens": float(sum(len(example.prompt_ids) // 4 for example in examples)),
            "tokens": float(tokens),
        }
        return MinibatchReport(
            inputs=_digest((example.prompt_ids, example.action_ids) for example in examples),
            metrics=metrics,
            samples=_samples(
                advantages=[0.0] * len(examples), weights=[example.tokens / tokens for example in examples]
            ),
        )


MODELS: dict[str, type[AuxiliaryTrainer[Any]]] = {
    one.name: one for one in (CriticTraining, RewardModelTraining, RelabelerTraining)
}
"""Trainers by `batch.planned.model`."""


def _prompts(samples: Sequence[Sample]) -> list[list[int]]:
    return [unpack_ids(sample.prompt_ids).tolist() for sample in samples]


def _right(good: Sequence[float], bad: Sequence[float]) -> int:
    """Number of right predictions: at least one half for a success, less for a failure."""
    return sum(probability >= 0.5 for probability in good) + sum(probability < 0.5 for probability in bad)


def _samples(
    *, advantages: Sequence[float], weights: Sequence[float], masks: Sequence[float] | None = None
) -> SampleReport:
    """Report of each sample: its error of prediction as advantage, and its share of the loss. `masks` None: all count."""
    ones = [1.0] * len(weights)
    return SampleReport(
        advantages=pack_floats(advantages),
        weights=pack_floats(weights),
        ratios=pack_floats(ones),
        masks=pack_floats(ones if masks is None else masks),
    )


def _digest(inputs: Iterable[tuple[bytes, bytes]]) -> str:
    """Digest of an update's inputs: of each example its prompt and its target."""
    state = sha256()
    for pair in inputs:
        for content in pair:
            state.update(len(content).to_bytes(4, "little"))
            state.update(content)
    return state.hexdigest()
