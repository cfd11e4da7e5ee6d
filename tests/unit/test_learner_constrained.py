"""Steps that were drawn from a part of the vocabulary: the learner scores them under that part, and says so."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from factories import BOUNDS

from fakes.tiny_policy import write_tiny_policy
from hindcast.core.domain.arrays import pack_floats, pack_ids
from hindcast.core.grammar.allowed_tokens import pack_allowed
from hindcast.core.models.policy import load_policy
from hindcast.core.rl.importance_weights import correct
from hindcast.learner.algorithms.base import SampleTerms
from hindcast.learner.buffer.records import Sample
from hindcast.learner.forward_passes import forward_passes
from hindcast.learner.sample_terms import inputs_digest

pytestmark = pytest.mark.torch

PROMPT, ANSWER = list(range(40, 60)), [300, 7, 3]
VOCABULARY = 2048


def a_sample(allowed: bytes = b"") -> Sample:
    return Sample(
        position=1,
        digest=b"",
        episode="ep_1",
        prompt_ids=pack_ids(PROMPT),
        action_ids=pack_ids(ANSWER),
        logprobs=pack_floats([-1.0] * 3),
        versions=pack_ids([0] * 3),
        temperature=1.0,
        allowed=allowed,
    )


def sets() -> list[np.ndarray]:
    """The first token one of two, the second anything but ten, the third without an alternative."""
    first, second, third = (np.zeros(VOCABULARY, dtype=bool) for _ in range(3))
    first[[300, 301]] = True
    second[:] = True
    second[100:110] = False
    third[3] = True
    return [first, second, third]


def test_log_probabilities_are_renormalised_over_the_recorded_sets(tmp_path: Path) -> None:
    model = load_policy(write_tiny_policy(tmp_path / "policy")).model
    samples = [a_sample(), a_sample(pack_allowed(sets()))]
    (together,) = forward_passes(samples, tokens_per_forward=256)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*PROMPT, *ANSWER]])).logits[0, len(PROMPT) - 1 : -1].double()
    free, constrained = together.log_probs(model)
    expected = []
    for row, token, allowed in zip(logits, ANSWER, sets(), strict=True):
        kept = row[torch.from_numpy(allowed)]
        expected.append((row[token] - kept.logsumexp(0)).item())
        assert free[len(expected) - 1].item() == pytest.approx(
            (row[token] - row.logsumexp(0)).item(), abs=1e-5
        )
    assert constrained.tolist() == pytest.approx(expected, abs=1e-5)
    assert constrained[2].item() == 0.0
    (-constrained.sum()).backward()
    assert all(
        parameter.grad is None or torch.isfinite(parameter.grad).all() for parameter in model.parameters()
    )


def test_the_digest_of_an_updates_inputs_covers_the_sets_where_there_are_any() -> None:
    def digest(sample: Sample) -> str:
        zeros = np.zeros(3, dtype=np.float32)
        term = SampleTerms(
            sample=sample,
            advantage=1.0,
            share=1.0,
            cloning_share=0.0,
            rehearsed=False,
            behaviour=zeros,
            proximal=zeros,
            reference=None,
            correction=correct("none", proximal=zeros, behaviour=zeros, **BOUNDS),
        )
        return inputs_digest([term])

    constrained = a_sample(pack_allowed(sets()))
    other = sets()
    other[1][100] = True
    found = {digest(one) for one in (a_sample(), constrained, a_sample(pack_allowed(other)))}
    assert len(found) == 3
    assert digest(msgspec.structs.replace(constrained, allowed=b"")) == digest(a_sample())


def test_a_sample_longer_than_a_pass_is_computed_without_a_mask(tmp_path: Path) -> None:
    model = load_policy(write_tiny_policy(tmp_path / "policy")).model
    other = msgspec.structs.replace(a_sample(), action_ids=pack_ids([*ANSWER[:-1], 9]))
    longer = msgspec.structs.replace(a_sample(), prompt_ids=pack_ids(PROMPT[::-1] * 2))
    samples = [a_sample(), longer, other]
    passes = forward_passes(samples, tokens_per_forward=30, reach=0)
    assert [(one.indices, len(one.trees)) for one in passes] == [([0, 2], 1), ([1], 0)]
    masked = forward_passes(samples, tokens_per_forward=30, reach=0, masks_all=True)
    assert [len(one.trees) for one in masked] == [1, 1]
    ours, theirs = (
        {
            index: values
            for one in way
            for index, values in zip(one.indices, one.log_probs(model), strict=True)
        }
        for way in (passes, masked)
    )
    for index in range(len(samples)):
        assert ours[index].tolist() == pytest.approx(theirs[index].tolist(), abs=1e-5)
