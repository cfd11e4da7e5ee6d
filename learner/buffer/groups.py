"""Groups in the buffer: when one is complete or used up, what is dropped then, and which successes are kept for replay.

Success replay (ARPO, arXiv 2505.16282): if a whole group failed and its task has a stored success, that success replaces
exactly one member. Mean and deviation are computed after the replacement. Invariant: a success is stored once it is used up,
after its own batch was planned; it is never replayed in that batch.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from hindcast.core.rl.advantages import SUCCESS_RESULT, failed_altogether
from hindcast.core.rl.algorithm import options_as
from hindcast.core.rl.algorithm_options import GroupOptions
from hindcast.core.seeds import derive_seed
from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.learner.buffer.records import Episode, ReplayUse
from hindcast.learner.buffer.state import BufferState


def forget_settled(state: BufferState) -> None:
    """Forget the used-up groups for which no further request can arrive.

    One decision of the curriculum appends at most `max_running` requests, in a row, since each expects the one before it. After
    more requests than that, the last one belongs to a decision that saw the first one after the group was used up.
    """
    bound = state.requests - 1 - state.settings.curriculum.max_running
    while state.settled_groups:
        group_id, settled_at = next(iter(state.settled_groups.items()))
        if settled_at >= bound:
            return
        del state.settled_groups[group_id]


def resolve(state: BufferState, episode: Episode) -> None:
    """Handle an episode's final event: drop the episode where it no longer counts, and complete its group if it was the last."""
    group = state.groups.get(episode.group)
    if group is None:
        if episode.swept or episode.gone is not None:
            del state.episodes[episode.id]
        return
    if not group.complete:
        group.complete = len(group.members) == group.size and all(
            _is_resolved(state, member) for member in group.members.values()
        )
        if group.complete:
            state.complete[group.id] = None
    if group.complete and not any(state.episodes[member].decided for member in group.members.values()):
        undecided = [
            m for m in group.members.values() if state.episodes[m].ended and not state.episodes[m].swept
        ]
        if not undecided:
            settle(state, group.id)


def _is_resolved(state: BufferState, episode_id: str) -> bool:
    episode = state.episodes[episode_id]
    if episode.gone is not None:
        max_attempts = state.settings.curriculum.max_attempts
        attempts = state.groups[episode.group].started.get(episode.member, 0)
        return episode.gone == "cancelled" or attempts >= max_attempts
    return episode.swept or (episode.ended and episode.outcome is not None)


def settle(state: BufferState, group_id: str) -> None:
    """Mark a group as used up: drop it and all that its episodes hold."""
    group = state.groups.pop(group_id, None)
    state.complete.pop(group_id, None)
    state.settled_groups.pop(group_id, None)
    state.settled_groups[group_id] = state.requests
    for member in group.members.values() if group else ():
        state.pending.pop(member, None)
        episode = state.episodes.pop(member, None)
        if episode is not None:
            remember(state, episode)


def drop(state: BufferState, episode: Episode) -> None:
    """Drop an episode that is not trained on any more."""
    episode.swept = True
    episode.samples = []
    state.pending.pop(episode.id, None)
    resolve(state, episode)


def remember(state: BufferState, episode: Episode) -> None:
    """Keep a used-up episode for success replay, and a success for rehearsal: first in, first out, per family."""
    if episode.id in state.withheld:
        return
    store_success(state, episode)
    options = options_as(state.settings.learner, GroupOptions)
    if options.rehearsal_episodes == 0 or episode.origin != ONLINE:
        return
    if not (episode.decided and episode.succeeded and episode.samples):
        return
    latest = state.successes.setdefault(episode.family, [])
    latest.append(replace(episode))
    del latest[: -options.rehearsal_memory]


class GroupSlot(NamedTuple):
    """One place of a group as it is compared with the others."""

    episode: Episode
    format_term: float = 0.0
    replaces: str | None = None
    """The member that it replaces."""
    length_term: float = 0.0

    @property
    def result(self) -> float:
        """Task result plus format term: what tells members of a group apart."""
        return self.episode.reward + self.format_term

    @property
    def reward(self) -> float:
        """What advantages are computed from: the result plus the length term."""
        return self.result + self.length_term


def store_success(state: BufferState, episode: Episode) -> None:
    """Store a success for its task: first in, first out."""
    options = options_as(state.settings.learner, GroupOptions)
    if options.success_replay == "off" or episode.origin != ONLINE:
        return
    if not (episode.decided and episode.samples and episode.reward > SUCCESS_RESULT):
        return
    latest = state.stored.setdefault(episode.task, [])
    latest.append(replace(episode, uses=0))
    del latest[: -options.replay_memory]


def compared_as(state: BufferState, members: Sequence[Episode], options: GroupOptions) -> list[GroupSlot]:
    """A group's members with their format terms; if all failed, a stored success replaces one of them.

    The run's seed and the group's name decide which success replaces which member.
    """
    slots = [GroupSlot(member, _format_term(member, options)) for member in members]
    if options.success_replay == "off" or not failed_altogether([member.reward for member in members]):
        return slots
    group = members[0].group
    # episodes of this group that were swept while others still ran are in the store, too
    store = [episode for episode in state.stored.get(members[0].task, ()) if episode.group != group]
    if not store:
        return slots
    assert state.started is not None
    seed = state.started.run_seed
    success = min(store, key=lambda episode: derive_seed(seed, "replay", group, "success", episode.id))
    index = 0
    if options.success_replay == "random":
        index = derive_seed(seed, "replay", group, "member") % len(members)
    slots[index] = GroupSlot(success, _format_term(success, options), replaces=members[index].id)
    return slots


def _format_term(episode: Episode, options: GroupOptions) -> float:
    """Once per episode, however many of its actions cannot be parsed."""
    return -options.format_penalty if episode.unparsable and options.format_penalty > 0 else 0.0


def count_replays(state: BufferState, planned: Sequence[PlannedEpisode]) -> dict[str, ReplayUse]:
    """Count the replays of a batch: once per group, in however many epochs."""
    successes = {episode.id: episode for latest in state.stored.values() for episode in latest}
    uses: dict[str, ReplayUse] = {}
    for name, _ in dict.fromkeys(
        (planned_episode.episode, planned_episode.group)
        for planned_episode in planned
        if planned_episode.replaces is not None
    ):
        success = successes[name]
        success.uses += 1
        uses[name] = ReplayUse(state.version - (success.oldest_version or 0), success.uses)
    return uses
