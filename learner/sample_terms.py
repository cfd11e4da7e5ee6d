"""From a planned batch to the numbers its updates are computed from. Pure: recorded arrays in, terms of samples out."""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from hindcast.core.domain.arrays import pack_floats, unpack_floats
from hindcast.core.rl.algorithm import options_as
from hindcast.core.rl.algorithm_options import GroupOptions
from hindcast.core.rl.importance_weights import CorrectionKind, correct
from hindcast.core.rl.loss_normalization import EpisodeTokens
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.learner.algorithms.base import EpisodePart, Loss, SampleTerms
from hindcast.learner.batch_plan import Minibatch
from hindcast.learner.buffer.records import Batch, Sample

LogProbs = Sequence[NDArray[np.float32]]


def samples_of(batch: Batch, minibatch: Minibatch) -> list[Sample]:
    """A mini-batch's samples in training order."""
    return batch.samples[minibatch.first_sample : minibatch.end_sample]


def compared_of(plan: BatchPlanned, batch: Batch, minibatch: Minibatch) -> list[Sample]:
    """A mini-batch's samples without rehearsed ones: those that need proximal and reference log-probabilities."""
    rehearsed = [
        planned.rehearsed
        for planned in plan.episodes[minibatch.first_episode : minibatch.end_episode]
        for _ in range(planned.samples)
    ]
    return [
        sample
        for sample, is_rehearsed in zip(samples_of(batch, minibatch), rehearsed, strict=True)
        if not is_rehearsed
    ]


def sample_terms(
    plan: BatchPlanned,
    batch: Batch,
    minibatch: Minibatch,
    *,
    loss: Loss,
    settings: LearnerSettings,
    proximal: LogProbs | None,
    reference: LogProbs | None,
    advantages: Sequence[Sequence[float]] | None = None,
) -> list[SampleTerms]:
    """Terms of one mini-batch's samples, in order. `proximal` and `reference` belong to `compared_of` it, in order.

    Without proximal log-probabilities (cloning, rehearsal) there is no off-policy correction. `advantages`: of each step of the
    mini-batch's episodes, from a critic; None: those that are planned, for each step or for its episode.
    """
    samples = iter(samples_of(batch, minibatch))
    episodes: list[EpisodePart] = []
    placed: list[tuple[Sample, PlannedEpisode, float]] = []  # with its episode's plan and its advantage
    for index in range(minibatch.first_episode, minibatch.end_episode):
        planned = plan.episodes[index]
        episode_samples = [next(samples) for _ in range(planned.samples)]
        tokens = EpisodeTokens(planned.group, tuple(sample.tokens for sample in episode_samples))
        episodes.append(
            EpisodePart(
                tokens,
                batch.succeeded[index],
                planned.rehearsed,
                planned.kept,
                planned.step_weights,
                batch.truncated[index],
            )
        )
        step_advantages: Sequence[float] = planned.step_advantages or [planned.advantage] * len(
            episode_samples
        )
        if advantages is not None:
            step_advantages = advantages[index - minibatch.first_episode]
        placed += [
            (sample, planned, advantage)
            for sample, advantage in zip(episode_samples, step_advantages, strict=True)
        ]
    shares, cloning_shares = loss.shares(episodes)
    options = options_as(settings, GroupOptions)
    proximals, references = iter(proximal or ()), iter(reference or ())
    terms = []
    for (sample, planned, advantage), share, cloning_share in zip(
        placed, shares, cloning_shares, strict=True
    ):
        first = sample.answer_from if settings.loss_on == "answer" else 0
        behaviour = _behaviour(sample)[first:]
        corrected = proximal is not None and not planned.rehearsed
        prox = next(proximals)[first:] if corrected else behaviour
        is_recomputed = planned.replaces is not None and options.replay_correction == "recomputed"
        kind: CorrectionKind = settings.correction if corrected and not is_recomputed else "none"
        terms.append(
            SampleTerms(
                sample=sample,
                advantage=advantage,
                valued=advantages is not None,
                share=share,
                cloning_share=cloning_share,
                rehearsed=planned.rehearsed,
                behaviour=behaviour,
                proximal=prox,
                reference=None if reference is None or planned.rehearsed else next(references)[first:],
                first=first,
                correction=correct(
                    kind,
                    proximal=prox,
                    behaviour=behaviour,
                    ratio_cap=settings.ratio_cap,
                    icepop_alpha=settings.icepop_alpha,
                    icepop_beta=settings.icepop_beta,
                    mask_difference=settings.mask_difference,
                ),
            )
        )
    return terms


def _behaviour(sample: Sample) -> NDArray[np.float32]:
    """Recorded log-probabilities; zeros where none were recorded, as for a scripted demonstrator."""
    if len(sample.logprobs) == len(sample.action_ids):
        return unpack_floats(sample.logprobs).copy()
    return np.zeros(sample.tokens, dtype=np.float32)


def inputs_digest(terms: Sequence[SampleTerms]) -> str:
    """Digest of an update's inputs: ids, behavior log-probabilities, versions, temperature, advantages, shares, pictures, and the
    sets that tokens were drawn from unless they are the whole vocabulary.

    A critic's advantages are left out: they are computed, and are part of the report.
    """
    state = sha256()
    for term in terms:
        sample = term.sample
        advantage = 0.0 if term.valued else term.advantage
        numbers = pack_floats([advantage, term.share, term.cloning_share, sample.temperature])
        parts = [sample.prompt_ids, sample.action_ids, sample.logprobs, sample.versions, numbers]
        parts += [sample.allowed] * bool(sample.allowed)
        parts += [bytes.fromhex(picture.digest) for picture in sample.pictures]
        for part in parts:
            state.update(len(part).to_bytes(4, "little"))
            state.update(part)
    return state.hexdigest()
