"""Metrics of an update: figures over its mini-batch, four numbers per sample, and the alarm of `learner.mismatch_alarm`."""

from collections.abc import Mapping, Sequence
from math import fsum

import numpy as np

from hindcast.core.domain.arrays import pack_floats, unpack_ids
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.rl.importance_weights import effective_sample_size
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned, MismatchExceeded, UpdateApplied, UpdateSkipped
from hindcast.events.catalogue.training import PlannedEpisode, SampleReport
from hindcast.learner.algorithms.base import SampleLoss, SampleTerms
from hindcast.learner.buffer.records import ReplayUse


def sample_report(terms: Sequence[SampleTerms], losses: Sequence[SampleLoss]) -> SampleReport:
    """Advantage, share of the loss, mean ratio and contributing fraction of each sample, in order."""
    tokens = [term.sample.tokens for term in terms]
    return SampleReport(
        advantages=pack_floats([term.advantage for term in terms]),
        weights=pack_floats(
            [(term.share + term.cloning_share) * count for term, count in zip(terms, tokens, strict=True)]
        ),
        ratios=pack_floats([loss.ratio / count for loss, count in zip(losses, tokens, strict=True)]),
        masks=pack_floats([loss.contributing / count for loss, count in zip(losses, tokens, strict=True)]),
    )


def update_metrics(
    terms: Sequence[SampleTerms],
    losses: Sequence[SampleLoss],
    episodes: Sequence[PlannedEpisode],
    *,
    replays: Mapping[str, ReplayUse] | None = None,
    version: int,
) -> dict[str, float]:
    """Metrics of one update. Fractions and means run over action tokens unless named otherwise.

    Rehearsed successes count in `loss`, `rehearsal_loss` and `rehearsed_samples` only.
    `effective_sample_size` is over pi_prox / mu, `ratio_mean` over pi / mu. `mismatch_kl` and `mismatch_max` compare recorded
    with recomputed log-probabilities of tokens sampled from this very version: how far sampler and learner differ at equal weights.
    `replays`: the batch's replayed successes; None: success replay is off, and its metrics are absent. They are trained on like
    any member, but metrics of freshness and success of the run's own episodes exclude them.
    """
    replayed_steps = float(sum(sum(episode.kept) for episode in episodes if episode.kept is not None))
    contributing = [(term, loss) for term, loss in zip(terms, losses, strict=True) if term.counts]
    terms, losses = [term for term, _ in contributing], [loss for _, loss in contributing]
    rehearsed = [(term, loss) for term, loss in zip(terms, losses, strict=True) if term.rehearsed]
    online = [episode for episode in episodes if not episode.rehearsed]
    losses = [loss for term, loss in zip(terms, losses, strict=True) if not term.rehearsed]
    terms = [term for term in terms if not term.rehearsed]
    rehearsal_loss = fsum(loss.cloning for _, loss in rehearsed)
    tokens = sum(term.sample.tokens for term in terms)
    counted_tokens = max(1, tokens)  # the loss may leave out all but rehearsed episodes
    ratios = np.concatenate([np.ones(0), *(term.correction.ratios for term in terms)])
    unmasked = sum(int(term.correction.kept.sum()) for term in terms)
    versions = np.concatenate([np.zeros(0, dtype=np.int64), *(_versions(term) for term in terms)])
    fresh = np.log(ratios[versions == version])
    is_replayed = [episode.replaces is not None or episode.kept is not None for episode in online]
    replayed = {episode.episode for episode, is_old in zip(online, is_replayed, strict=True) if is_old}
    fresh_episodes = [episode for episode, is_old in zip(online, is_replayed, strict=True) if not is_old]
    ages = version - np.concatenate(
        [_versions(term) for term in terms if term.sample.episode not in replayed] or [np.array([version])]
    )
    return {
        "loss": fsum(float(loss.loss) for loss in losses) + rehearsal_loss,
        "policy_loss": fsum(loss.policy for loss in losses),
        "cloning_loss": fsum(loss.cloning for loss in losses),
        "rehearsal_loss": rehearsal_loss,
        "kl": fsum(loss.kl for loss in losses) / counted_tokens,
        "entropy_estimate": fsum(loss.surprisal for loss in losses) / counted_tokens,
        "ratio_mean": fsum(loss.ratio for loss in losses) / counted_tokens,
        "clip_fraction": sum(loss.clipped for loss in losses) / counted_tokens,
        "masked_fraction": 1 - unmasked / counted_tokens,
        "effective_sample_size": effective_sample_size(ratios),
        "mismatch_kl": float(np.mean(np.exp(fresh) - fresh - 1)) if len(fresh) else 0.0,
        "mismatch_max": float(np.max(np.abs(fresh))) if len(fresh) else 0.0,
        "staleness_mean": float(np.mean(ages)),
        "staleness_max": float(np.max(ages)),
        "reward_mean": fsum(episode.reward for episode in fresh_episodes) / max(1, len(fresh_episodes)),
        "episodes": float(len(online)),
        "samples": float(len(terms)),
        "rehearsed_samples": float(len(rehearsed)),
        "tokens": float(tokens),
        "prompt_tokens": float(sum(term.sample.length for term in terms) - tokens),
        **({} if all(episode.kept is None for episode in episodes) else {"replayed_steps": replayed_steps}),
        **({} if replays is None else _replay_metrics(online, replays)),
    }


def _replay_metrics(episodes: Sequence[PlannedEpisode], replays: Mapping[str, ReplayUse]) -> dict[str, float]:
    """Number of replays, and their mean age in versions and mean use count; 0 if there are none."""
    uses = [replays[episode.episode] for episode in episodes if episode.replaces is not None]
    count = max(1, len(uses))
    return {
        "replayed_episodes": float(len(uses)),
        "replay_age": sum(replay.age for replay in uses) / count,
        "replay_uses": sum(replay.uses for replay in uses) / count,
    }


def _versions(term: SampleTerms) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Policy version per token trained on; a demonstrator's tokens count as version 0."""
    versions = unpack_ids(term.sample.versions).astype(np.int64)
    if len(versions) != term.sample.tokens:
        return np.zeros(term.sample.tokens - term.first, dtype=np.int64)
    return np.maximum(versions[term.first :], 0)


def mismatch_alarm(
    fact: UpdateApplied | UpdateSkipped, plan: BatchPlanned, settings: LearnerSettings
) -> MismatchExceeded | None:
    """The alarm to append with an update, or None. An update without tokens sampled from the plan's version raises none."""
    if not isinstance(fact, UpdateApplied) or fact.model != POLICY or not settings.mismatch_alarm:
        return None
    mismatch = fact.metrics["mismatch_kl"]
    if mismatch <= settings.mismatch_alarm:
        return None
    return MismatchExceeded(
        update=fact.update,
        batch=fact.batch,
        version=plan.version,
        mismatch_kl=mismatch,
        mismatch_max=fact.metrics["mismatch_max"],
        limit=settings.mismatch_alarm,
    )
