"""The replay buffer: everything the learner knows, as a pure fold over the log.

Invariant 1, log is the truth: folding the log again gives the same buffer. So a restarted learner knows what was consumed,
swept and trained, and its place within a batch. Invariant 7: its counters are projections.
Token arrays are dropped once their episode is used up. The size of the buffer depends on the settings and the work in
progress, not on the length of history, except for weights that the settings keep for good.
Ignored: evaluation episodes, events about episodes with an earlier final event, second verdicts.
Invariant 5, verdicts are facts about a judge. The first judge of `judge.judges` trains: the buffer counts its first verdict
and remembers those of the others. A fork or a changed recipe may name another judge first. Then that judge's verdicts count,
also for episodes that ended before; episodes without one wait for it.
"""

from typing import Any

from pydantic import ValidationError

from hindcast.core.domain.arrays import unpack_floats, unpack_ids, unpack_positions
from hindcast.core.errors import CorruptEvent, SettingsError
from hindcast.core.rl.algorithm import options_as
from hindcast.core.rl.algorithm_options import GroupOptions, PhaseOptions
from hindcast.core.settings.changes import decode_settings, merge
from hindcast.events.catalogue import (
    NEVER_TRAINED,
    BatchPlanned,
    BlobReleased,
    CheckpointSaved,
    ControlRequested,
    DecisionKept,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRelabeled,
    EpisodeRequested,
    EpisodeStarted,
    LearnerStarted,
    RecipeChanged,
    ReplayScored,
    RunForked,
    RunResumed,
    RunStarted,
    SamplesSwept,
    SnapshotSaved,
    StepTaken,
    UpdateApplied,
    UpdateSkipped,
    WeightsPublished,
)
from hindcast.events.catalogue.curriculum import DEMONSTRATION
from hindcast.events.catalogue.operation import DRAIN, EVALUATE
from hindcast.events.envelope import Recorded
from hindcast.events.registry import BY_CLASS
from hindcast.learner.batch_plan import may_be_trained_on
from hindcast.learner.buffer.batches import take_plan, take_release, take_update, take_weights
from hindcast.learner.buffer.groups import drop, forget_settled, remember, resolve
from hindcast.learner.buffer.records import (
    Episode,
    Group,
    Verdict,
    requested_episode,
    sample_of,
)
from hindcast.learner.buffer.relabels import collect, leave_behind, take_relabels
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.buffer.withheld import withhold
from hindcast.learner.planners.phases import store_demonstration


class ReplayBuffer:
    """The learner's projection; implements `events.log.projection.Projection`."""

    def initial(self) -> BufferState:
        """The state before the first event."""
        return BufferState()

    def apply(self, state: BufferState, recorded: Recorded) -> BufferState:
        """Change the state by one event and return it.

        Raises:
            CorruptEvent: steps are out of order, or a plan names steps that do not exist.
            SettingsError: the run was recorded under settings that this code does not know.
        """
        fact = recorded.fact
        if isinstance(fact, RunForked):
            _check_fork(state, recorded, fact)
        state.position = recorded.position
        state.latest = recorded.digest
        state.digest.advance(recorded.digest)
        if BY_CLASS[type(fact)].family == "learner":
            state.last_learner = recorded.position
        match fact:
            case StepTaken():
                _step(state, recorded, fact)
            case EpisodeRequested():
                _request(state, recorded, fact)
            case EpisodeStarted():
                _start(state, fact)
            case EpisodeEnded():
                _end(state, fact.episode, gone=None, truncated=fact.reason == "max_steps")
            case EpisodeAbandoned() | EpisodeCancelled():
                state.outcomes.forget(fact.episode)
                state.lessons.forget(fact.episode)
                _end(
                    state,
                    fact.episode,
                    gone="cancelled" if isinstance(fact, EpisodeCancelled) else fact.reason,
                )
            case EpisodeJudged():
                _judge(state, recorded, fact)
            case EpisodeRelabeled():
                take_relabels(state, fact)
                state.lessons.take_relabel(recorded, fact)
                if fact.episode in state.episodes:
                    collect(state, state.episodes[fact.episode], position=recorded.position)
            case SamplesSwept():
                _sweep(state, fact)
            case DecisionKept():
                state.kept = fact
            case BatchPlanned():
                take_plan(state, recorded, fact)
            case UpdateApplied() | UpdateSkipped():
                take_update(state, fact)
            case ReplayScored():
                positions = unpack_positions(fact.positions).tolist()
                state.perplexities |= zip(positions, unpack_floats(fact.perplexities).tolist(), strict=True)
            case WeightsPublished():
                take_weights(state, fact)
            case CheckpointSaved():
                state.checkpoints.append(fact)
                state.checkpointed = fact.batch + 1
            case SnapshotSaved():
                state.snapshots.setdefault(fact.projection, []).append(fact)
            case BlobReleased():
                take_release(state, fact)
            case RunStarted():
                state.started = fact
                state.fingerprint, state.plugins = fact.fingerprint, fact.plugins
                _configure(state, recorded, fact.settings)
            case ControlRequested(command=command) if command == DRAIN:
                state.ending = bool(fact.arguments.get(EVALUATE))
            case RunResumed():
                state.fingerprint, state.ending = fact.fingerprint, False
            case LearnerStarted():
                state.fingerprint = fact.fingerprint
            case RunForked():
                _fork(state, recorded, fact)
            case RecipeChanged():
                _configure(state, recorded, merge(state.resolved, fact.changes))
            case _:
                pass
        if state.last_learner == recorded.position:
            state.outcomes.trim(state.settings.learner)
            state.lessons.trim(state.settings.learner)
        return state


def _configure(state: BufferState, recorded: Recorded, resolved: dict[str, Any]) -> None:
    before = state.settings.judge.judges[0]
    try:
        state.settings = decode_settings(resolved)
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingsError(
            f"the settings recorded at position {recorded.position} do not fit this Hindcast: "
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}. They were recorded by code "
            f"{recorded.envelope.code_rev}: continue with that revision, or start a new run."
        ) from error
    state.resolved = resolved
    if options_as(state.settings.learner, GroupOptions).success_replay == "off":
        state.stored.clear()
    if options_as(state.settings.learner, PhaseOptions).phase_replay == "off":
        state.earlier.clear()
    for episode in _change_judge(state, before=before, after=state.settings.judge.judges[0]):
        collect(state, episode, position=recorded.position)
        _weigh(state, episode)
    for name in list(state.pending):
        collect(state, state.episodes[name], position=recorded.position)


def _check_fork(state: BufferState, recorded: Recorded, fact: RunForked) -> None:
    """Check that the events folded so far are those that the run was forked from."""
    if state.position == fact.at_position and state.digest.value == fact.parent_digest:
        return
    raise CorruptEvent(
        f"run.forked at position {recorded.position} names run {fact.parent} up to position {fact.at_position} with the log "
        f"digest {fact.parent_digest.hex()[:16]}…. The events before it end at position {state.position} with the digest "
        f"{state.digest.value.hex()[:16]}…. The parent's log was altered after the fork, or is another one."
    )


def _fork(state: BufferState, recorded: Recorded, fact: RunForked) -> None:
    state.ending, state.kept = False, None
    state.keeps_plans = fact.derived is not None and fact.derived.plans == "keep"
    if fact.derived is None:
        leave_behind(state)
    else:
        withhold(state, fact.derived.episodes)
    if fact.start is not None:
        state.fingerprint, state.plugins = fact.start.fingerprint, fact.start.plugins
        _configure(state, recorded, fact.start.settings)


def _request(state: BufferState, recorded: Recorded, fact: EpisodeRequested) -> None:
    if fact.origin in NEVER_TRAINED:
        return
    state.requests += 1
    state.shown += fact.origin == DEMONSTRATION and fact.attempt == 0
    if fact.episode not in state.withheld:
        state.outcomes.expect(fact, state.settings.learner, position=recorded.position)
        state.lessons.expect(fact, state.settings.learner, position=recorded.position)
    forget_settled(state)
    if not may_be_trained_on(fact.origin, state.settings.learner) or fact.episode in state.episodes:
        return
    state.episodes[fact.episode] = requested_episode(fact, position=recorded.position)
    if fact.group in state.settled_groups:
        return
    group = state.groups.setdefault(fact.group, Group(id=fact.group, size=fact.group_size))
    previous = group.members.get(fact.member)
    if previous is not None and previous in state.episodes:
        del state.episodes[previous]
    group.members[fact.member] = fact.episode
    group.complete = False
    state.complete.pop(group.id, None)


def _start(state: BufferState, fact: EpisodeStarted) -> None:
    """Count an attempt that was started. A request that expired unstarted does not count: the curriculum repeats it."""
    episode = state.episodes.get(fact.episode)
    group = None if episode is None else state.groups.get(episode.group)
    if episode is not None and group is not None and not episode.ended and episode.gone is None:
        group.started[episode.member] = group.started.get(episode.member, 0) + 1


def _step(state: BufferState, recorded: Recorded, fact: StepTaken) -> None:
    episode = state.episodes.get(fact.episode)
    if episode is None or episode.ended or episode.gone is not None:
        return
    if fact.index != episode.steps:
        raise CorruptEvent(
            f"events are out of order: episode {fact.episode} got step {fact.index} where step {episode.steps} was due "
            f"(position {recorded.position}). An actor skipped a publish, or two actors drive one episode. "
            f"Run: hindcast episode show {fact.episode}"
        )
    episode.steps += 1
    episode.unparsable |= fact.action is None
    versions = unpack_ids(fact.versions)
    if len(versions):
        oldest = int(versions.min())
        episode.oldest_version = (
            oldest if episode.oldest_version is None else min(oldest, episode.oldest_version)
        )
    repeated = episode.branch is not None and fact.index < episode.branch.step
    if fact.action_ids and not repeated and not episode.swept and episode.group in state.groups:
        episode.samples.append(sample_of(recorded, fact))


def _end(state: BufferState, episode_id: str, *, gone: str | None, truncated: bool = False) -> None:
    episode = state.episodes.get(episode_id)
    if episode is None or episode.ended or episode.gone is not None:
        return
    if gone is None:
        episode.ended, episode.truncated = True, truncated
    else:
        episode.gone = gone
        episode.samples = []
    resolve(state, episode)


def _judge(state: BufferState, recorded: Recorded, fact: EpisodeJudged) -> None:
    state.outcomes.take_verdict(recorded, fact, state.settings.learner)
    episode = state.episodes.get(fact.episode)
    training = state.settings.judge.judges[0]
    state.lessons.take_verdict(recorded, fact, training=training)
    if episode is not None and _take_verdict(episode, fact, position=recorded.position, training=training):
        collect(state, episode, position=recorded.position)
        _weigh(state, episode)


def _weigh(state: BufferState, episode: Episode) -> None:
    """Take in that the training judge's verdict of an episode is known."""
    if not episode.decided:
        episode.samples = []
    if episode.id not in state.withheld:
        store_demonstration(state, episode)
    resolve(state, episode)


def _sweep(state: BufferState, fact: SamplesSwept) -> None:
    for episode_id in fact.episodes:
        episode = state.episodes.get(episode_id)
        if episode is not None:
            remember(state, episode)
            drop(state, episode)


def _take_verdict(episode: Episode, fact: EpisodeJudged, *, position: int, training: str) -> bool:
    """Remember a judge's first verdict; True if it now decides the episode's reward."""
    verdict = Verdict(fact.judgment.outcome, fact.judgment.reward, position)
    if fact.judge.name != training:
        episode.verdicts.setdefault(fact.judge.name, verdict)
        return False
    if episode.outcome is not None:
        return False
    _go_by(episode, verdict)
    return True


def _change_judge(state: BufferState, *, before: str, after: str) -> list[Episode]:
    """Switch to another judge's verdicts; returns the episodes that it has judged, in the order of their requests.

    Does nothing if the judge stays. Episodes that the old judge left undecided stay so: their steps were dropped.
    """
    judged: list[Episode] = []
    if after == before:
        return judged
    for episode in state.episodes.values():
        if episode.outcome == "undecided":
            continue
        verdict = episode.verdicts.pop(after, None)
        if episode.outcome is not None:
            episode.verdicts[before] = Verdict(episode.outcome, episode.reward, episode.judged)
        _go_by(episode, verdict or Verdict(None, 0.0, 0))
        if verdict is not None:
            judged.append(episode)
        group = state.groups.get(episode.group)
        if group is not None:
            group.complete = False
            state.complete.pop(group.id, None)
    return judged


def _go_by(episode: Episode, verdict: Verdict) -> None:
    episode.outcome, episode.reward, episode.judged = verdict
