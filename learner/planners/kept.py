"""The decisions of a derived run that keeps those of its parent (`hindcast without --plan keep`): the same, less what is left out.

Pure functions of the buffer's state, which holds the decision that is due (`decision.kept`). Advantages of a group that lost
members are computed from the rewards of the others. A mini-batch may be empty: the learner skips it. A batch may be empty: it
publishes the weights before it, so that versions keep their parent's numbers.
"""

from itertools import islice

import msgspec

from hindcast.core.domain.arrays import pack_ids, pack_positions, unpack_ids, unpack_positions
from hindcast.core.rl.advantages import group_advantages
from hindcast.core.rl.algorithm import options_as, traits_of
from hindcast.core.rl.algorithm_options import GroupOptions
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.learner.buffer.plannable import Plannable
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import config_digest


def kept_sweep(state: BufferState) -> dict[str, list[str]]:
    """Episodes to sweep now because the parent swept them, by reason, as far as they are not left out."""
    swept = None if state.kept is None else state.kept.swept
    if swept is None:
        return {}
    names = [
        name
        for name in swept.episodes
        if name not in state.withheld and name in state.episodes and not state.episodes[name].swept
    ]
    return {swept.reason: names} if names else {}


def kept_plan(state: BufferState) -> BatchPlanned | None:
    """The parent's batch that is due, less what is left out; None: none is due."""
    plan = None if state.kept is None else state.kept.plan
    if plan is None or plan.batch != state.batches:
        return None
    plannable = Plannable(state, plan.model, plan.episodes)
    positions, episodes = iter(unpack_positions(plan.positions).tolist()), iter(plan.episodes)
    minibatches: list[list[PlannedEpisode]] = []
    kept_positions: list[int] = []
    digests: list[bytes] = []
    for size in unpack_ids(plan.minibatches).tolist():
        minibatch, remaining = [], size
        while remaining > 0:
            planned = next(episodes)
            episode_positions = list(islice(positions, planned.samples))
            remaining -= planned.samples
            if planned.episode in state.withheld:
                continue
            minibatch.append(planned)
            _, steps = plannable.find(planned)
            kept_positions += episode_positions
            digests += [steps[position].digest for position in episode_positions if position in steps]
        minibatches.append(minibatch)
    if plan.model == POLICY and traits_of(plan.algorithm).group_advantages:
        minibatches = _compared_anew(minibatches, plan, state.settings.learner)
    return msgspec.structs.replace(
        plan,
        as_of=state.position,
        log_digest=state.digest.value,
        positions=pack_positions(kept_positions),
        sample_digests=b"".join(digests),
        minibatches=pack_ids([sum(episode.samples for episode in minibatch) for minibatch in minibatches]),
        episodes=tuple(episode for minibatch in minibatches for episode in minibatch),
        consumed=tuple(name for name in plan.consumed if name not in state.withheld),
        version=state.version,
        config_digest=config_digest(state.resolved),
    )


def _compared_anew(
    minibatches: list[list[PlannedEpisode]], plan: BatchPlanned, settings: LearnerSettings
) -> list[list[PlannedEpisode]]:
    """The episodes with the advantages of their groups as they are now, where a group lost a member."""
    options = options_as(settings, GroupOptions)
    before = _groups(plan.episodes)
    advantages: dict[tuple[str, str], float] = {}
    for group, members in _groups(
        tuple(episode for minibatch in minibatches for episode in minibatch)
    ).items():
        if members.keys() == before[group].keys():
            continue
        rewards = [episode.reward + episode.format_term + episode.length_term for episode in members.values()]
        new_advantages = group_advantages(
            rewards, deviation=options.group_deviation, epsilon=options.group_epsilon
        )
        advantages |= {(group, name): value for name, value in zip(members, new_advantages, strict=True)}
    return [
        [
            episode
            if episode.rehearsed
            else msgspec.structs.replace(
                episode, advantage=advantages.get((episode.group, episode.episode), episode.advantage)
            )
            for episode in minibatch
        ]
        for minibatch in minibatches
    ]


def _groups(episodes: tuple[PlannedEpisode, ...]) -> dict[str, dict[str, PlannedEpisode]]:
    """Compared episodes by group; one that is in several epochs counts once."""
    groups: dict[str, dict[str, PlannedEpisode]] = {}
    for episode in episodes:
        if not episode.rehearsed:
            groups.setdefault(episode.group, {})[episode.episode] = episode
    return groups
