"""Relabeled demonstrations in the buffer: a first-in-first-out memory, a pure fold of `episode.relabeled`.

The oldest leave the memory only when a batch is planned, so that a plan finds its demonstrations whatever was appended in
between. Only the latest `hsl_memory` are drawn from.

An episode is collected once relabel and verdict are known: its demonstrations enter the memory, and its own steps are
dropped. Relabels recorded while another algorithm trained are kept with the episode, for a fork that uses HSL.
Invariant 4: a demonstration's steps have the recorded actions, and the prompts that the relabeler recorded for them. The step
that may stop it has the action that the relabeler recorded, too.
"""

from dataclasses import replace

import msgspec

from hindcast.core.domain.arrays import pack_floats, pack_ids
from hindcast.core.errors import CorruptEvent
from hindcast.core.rl.algorithm import traits_of
from hindcast.events.catalogue import EpisodeRelabeled
from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.events.catalogue.verdict import Relabel, RewrittenPrompt, StoppingStep
from hindcast.learner.buffer.records import Episode, RelabelledDemonstration, Sample
from hindcast.learner.buffer.state import BufferState


def take_relabels(state: BufferState, fact: EpisodeRelabeled) -> None:
    """Take in an episode's first relabels; later ones are ignored."""
    episode = state.episodes.get(fact.episode)
    if episode is None or not episode.ended or episode.id in state.withheld:
        return
    if episode.origin != ONLINE or episode.swept or episode.collected or episode.id in state.pending:
        return
    state.pending[episode.id] = [
        _demonstration(episode, index, relabel)
        for index, relabel in enumerate(fact.relabels)
        if relabel.until_step + (relabel.stop is not None) <= len(episode.samples) == episode.steps
    ]


def collect(state: BufferState, episode: Episode, *, position: int) -> None:
    """Take an episode's demonstrations into the memory, if both have spoken about it and hindsight is learned from."""
    learns = traits_of(state.settings.learner.algorithm).learns_from_relabels
    if not learns or episode.id not in state.pending or episode.outcome is None:
        return
    demonstrations = state.pending.pop(episode.id)
    if not episode.decided:
        return
    for demonstration in demonstrations:
        demonstration.episode.outcome, demonstration.episode.reward = episode.outcome, episode.reward
    state.hindsight += demonstrations
    episode.collected = position
    episode.samples = []


def leave_behind(state: BufferState) -> None:
    """Mark, at a fork, the episodes that ended without a relabel: the fork's relabeler will not see them."""
    for episode in state.episodes.values():
        episode.unrelabelled |= episode.ended and not episode.collected and episode.id not in state.pending


def collected(state: BufferState) -> list[Episode]:
    """Collected episodes that no batch has used up, in the order of collection."""
    episodes = [episode for episode in state.episodes.values() if episode.collected and not episode.swept]
    return sorted(episodes, key=lambda episode: episode.collected)


def _demonstration(episode: Episode, index: int, relabel: Relabel) -> RelabelledDemonstration:
    until_step = relabel.until_step
    samples = [
        _reading(sample, prompt, step)
        for step, (sample, prompt) in enumerate(
            zip(episode.samples[:until_step], relabel.prompts, strict=True)
        )
    ]
    return RelabelledDemonstration(
        replace(episode, samples=samples, verdicts={}),
        relabel=index,
        relevance=relabel.relevance,
        stop=None
        if relabel.stop is None
        else _stopping(episode.samples[until_step], relabel.stop, until_step),
    )


def _reading(sample: Sample, prompt: RewrittenPrompt, step: int) -> Sample:
    if not prompt.fits(sample.prompt_ids):
        raise CorruptEvent(
            f"a relabel of {sample.episode} keeps {prompt.head} and {prompt.tail} token ids of step {step}, which read "
            f"{len(sample.prompt_ids) // 4}"
        )
    return msgspec.structs.replace(sample, prompt_ids=prompt.of(sample.prompt_ids))


def _stopping(sample: Sample, stop: StoppingStep, step: int) -> Sample:
    """The step with the written answer, as a demonstrated one: log-probabilities 0, versions -1, any token allowed."""
    count = len(stop.action_ids) // 4
    return msgspec.structs.replace(
        _reading(sample, stop.prompt, step),
        action_ids=stop.action_ids,
        logprobs=pack_floats([0.0] * count),
        versions=pack_ids([-1] * count),
        allowed=b"",
        answer_from=stop.answer_from,
    )
