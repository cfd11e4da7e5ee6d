"""The curriculum's fold: one event at a time, no clock, no randomness. What it counts and why: `state`."""

from typing import Self

from hindcast.actors.curriculum.leases import FAMILIES as LEASE_FAMILIES
from hindcast.actors.curriculum.state import RECENT, CurriculumState, FamilyTally, Group, Member, Tally
from hindcast.core.rl.advantages import SUCCESS_RESULT, failed_altogether, is_informative
from hindcast.core.rl.algorithm import options_as, traits_of
from hindcast.core.rl.algorithm_options import GroupOptions
from hindcast.core.rl.combined_state import CRITIC, ORM, POLICY
from hindcast.core.rl.staleness import is_stale
from hindcast.core.settings.schema import CurriculumSettings, LearnerSettings, Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    ControlApplied,
    ControlRequested,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    PhaseStarted,
    RunResumed,
    SamplesSwept,
    StateValued,
    StepTaken,
    TaskAdmitted,
    TaskChecked,
    TaskProposed,
    TaskRejected,
    UpdateApplied,
    UpdateSkipped,
    WeightsPublished,
)
from hindcast.events.catalogue.curriculum import DEMONSTRATION, ONLINE
from hindcast.events.catalogue.operation import DRAIN, EVALUATE
from hindcast.events.envelope import Recorded
from hindcast.events.registry import BY_CLASS

FAMILIES = LEASE_FAMILIES | {"curriculum", "evaluation", "verdict", "learner", "control"}
"""Families of events that the state follows from."""


class CurriculumProjection:
    """How the curriculum's state follows from the log under given settings."""

    def __init__(self, *, curriculum: CurriculumSettings, learner: LearnerSettings, judge: str) -> None:
        """`judge` is the one whose verdicts training uses."""
        self._max_attempts = curriculum.max_attempts
        self._eta = learner.max_staleness
        traits = traits_of(learner.algorithm)
        self._compares = traits.compares == "groups"
        self._ages = traits.limits_staleness
        self._useless = traits.useless_outcome
        """Outcome of which nothing is learned."""
        options = options_as(learner, GroupOptions)
        self._replays = options.success_replay != "off"
        self._shapes = options.format_penalty > 0
        self._filters = options.group_filter
        self._judge = judge
        self._phase_episodes = learner.phase_episodes

    @classmethod
    def under(cls, settings: Settings) -> Self:
        """As the settings of a run have it."""
        return cls(curriculum=settings.curriculum, learner=settings.learner, judge=settings.judge.judges[0])

    @property
    def conditions(self) -> str:
        """The settings that the state depends on, in words: states under others are not comparable."""
        return (
            f"attempts {self._max_attempts}, eta {self._eta}, compares {self._compares}, ages {self._ages}, "
            f"useless {self._useless!r}, replays {self._replays}, "
            f"shapes {self._shapes}, {'' if self._filters else 'unfiltered, '}judge {self._judge}, "
            f"phases of {self._phase_episodes}"
        )

    def initial(self) -> CurriculumState:
        """The state before the first event."""
        return CurriculumState()

    def apply(self, state: CurriculumState, recorded: Recorded) -> CurriculumState:
        """The state after one more event; changes and returns the same object."""
        state.position = recorded.position
        state.leases.apply(recorded)
        state.evaluations.apply(recorded, judge=self._judge, newest=state.version)
        match recorded.fact:
            case TaskProposed() as fact:
                state.proposed.add(fact.task.id)
                state.phases.propose(fact)
            case TaskAdmitted() as fact:
                if fact.task_id in state.proposed:
                    state.admitted.add(fact.task_id)
                    if fact.task_id in state.phases.generated:
                        state.phases.phase_of[fact.task_id] = fact.phase
            case TaskRejected() as fact:
                state.admitted.discard(fact.task_id)
                state.rejected.add(fact.task_id)
            case StateValued() as fact:
                state.phases.values[fact.task_id] = fact.value
            case TaskChecked() as fact:
                state.phases.checked[fact.task_id] = fact
            case PhaseStarted() as fact:
                state.phase = fact.phase
                state.phases.begin(episodes=self._phase_episodes)
            case ControlRequested(command=drain) as fact if drain == DRAIN:
                state.draining, state.drained = True, False
                state.ending = bool(fact.arguments.get(EVALUATE))
            case ControlApplied(command=drain) if drain == DRAIN:
                state.drained = True
            case RunResumed():
                state.draining = state.drained = state.ending = False
            case EpisodeRequested() as fact:
                self._requested(state, fact, recorded.position)
            case EpisodeStarted(episode=episode):
                if located := self._running(state, episode):
                    located[1].started += 1
            case StepTaken(index=0, observation=page) as fact if page is not None:
                if located := self._locate(state, fact.episode):
                    state.phases.latest.pages[located[0].family] = page
            case EpisodeEnded() as fact:
                self._end(state, fact)
            case EpisodeAbandoned() | EpisodeCancelled() as fact:
                self._abandoned(state, fact)
            case EpisodeJudged() as fact:
                self._take_verdict(state, fact)
            case SamplesSwept() as fact:
                self._drop(state, fact.episodes)
            case BatchPlanned() as fact:
                self._planned(state, fact)
            case UpdateApplied() | UpdateSkipped() as fact:
                self._updated(state, fact)
            case WeightsPublished() as fact:
                self._published(state, fact, recorded.position)
        family = BY_CLASS[type(recorded.fact)].family
        if family == "curriculum":
            state.last_curriculum = recorded.position
        elif family == "request":
            state.last_request = recorded.position
        return state

    def _requested(self, state: CurriculumState, fact: EpisodeRequested, position: int) -> None:
        if fact.origin not in (ONLINE, DEMONSTRATION):
            return
        group = state.groups.get(fact.group)
        if group is None:
            group = Group(
                id=fact.group,
                task=fact.task,
                origin=fact.origin,
                members=[Member() for _ in range(fact.group_size)],
                revisits=fact.revisits,
                hasty=fact.hasty,
            )
            state.groups[fact.group] = group
            state.opened[fact.origin] += 1
            state.phases.revisits += fact.revisits
            if fact.origin == ONLINE:
                state.tasks.setdefault(fact.task.id, Tally()).groups += 1
                state.families.setdefault(group.family, FamilyTally()).groups += 1
        member = group.members[fact.member]
        member.standing, member.attempt, member.episode = "running", fact.attempt, fact.episode
        member.requested = position
        state.places[fact.episode] = (fact.group, fact.member)

    def _end(self, state: CurriculumState, fact: EpisodeEnded) -> None:
        located = self._running(state, fact.episode)
        if located is None:
            return
        group, member = located
        state.ended[group.origin] += 1
        member.standing, member.oldest_version = "ended", fact.policy_versions[0]
        member.steps = fact.steps
        if group.origin != ONLINE:
            member.standing = "lost"
        elif group.batch is not None or self._too_old(state, member):
            self._lose(state, member)
        self._settle(state, group)

    def _abandoned(self, state: CurriculumState, fact: EpisodeAbandoned | EpisodeCancelled) -> None:
        located = self._running(state, fact.episode)
        if located is None:
            return
        group, member = located
        # a request that waited in vain says nothing about its task: there may have been no actor at all
        retried = isinstance(fact, EpisodeAbandoned) and member.started < self._max_attempts
        if group.origin == ONLINE:
            state.discarded += 1
        if retried and group.batch is None:
            del state.places[fact.episode]
            member.standing, member.attempt, member.episode = "owed", member.attempt + 1, None
        else:
            member.standing = "lost"
            self._settle(state, group)

    def _take_verdict(self, state: CurriculumState, fact: EpisodeJudged) -> None:
        located = self._locate(state, fact.episode)
        if located is None or fact.judge.name != self._judge:
            return
        group, member = located
        if member.standing != "ended":
            return
        if fact.judgment.outcome == "undecided":
            self._lose(state, member)
        else:
            reward = fact.judgment.reward
            member.standing, member.reward = "decided", reward
            tally = state.tasks[group.task.id]
            tally.decided += 1
            tally.reward += reward
            state.phases.judge(group.task, reward, episodes=self._phase_episodes)
            recent = state.families[group.family].recent
            recent.append(reward)
            del recent[:-RECENT]
            if fact.judgment.outcome == self._useless:
                self._lose(state, member)
        self._settle(state, group)

    def _drop(self, state: CurriculumState, episodes: tuple[str, ...]) -> None:
        for episode in episodes:
            located = self._locate(state, episode)
            if located is not None and located[1].standing in ("ended", "decided"):
                self._lose(state, located[1])
                self._settle(state, located[0])

    def _planned(self, state: CurriculumState, fact: BatchPlanned) -> None:
        if fact.model != POLICY:
            return
        self._release(state, trained=False)
        state.phases.plan(episodes=self._phase_episodes)
        state.batch, state.applied = fact.batch, 0
        state.minibatches = len(fact.minibatches) // 4
        for planned in fact.episodes:
            located = self._locate(state, planned.episode)
            if located is not None and located[1].standing in ("ended", "decided"):
                located[1].standing = "trained"
                if self._compares:
                    located[0].batch = fact.batch
        self._drop(state, fact.consumed)
        for group in list(state.groups.values()):
            if group.batch != fact.batch:
                continue
            for member in group.members:
                if member.standing in ("ended", "decided"):
                    self._lose(state, member)
                elif member.standing == "owed":
                    member.standing = "lost"

    def _updated(self, state: CurriculumState, fact: UpdateApplied | UpdateSkipped) -> None:
        if fact.model != POLICY or fact.batch != state.batch:
            return
        if isinstance(fact, UpdateApplied):
            state.updates = fact.update
        state.minibatches -= 1
        state.applied += isinstance(fact, UpdateApplied)
        if state.minibatches <= 0 and state.applied == 0:
            self._release(state, trained=False)

    def _published(self, state: CurriculumState, fact: WeightsPublished, position: int) -> None:
        if fact.model == CRITIC:
            state.phases.latest.critic = fact
        if fact.model == ORM:
            state.phases.latest.orm = fact
        if fact.model != POLICY:
            return
        if fact.version > state.version or state.published == 0:
            state.published = position
        if fact.version <= state.version:
            return
        state.version, state.applied = fact.version, 0
        state.phases.publish()
        self._release(state, trained=True)
        for group in list(state.groups.values()):
            for member in group.members:
                if member.standing in ("ended", "decided") and self._too_old(state, member):
                    self._lose(state, member)
            self._settle(state, group)

    def _release(self, state: CurriculumState, *, trained: bool) -> None:
        """The latest batch is done with: its members take up no more room."""
        for group in list(state.groups.values()):
            for member in group.members:
                if member.standing == "trained":
                    member.standing = "lost"
                    state.discarded += not trained
            self._settle(state, group)

    def _settle(self, state: CurriculumState, group: Group) -> None:
        """Forget a group that nothing more can come of."""
        if group.unfinished or group.standing("trained"):
            return
        decided = [member for member in group.members if member.standing == "decided"]
        hopeful = self._may_teach(state, group, decided) if self._compares else bool(decided)
        if hopeful and group.batch is None:
            return
        for member in decided:
            self._lose(state, member)
        for member in group.members:
            if member.episode is not None:
                state.places.pop(member.episode, None)
        state.groups.pop(group.id, None)

    def _may_teach(self, state: CurriculumState, group: Group, decided: list[Member]) -> bool:
        """Whether the learner may compare the group; where it does not after all, its sweep says so.

        What the format adds is in the steps, which are not read here; that a success of the task is in the learner's
        store follows from its tally but for the moment until that one is used up.
        """
        rewards = [member.reward for member in decided]
        if is_informative(rewards) or (len(decided) > 1 and (self._shapes or not self._filters)):
            return True
        if not (self._replays and failed_altogether(rewards)):
            return False
        return state.tasks[group.task.id].reward - sum(rewards) > SUCCESS_RESULT

    def _too_old(self, state: CurriculumState, member: Member) -> bool:
        """Whether the learner's sweep will take it; what is cloned is old by design."""
        return self._ages and is_stale(version=state.version, sampled=member.oldest_version, eta=self._eta)

    @staticmethod
    def _lose(state: CurriculumState, member: Member) -> None:
        member.standing = "lost"
        state.discarded += 1

    @staticmethod
    def _locate(state: CurriculumState, episode: str) -> tuple[Group, Member] | None:
        indices = state.places.get(episode)
        if indices is None:
            return None
        group = state.groups[indices[0]]
        return group, group.members[indices[1]]

    def _running(self, state: CurriculumState, episode: str) -> tuple[Group, Member] | None:
        located = self._locate(state, episode)
        return located if located is not None and located[1].standing == "running" else None
