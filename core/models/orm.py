"""The outcome reward model, ORM (WebRL, arXiv 2411.02337): the policy's architecture, read at the answer YES or NO.

Judge and learner compute P(YES) here, by the same forward pass.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from hindcast.core.models.logprobs import SampleToScore, distributions
from hindcast.core.models.policy import load_policy, load_weights
from hindcast.core.prompts.verdict_prompt import AnswerIds, answer_ids


def log_odds(model: Any, prompts: Sequence[Sequence[int]], answers: AnswerIds) -> torch.Tensor:
    """Compute log P(YES) - log P(NO) after each prompt, in one forward pass  # [prompts] float32. Differentiable.

    Its logistic function is P(YES) over {YES, NO}.
    """
    asked = [SampleToScore(prompt, [answers.yes]) for prompt in prompts]
    logprobs = torch.cat(distributions(model, asked, temperature=1.0))  # [prompts, vocabulary]
    return logprobs[:, answers.yes] - logprobs[:, answers.no]


class OutcomeModel:
    """A loaded outcome reward model. Raises ModelFileError if its folder or weights cannot be loaded."""

    def __init__(self, folder: Path, weights: Path | None, *, threads: int) -> None:
        """`folder`: folder of the policy with its architecture; `weights`: a published version, None: the folder's own."""
        torch.set_num_threads(threads)
        policy = load_policy(folder)
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
