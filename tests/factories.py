"""Makes the small values that many tests begin with: samples, loss terms, relabelled episodes."""

from typing import Any

import numpy as np
import torch

from hindcast.core.domain.arrays import pack_floats, pack_ids
from hindcast.core.rl.importance_weights import CorrectionKind, correct
from hindcast.events.catalogue import (
    EpisodeEnded,
    EpisodeRelabeled,
)
from hindcast.events.catalogue.verdict import JudgeIdentity, Relabel, RewrittenPrompt, StoppingStep
from hindcast.learner.algorithms import loss_for
from hindcast.learner.algorithms.base import SampleLoss, SampleTerms
from hindcast.learner.buffer.records import Sample
from stories.training_story import (
    Told,
    settings_with,
)


def sample(tokens: int) -> Sample:
    return Sample(
        position=1,
        digest=b"",
        episode="e",
        prompt_ids=pack_ids([1, 2]),
        action_ids=pack_ids([3] * tokens),
        logprobs=pack_floats([0.0] * tokens),
        versions=pack_ids([0] * tokens),
        temperature=1.0,
    )


BOUNDS = {"ratio_cap": 2.0, "icepop_alpha": 0.5, "icepop_beta": 5.0, "mask_difference": 0.3}
"""Bounds of the off-policy corrections."""


def terms(
    *,
    advantage: float,
    behaviour: list[float],
    proximal: list[float],
    reference: list[float] | None = None,
    share: float = 1.0,
    cloning_share: float = 0.0,
    correction: CorrectionKind = "none",
) -> SampleTerms:
    """Probabilities, not their logarithms."""
    mu, prox = np.log(np.array(behaviour)).astype(np.float32), np.log(np.array(proximal)).astype(np.float32)
    return SampleTerms(
        sample=sample(len(behaviour)),
        advantage=advantage,
        share=share,
        cloning_share=cloning_share,
        behaviour=mu,
        proximal=prox,
        reference=None if reference is None else np.log(np.array(reference)).astype(np.float32),
        correction=correct(correction, proximal=prox, behaviour=mu, **BOUNDS),
    )


def loss_of(policy: list[float], given: SampleTerms, **learner: Any) -> tuple[SampleLoss, list[float]]:
    """The loss at these probabilities, and its gradient with respect to their logarithms."""
    log_probs = torch.log(torch.tensor(policy)).requires_grad_()
    settings = settings_with(**{"clip_low": 0.2, "clip_high": 0.3} | learner).learner
    found = loss_for(settings).sample_loss(log_probs, given)
    found.loss.backward()  # type: ignore[no-untyped-call]
    assert log_probs.grad is not None
    return found._replace(loss=found.loss.detach()), log_probs.grad.tolist()


RULES = JudgeIdentity(name="rules", version="1")


ANEW = pack_ids([11, 12, 13])


STOP = StoppingStep(
    prompt=RewrittenPrompt(head=2, ids=ANEW, tail=1), action_ids=pack_ids([21, 22, 23, 24]), answer_from=1
)


def relabelled(told: list[Told]) -> list[Told]:
    """The same with two goals named of each episode, the first reached by its first step."""
    found = list(told)
    for ended in [one.fact for one in told if isinstance(one.fact, EpisodeEnded)]:
        relabels = tuple(
            Relabel(
                instruction="another",
                until_step=until,
                relevance=tuple(float(step != 1) for step in range(until)),
                prompts=tuple(RewrittenPrompt(head=2, ids=ANEW, tail=1) for _ in range(until)),
                family="store/buy",
                goal=None,
                stop=STOP if until < ended.steps else None,
            )
            for until in (1, ended.steps)
        )
        fact = EpisodeRelabeled(
            episode=ended.episode, task_id=ended.task_id, relabeler=RULES, relabels=relabels, failure=""
        )
        found.append(Told("relabeler", f"{ended.episode}.rules.1", fact))
    return found
