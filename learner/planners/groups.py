"""Batches of groups, those with unequal rewards alone by default (M-GRPO, ARPO): each is compared once, then used up."""

from collections.abc import Sequence

from hindcast.core.rl.advantages import group_advantages, is_informative
from hindcast.core.rl.algorithm import options_as
from hindcast.core.rl.algorithm_options import GroupOptions
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.learner.buffer.groups import GroupSlot, compared_as, settle
from hindcast.learner.buffer.records import Episode
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import (
    BatchEntry,
    PolicyPlanner,
    as_fact,
    cut,
    too_old,
    trainable,
    why_unusable,
)

CHANGEABLE = frozenset({"kl_coefficient", "rehearsal_episodes"})
"""Options of this planner that the learner alone reads."""


class GroupPlanner(PolicyPlanner):
    """Compares the members of each group with each other."""

    def wants(self, origin: str, settings: LearnerSettings) -> bool:
        """Only the policy's own episodes are compared."""
        return origin == ONLINE

    def why_swept(self, state: BufferState, episode: Episode, settings: LearnerSettings) -> str | None:
        """`stale`: a fresh episode with a token from more than `max_staleness` versions ago."""
        return "stale" if too_old(state, episode, settings) else why_unusable(state, episode)

    def compared(
        self, state: BufferState, members: Sequence[Episode], settings: LearnerSettings
    ) -> list[GroupSlot]:
        """A group's members with what is added to their rewards; a stored success may replace one of them."""
        return compared_as(state, members, options_as(settings, GroupOptions))

    def entries(self, slots: Sequence[GroupSlot], options: GroupOptions) -> list[BatchEntry]:
        """Entries of a group with their advantages, without a member that a replay replaced."""
        group = next(slot.episode.group for slot in slots if slot.replaces is None)
        advantages = group_advantages(
            [slot.reward for slot in slots], deviation=options.group_deviation, epsilon=options.group_epsilon
        )
        return [
            BatchEntry(
                slot.episode,
                group,
                advantage,
                format_term=slot.format_term,
                length_term=slot.length_term,
                replaces=slot.replaces,
            )
            for slot, advantage in zip(slots, advantages, strict=True)
        ]

    def groups_swept(
        self, state: BufferState, swept: set[str], settings: LearnerSettings
    ) -> dict[str, list[str]]:
        """`agreed`: all members have the same reward, and there is no success to replay; `alone`: there is one member."""
        reasons: dict[str, list[str]] = {}
        options = options_as(settings, GroupOptions)
        for group_id in state.complete:
            members = [m for m in trainable(state, state.groups[group_id]) if m.id not in swept]
            if members and not _is_planned(self.compared(state, members, settings), options):
                reason = "agreed" if len(members) > 1 else "alone"
                reasons.setdefault(reason, []).extend(member.id for member in members)
        return reasons

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """The first `group_batch` groups to be compared, in the order of completion, and rehearsed successes."""
        learner, options = settings.learner, options_as(settings.learner, GroupOptions)
        groups: list[list[GroupSlot]] = []
        consumed: list[str] = []
        for group_id in state.complete:
            group = state.groups[group_id]
            members = trainable(state, group)
            slots = self.compared(state, members, learner)
            if _is_planned(slots, options):
                groups.append(slots)
                consumed += [slot.replaces for slot in slots if slot.replaces is not None]
            else:
                consumed += [member.id for member in members]
            consumed += [
                name for _, name in sorted(group.members.items()) if _leaves_nothing(state.episodes[name])
            ]
            if len(groups) == options.group_batch:
                break
        else:
            return None
        parts = cut([self.entries(slots, options) for slots in groups], learner.minibatches) * learner.epochs
        rehearsals = rehearsal(state, options.rehearsal_episodes * len(parts))
        return as_fact(
            state,
            [[*part, *rehearsals[index :: len(parts)]] for index, part in enumerate(parts)],
            planner=self,
            consumed=consumed,
            reference_version=state.cloned_version if options.kl_coefficient > 0 else None,
            proximal_version=state.version,
        )

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """Drop the compared groups; rehearsed and replayed successes stay."""
        compared = dict.fromkeys(
            planned.episode for planned in fact.episodes if not planned.rehearsed and planned.replaces is None
        )
        for name in (*compared, *fact.consumed):
            if name in state.episodes:
                settle(state, state.episodes[name].group)


def episodes_per_batch(settings: Settings) -> int:
    """Those of the groups in one batch."""
    return options_as(settings.learner, GroupOptions).group_batch * settings.curriculum.members


def _is_planned(slots: Sequence[GroupSlot], options: GroupOptions) -> bool:
    """Whether a group is trained on: its rewards differ or, without `group_filter`, it has at least two members."""
    if not options.group_filter:
        return len(slots) > 1
    return is_informative([slot.result for slot in slots])


def _leaves_nothing(episode: Episode) -> bool:
    """Whether it ended undecided or without a step."""
    return episode.ended and not episode.swept and not (episode.decided and episode.samples)


def rehearsal(state: BufferState, count: int) -> list[BatchEntry]:
    """Up to `count` remembered successes: families in turn, their order and the episode of each drawn from the run's seed."""
    assert state.started is not None
    seed = state.started.run_seed
    candidates = [
        (rank, derive_seed(seed, "rehearsal", state.batches, rank, family), episode)
        for family, latest in state.successes.items()
        for rank, episode in enumerate(
            sorted(latest, key=lambda episode: derive_seed(seed, "rehearsal", state.batches, episode.id))
        )
    ]
    candidates.sort(key=lambda candidate: candidate[:2])
    return [BatchEntry(episode, episode.group, 0.0, rehearsed=True) for _, _, episode in candidates[:count]]
