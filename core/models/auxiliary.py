"""The models next to the policy, all of its architecture: critic, outcome reward model (ORM) and text generator.

Judges, relabelers, curriculum and learner compute them here, by the same forward passes.

Critic: initialized from the base policy, with a head that estimates P(success). The value of a state is read at the last token
of its prompt, which the policy reads before it answers. Both forms give log-probabilities of failure and success per head, so
that one cross-entropy trains either:

- `scalar`: one logit, V = sigmoid(logit).
- `double`: two heads of two classes each, V = the lower of their probabilities of success (WebRL and DigiRL as
  released; `webrl/models/critic.py`, there with two hidden layers in each head).

ORM (WebRL, arXiv 2411.02337): read at the answer YES or NO.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from hindcast.core.models.arithmetic import device_of, policy_device
from hindcast.core.models.logprobs import SampleToScore, distributions, packs
from hindcast.core.models.policy import load_policy, load_weights
from hindcast.core.prompts.verdict_prompt import AnswerIds, answer_ids
from hindcast.core.settings.computing import Device

CriticForm = Literal["scalar", "double"]
HEAD_DEVIATION = 0.02
"""Standard deviation of the two heads' initial weights. Equal heads would stay equal, and their minimum would be useless."""


class Critic(nn.Module):
    """Maps states to log-probabilities of failure and success."""

    def __init__(self, policy: Any, form: CriticForm, *, seed: int = 0) -> None:
        """`policy`: a causal model of transformers, whose head is replaced; `seed`: seed of the heads' initial weights."""
        super().__init__()
        self.config = policy.config
        self.backbone = policy.base_model
        width = policy.get_output_embeddings().weight.shape[1]
        self.head = nn.Linear(width, 1 if form == "scalar" else 4, device=device_of(policy))
        with torch.no_grad():
            self.head.bias.zero_()
            if form == "scalar":
                self.head.weight.zero_()  # every value is 1/2 before the first update
            else:
                initial_weights = np.random.default_rng(seed).normal(scale=HEAD_DEVIATION, size=(4, width))
                self.head.weight.copy_(torch.from_numpy(initial_weights.astype(np.float32)))

    def forward(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Compute log-probabilities of (failure, success) by each head  # [states, heads, 2], on the CPU.

        The prompts must fit one forward pass.
        """
        ids = torch.zeros((len(prompts), max(map(len, prompts))), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        hidden = self.backbone(input_ids=ids.to(device_of(self)), use_cache=False).last_hidden_state
        last = torch.tensor([len(prompt) - 1 for prompt in prompts])
        logits = self.head(hidden[torch.arange(len(prompts)), last]).float().cpu()
        if logits.shape[1] == 1:
            return torch.nn.functional.logsigmoid(torch.cat([-logits, logits], dim=1))[:, None, :]
        return torch.log_softmax(logits.view(-1, 2, 2), dim=-1)


def load_critic(folder: Path, form: CriticForm, *, weights: Path, device: Device = "cpu") -> Critic:
    """Load a published critic. `folder` is that of the run's base policy. Raises ModelFileError."""
    critic = Critic(load_policy(folder, device=policy_device(device)).model, form).eval()
    load_weights(critic, weights)
    return critic


def values_of(log_probs: torch.Tensor) -> list[float]:
    """Compute V of each state, the least P(success) over the heads, from `Critic.forward`'s output  # [states, heads, 2]."""
    values: list[float] = torch.exp(log_probs[..., 1]).amin(dim=1).tolist()
    return values


def value_packs(prompts: Sequence[Sequence[int]], *, tokens_per_forward: int) -> list[list[int]]:
    """Group indices of prompts that share a forward pass, by the same rule as the policy's samples."""
    return packs([SampleToScore(prompt, ()) for prompt in prompts], tokens_per_forward=tokens_per_forward)


def outcome_losses(log_probs: torch.Tensor, outcomes: torch.Tensor) -> torch.Tensor:
    """Compute the critic's loss: cross-entropy of each state against R in [0, 1]  # [states, heads, 2], [states] -> [states].

    Summed over the heads, as in the released code.
    """
    log_failure, log_success = log_probs[..., 0], log_probs[..., 1]
    return -((1 - outcomes)[:, None] * log_failure + outcomes[:, None] * log_success).sum(dim=1)


def log_odds(model: Any, prompts: Sequence[Sequence[int]], answers: AnswerIds) -> torch.Tensor:
    """Compute log P(YES) - log P(NO) after each prompt, in one forward pass  # [prompts] float32. Differentiable.

    Its logistic function is P(YES) over {YES, NO}.
    """
    samples = [SampleToScore(prompt, [answers.yes]) for prompt in prompts]
    logprobs = torch.cat(distributions(model, samples, temperature=1.0))  # [prompts, vocabulary]
    return logprobs[:, answers.yes] - logprobs[:, answers.no]


class OutcomeModel:
    """A loaded outcome reward model. Raises ModelFileError if its folder or weights cannot be loaded."""

    def __init__(self, folder: Path, weights: Path | None, *, threads: int, device: Device = "cpu") -> None:
        """`folder`: folder of the policy with its architecture; `weights`: a published version, None: the folder's own."""
        torch.set_num_threads(threads)
        policy = load_policy(folder, device=policy_device(device))
        if weights is not None:
            load_weights(policy.model, weights)
        self._model = policy.model
        self.tokenizer: Any = policy.tokenizer
        """Tokenizer for its prompts."""
        self._answers = answer_ids(policy.tokenizer)

    @torch.inference_mode()
    def probability(self, prompt_ids: Sequence[int]) -> float:
        """Compute P(YES) over {YES, NO}, in [0, 1]."""
        return float(torch.sigmoid(log_odds(self._model, [prompt_ids], self._answers))[0])


class TextGenerator:
    """A loaded model that writes texts greedily, for the learned relabeler. Raises ModelFileError if its folder or weights cannot be loaded."""

    def __init__(self, folder: Path, weights: Path, *, threads: int, device: Device = "cpu") -> None:
        """`folder`: folder of the policy with its architecture; `weights`: a published version of the model."""
        torch.set_num_threads(threads)
        policy = load_policy(folder, device=policy_device(device))
        load_weights(policy.model, weights)
        self._model = policy.model
        self._ends = policy.stops

    def write(
        self, prompt_ids: Sequence[int], *, max_tokens: int, given_up: Callable[[], bool] = lambda: False
    ) -> list[int]:
        """Write the most likely tokens one by one, up to and including an end token, at most `max_tokens`.

        `given_up` is called before each token; if true, writing stops.
        """
        return write_greedily(
            self._model, prompt_ids, ends=self._ends, max_tokens=max_tokens, given_up=given_up
        )


@torch.inference_mode()
def write_greedily(
    model: Any,
    prompt_ids: Sequence[int],
    *,
    ends: Collection[int],
    max_tokens: int,
    given_up: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Write tokens greedily with a model: see `TextGenerator.write`."""
    output_ids: list[int] = []
    ids, cache = torch.tensor([list(prompt_ids)], dtype=torch.long, device=device_of(model)), None
    while len(output_ids) < max_tokens and not given_up():
        output = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = output.past_key_values
        token = int(output.logits[0, -1].argmax())
        output_ids.append(token)
        if token in ends:
            break
        ids = torch.tensor([[token]], dtype=torch.long, device=device_of(model))
    return output_ids
