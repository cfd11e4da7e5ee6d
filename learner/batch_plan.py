"""What to train on next: pure functions of the buffer, so that a plan can be computed again from the log alone.

Invariant 3, plan before training: a `BatchPlanned` names every sample, in order, before any number is computed from
it. Two learners, or a learner and `verify`, that folded the log to the same position plan the same batch, however the
events reached them. Planners (`learner.planners`) say what a batch is made of: that of the policy's algorithm, and those of the
auxiliary models, which are asked first. A run may begin with cloning (`learner.cloning_updates`): until then demonstrations are
imitated, whatever the algorithm.
"""

from collections.abc import Iterator
from functools import cache

import msgspec

from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.errors import CorruptEvent, PluginError
from hindcast.core.plugins import identify_plugin
from hindcast.core.rl.advantages import group_advantages
from hindcast.core.rl.algorithm import ALGORITHMS, CLONING_BEFORE, find_algorithm, options_as
from hindcast.core.rl.algorithm_options import GroupOptions
from hindcast.core.rl.combined_state import CRITIC, ORM, POLICY, RELABELER
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.events.catalogue import BatchPlanned, SamplesSwept
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.learner.buffer.records import Episode
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.auxiliary import RelabelerPlanner, RewardModelPlanner
from hindcast.learner.planners.base import Planner, PolicyPlanner, clones_before
from hindcast.learner.planners.kept import kept_plan, kept_sweep
from hindcast.learner.planners.phases import CriticPhasePlanner

BESIDE: dict[str, Planner] = {
    CRITIC: CriticPhasePlanner(),
    ORM: RewardModelPlanner(),
    RELABELER: RelabelerPlanner(),
}
"""Planners of the auxiliary models, by name; each decides when its batch is due."""


@cache
def policy_planner(algorithm: str) -> PolicyPlanner:
    """The planner of an algorithm. Raises PluginError where there is none of this name."""
    planner = find_algorithm(algorithm).planner(algorithm)
    assert isinstance(planner, PolicyPlanner)
    return planner


def planner_due(state: BufferState, settings: LearnerSettings) -> PolicyPlanner:
    """The planner of the policy's next batch."""
    return policy_planner(CLONING_BEFORE if clones_before(state, settings) else settings.algorithm)


def planners_due(state: BufferState, settings: LearnerSettings) -> Iterator[Planner]:
    """Planners of the next batch, in the order in which they are asked."""
    yield from BESIDE.values()
    yield planner_due(state, settings)


def planner_of(algorithm: str) -> Planner:
    """The planner that made a plan of this name."""
    return BESIDE.get(algorithm) or policy_planner(algorithm)


def may_be_trained_on(origin: str, settings: LearnerSettings) -> bool:
    """Whether episodes of this origin may ever be trained on under these settings."""
    first = settings.cloning_updates > 0 and policy_planner(CLONING_BEFORE).wants(origin, settings)
    return first or policy_planner(settings.algorithm).wants(origin, settings)


def sweep(state: BufferState, settings: Settings) -> list[SamplesSwept]:
    """Episodes that will not be trained on, by reason, each once; computed before a batch is planned.

    - `late`: it ended after its group had been used up.
    - `undecided`: the training judge could not tell. `empty`: it ended without a step.
    - `past`: a demonstration of use to the first cloning updates only, or stored separately for phases.
    - `withheld`: a derived run leaves it out. One that keeps its parent's decisions sweeps only these, and what its parent swept.
    - by the algorithm's planner: `stale`, `agreed`, `alone`, `unsuccessful` (see `learner.planners`).

    Episodes are swept at once, not when the next batch is full, so that the log shows their fate early and a run whose groups
    mostly agree keeps nothing.
    """
    planner = planner_due(state, settings.learner)
    reasons: dict[str, list[str]] = kept_sweep(state) if state.keeps_plans else {}
    for episode in state.episodes.values():
        reason = _why_swept(state, episode, planner, settings)
        if reason is not None:
            reasons.setdefault(reason, []).append(episode.id)
    if not state.keeps_plans:
        swept = {name for names in reasons.values() for name in names}
        for reason, names in planner.groups_swept(state, swept, settings.learner).items():
            reasons.setdefault(reason, []).extend(names)
    return [
        SamplesSwept(
            episodes=tuple(reasons[reason]), reason=reason, version=state.version, as_of=state.position
        )
        for reason in sorted(reasons)
    ]


def _why_swept(
    state: BufferState, episode: Episode, planner: PolicyPlanner, settings: Settings
) -> str | None:
    if episode.swept or not episode.ended:
        return None
    if episode.id in state.withheld:
        return "withheld"
    if state.keeps_plans:
        return None
    if episode.group not in state.groups:
        return "late"
    if not planner.wants(episode.origin, settings.learner):
        # an online episode that ends during the first cloning is of use after it
        return None if clones_before(state, settings.learner) else "past"
    return planner.why_swept(state, episode, settings.learner)


def plan(state: BufferState, settings: Settings) -> BatchPlanned | None:
    """The next batch, or None while there is not enough for one.

    Raises nothing and changes nothing; equal states give equal plans.
    """
    if state.batch is not None or state.started is None:
        return None
    if state.keeps_plans:
        return kept_plan(state)
    for planner in planners_due(state, settings.learner):
        planned = planner.plan(state, settings)
        if planned is not None:
            return planned
    return None


def require_consistent(planned: BatchPlanned, settings: LearnerSettings) -> None:
    """Refuse a plan of the policy that the audit would report, before it is recorded and trained on.

    `plan` does not do this, so that `verify` still computes older runs whose plans were not checked.

    Raises:
        PluginError: a rehearsed episode is planned as if it were compared, or the advantages are not those that the trait
            `group_advantages` promises.
    """
    if planned.model != POLICY:
        return
    compared: dict[str, dict[str, PlannedEpisode]] = {}
    for episode in planned.episodes:
        if not episode.rehearsed:
            compared.setdefault(episode.group, {})[episode.episode] = episode
        elif (
            episode.advantage != 0
            or episode.format_term != 0
            or episode.length_term != 0
            or episode.replaces is not None
        ):
            raise PluginError(
                f"{_planner_in_words(planned)} gives the rehearsed episode {episode.episode} the advantage {episode.advantage!r}, the "
                f"format term {episode.format_term!r}, the length term {episode.length_term!r} and replaces = {episode.replaces!r}; they must "
                "be 0, 0, 0 and None. A rehearsed "
                "episode is a stored success that is only imitated: leave it unchanged in the planner's `plan`, and give it a "
                "share of the cloning term in the loss's `shares`. Correct the plugin and start the run again, or set "
                "learner.options.rehearsal_episodes = 0"
            )
    if not find_algorithm(planned.algorithm).traits.group_advantages:
        return
    options = options_as(settings, GroupOptions)
    for group, members in compared.items():
        recorded_advantages = {name: episode.advantage for name, episode in members.items()}
        rewards = [episode.reward + episode.format_term + episode.length_term for episode in members.values()]
        advantages = group_advantages(
            rewards, deviation=options.group_deviation, epsilon=options.group_epsilon
        )
        expected = dict(zip(members, advantages, strict=True))
        if recorded_advantages != expected:
            raise PluginError(
                f"{_planner_in_words(planned)} gives the members of group {group} the advantages {recorded_advantages}. Its trait "
                f"group_advantages promises their normalized rewards, {expected}: set group_advantages=False in its traits for "
                "other advantages, and start the run again"
            )


def _planner_in_words(planned: BatchPlanned) -> str:
    module = identify_plugin(ALGORITHMS, planned.algorithm).module
    return f"batch {planned.batch} cannot be trained on: the planner of the plugin {planned.algorithm!r} (module {module})"


def missing(state: BufferState, settings: Settings) -> str:
    """What the learner still needs before it can plan a batch, in words."""
    lacking = planner_due(state, settings.learner).missing(state, settings)
    return lacking or f"a batch of version {state.version}; {len(state.complete)} groups are complete"


class Minibatch(msgspec.Struct, frozen=True):
    """One mini-batch's part of a plan, as half-open ranges of its episodes and samples."""

    first_episode: int
    end_episode: int
    first_sample: int
    end_sample: int


def minibatches_of(fact: BatchPlanned) -> list[Minibatch]:
    """Split a plan's episodes and samples into its mini-batches, in order.

    Raises:
        CorruptEvent: a mini-batch ends within an episode, or the counts do not add up; `plan` makes no such plan.
    """
    parts: list[Minibatch] = []
    episode, sample = 0, 0
    for size in unpack_ids(fact.minibatches).tolist():
        end_episode, end_sample = episode, sample
        while end_sample < sample + size and end_episode < len(fact.episodes):
            end_sample += fact.episodes[end_episode].samples
            end_episode += 1
        if end_sample != sample + size:
            raise CorruptEvent(
                f"batch {fact.batch} cuts an episode between two mini-batches, or names too few episodes"
            )
        parts.append(Minibatch(episode, end_episode, sample, end_sample))
        episode, sample = end_episode, end_sample
    if episode != len(fact.episodes) or sample * 8 != len(fact.positions):
        raise CorruptEvent(
            f"batch {fact.batch} holds episodes or samples that are in none of its mini-batches"
        )
    return parts
