"""When a group is used up, and what is let go of then: the part of the buffer's fold that keeps it small."""

from dataclasses import replace

from hindcast.learner.buffer.records import Episode
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.buffer.success_replay import store_success


def forget_settled(state: BufferState) -> None:
    """Forget the used-up groups that no request can come for any more.

    One decision of the curriculum appends at most `max_running` requests, in a row, since each expects the one before
    it. So of more requests than that after a group was used up, the last belongs to a decision that had seen the first.
    """
    bound = state.requests - 1 - state.settings.curriculum.max_running
    while state.settled_groups:
        group_id, settled_at = next(iter(state.settled_groups.items()))
        if settled_at >= bound:
            return
        del state.settled_groups[group_id]


def resolve(state: BufferState, episode: Episode) -> None:
    """Something final happened to an episode: forget it where it counts no more, complete its group where it was the last."""
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
        tries = state.settings.curriculum.max_attempts
        tried = state.groups[episode.group].started.get(episode.member, 0)
        return episode.gone == "cancelled" or tried >= tries
    return episode.swept or (episode.ended and episode.outcome is not None)


def settle(state: BufferState, group_id: str) -> None:
    """The group is used up: let go of it and of everything its episodes hold."""
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
    """Nothing more is to be learned from this episode."""
    episode.swept = True
    episode.samples = []
    state.pending.pop(episode.id, None)
    resolve(state, episode)


def remember(state: BufferState, episode: Episode) -> None:
    """A success that was compared, or agreed with its group, may be rehearsed: first in, first out, per family.

    Apart from that it may be replayed where all fail at its task.
    """
    store_success(state, episode)
    settings = state.settings.learner
    if settings.rehearsal_episodes == 0 or episode.origin != "online":
        return
    if not (episode.decided and episode.succeeded and episode.samples):
        return
    latest = state.successes.setdefault(episode.family, [])
    latest.append(replace(episode))
    del latest[: -settings.rehearsal_memory]
