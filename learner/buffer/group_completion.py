"""When a group is complete or used up, and what is dropped then: the part of the buffer's fold that bounds its size."""

from dataclasses import replace

from hindcast.learner.buffer.records import Episode
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.buffer.success_replay import store_success


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
        tries = state.settings.curriculum.max_attempts
        tried = state.groups[episode.group].started.get(episode.member, 0)
        return episode.gone == "cancelled" or tried >= tries
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
    store_success(state, episode)
    settings = state.settings.learner
    if settings.rehearsal_episodes == 0 or episode.origin != "online":
        return
    if not (episode.decided and episode.succeeded and episode.samples):
        return
    latest = state.successes.setdefault(episode.family, [])
    latest.append(replace(episode))
    del latest[: -settings.rehearsal_memory]
