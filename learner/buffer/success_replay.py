"""Success replay (ARPO, arXiv 2505.16282): successes stored per task, and how they enter groups that failed.

Invariant: a success is stored once it is used up, after its own batch was planned; it is never replayed in that batch.
If a whole group failed and its task has a stored success, that success replaces exactly one member. Mean and deviation
are computed after the replacement. The store is a fold of the log.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from hindcast.core.rl.advantages import SUCCESS_RESULT, failed_altogether
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.learner.buffer.records import Episode, ReplayUse
from hindcast.learner.buffer.state import BufferState


class GroupSlot(NamedTuple):
    """One place of a group as it is compared with the others."""

    episode: Episode
    format_term: float = 0.0
    replaces: str | None = None
    """The member that it replaces."""

    @property
    def reward(self) -> float:
        """Task result plus format term."""
        return self.episode.reward + self.format_term


def store_success(state: BufferState, episode: Episode) -> None:
    """Store a success for its task: first in, first out."""
    settings = state.settings.learner
    if settings.success_replay == "off" or episode.origin != "online":
        return
    if not (episode.decided and episode.samples and episode.reward > SUCCESS_RESULT):
        return
    latest = state.stored.setdefault(episode.task, [])
    latest.append(replace(episode, uses=0))
    del latest[: -settings.replay_memory]


def compared_as(state: BufferState, members: Sequence[Episode], settings: LearnerSettings) -> list[GroupSlot]:
    """A group's members with their format terms; if all failed, a stored success replaces one of them.

    The run's seed and the group's name decide which success replaces which member.
    """
    compared = [GroupSlot(member, _format_term(member, settings)) for member in members]
    if settings.success_replay == "off" or not failed_altogether([member.reward for member in members]):
        return compared
    group = members[0].group
    # episodes of this group that were swept while others still ran are in the store, too
    store = [one for one in state.stored.get(members[0].task, ()) if one.group != group]
    if not store:
        return compared
    assert state.started is not None
    seed = state.started.run_seed
    success = min(store, key=lambda one: derive_seed(seed, "replay", group, "success", one.id))
    index = 0
    if settings.success_replay == "random":
        index = derive_seed(seed, "replay", group, "member") % len(members)
    compared[index] = GroupSlot(success, _format_term(success, settings), replaces=members[index].id)
    return compared


def _format_term(episode: Episode, settings: LearnerSettings) -> float:
    """Once per episode, however many of its actions cannot be parsed."""
    return -settings.format_penalty if episode.unparsable and settings.format_penalty > 0 else 0.0


def count_replays(state: BufferState, planned: Sequence[PlannedEpisode]) -> dict[str, ReplayUse]:
    """Count the replays of a batch: once per group, in however many epochs."""
    stored = {episode.id: episode for latest in state.stored.values() for episode in latest}
    found: dict[str, ReplayUse] = {}
    for name, _ in dict.fromkeys((one.episode, one.group) for one in planned if one.replaces is not None):
        success = stored[name]
        success.uses += 1
        found[name] = ReplayUse(state.version - (success.oldest_version or 0), success.uses)
    return found
