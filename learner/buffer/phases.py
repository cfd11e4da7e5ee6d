"""Phases in the buffer: which episodes the next phase trains on, and which steps of earlier phases it replays. Pure.

A phase is due once `phase_episodes` decided online episodes wait. The policy's version does not change between then and
the end of the policy's batch: the policy at the phase's start scores everything.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from hindcast.core.rl.algorithm import traits_of
from hindcast.core.rl.replay_filter import in_window
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.buffer.records import DEMONSTRATION, Episode, Sample
from hindcast.learner.buffer.state import BufferState


class ReplayedEpisode(NamedTuple):
    """An episode of an earlier phase in a batch."""

    episode: Episode
    kept: bytes
    """Per step: 1 where it is trained on."""


def in_phases(state: BufferState) -> bool:
    """Whether the policy learns in phases now; False during the cloning that a run may begin with."""
    learner = state.settings.learner
    return traits_of(learner.algorithm).learns_in_phases and state.updates >= learner.cloning_updates


def collected(state: BufferState, learner: LearnerSettings) -> list[Episode]:
    """The episodes of the phase that is due, in the order of their verdicts; empty while there are too few."""
    usable = [one for one in state.episodes.values() if _is_usable(one)]
    usable.sort(key=lambda one: one.judged)
    return usable[: learner.phase_episodes] if len(usable) >= learner.phase_episodes else []


def valued(state: BufferState) -> list[Episode]:
    """Episodes of the phase that the critic was trained on and the policy was not yet."""
    found = (state.episodes.get(name) for name in state.phase)
    return [one for one in found if one is not None and _is_usable(one)]


def _is_usable(episode: Episode) -> bool:
    return episode.origin == "online" and episode.decided and bool(episode.samples)


def replays_demonstrations(learner: LearnerSettings) -> bool:
    """Whether demonstrations are of use to phases."""
    return (
        traits_of(learner.algorithm).learns_in_phases
        and learner.phase_replay != "off"
        and learner.phase_demonstrations
    )


def store_demonstration(state: BufferState, episode: Episode) -> None:
    """Keep a successful demonstration as if an earlier phase had played it. Cloning keeps its own copy."""
    shown = episode.origin == DEMONSTRATION and episode.decided and episode.succeeded and episode.samples
    if shown and replays_demonstrations(state.settings.learner):
        store_earlier(state, episode)


def store_earlier(state: BufferState, episode: Episode) -> None:
    """Keep an episode for replay in later phases: each task's first success and, if `phase_replay` is "all", first failure."""
    learner = state.settings.learner
    if learner.phase_replay == "off" or not (episode.succeeded or learner.phase_replay == "all"):
        return
    state.earlier.setdefault(f"{episode.task} {episode.outcome}", replace(episode))
    while len(state.earlier) > learner.phase_memory:
        del state.earlier[next(iter(state.earlier))]


def unscored(state: BufferState, learner: LearnerSettings) -> list[Sample]:
    """Steps of earlier phases that must be scored before the phase that is due can be planned."""
    if not in_phases(state) or state.batch is not None or valued(state) or not collected(state, learner):
        return []
    return [sample for sample in earlier_samples(state) if sample.position not in state.perplexities]


def earlier_samples(state: BufferState) -> Iterator[Sample]:
    """Every step that may be replayed."""
    for episode in state.earlier.values():
        yield from episode.samples


def replayed(state: BufferState, learner: LearnerSettings, *, steps: int) -> list[ReplayedEpisode]:
    """Steps to replay with `steps` steps of a phase's own: those in the window, at most `phase_replay_ratio` times as many.

    If there are more, episodes are taken in an order drawn from the run's seed. A demonstration judged after the phase's
    scores were computed has none, and waits for the next phase.
    """
    assert state.started is not None
    seed, left = state.started.run_seed, int(learner.phase_replay_ratio * steps)
    scored = [
        episode
        for episode in state.earlier.values()
        if all(sample.position in state.perplexities for sample in episode.samples)
    ]
    order = sorted(scored, key=lambda one: derive_seed(seed, "phase replay", state.version, one.id))
    found = []
    for episode in order:
        kept = bytearray()
        for sample in episode.samples:
            taken = left > 0 and _in_window(state.perplexities[sample.position], learner)
            left -= taken
            kept.append(taken)
        if any(kept):
            found.append(ReplayedEpisode(episode, bytes(kept)))
    return found


def _in_window(perplexity: float, learner: LearnerSettings) -> bool:
    lowest, highest = learner.phase_window
    return in_window(perplexity, lowest=lowest, highest=highest, lowest_is_in=not learner.phase_window_open)
