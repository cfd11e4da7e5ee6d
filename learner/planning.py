"""What to train on next: pure functions of the buffer, so that a plan can be computed again from the log alone.

Invariant 3, plan before training: a `BatchPlanned` names every sample, in order, before any number is computed from
it. Two learners, or a learner and `verify`, that folded the log to the same position plan the same batch, however the
events reached them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from core.advantages import group_advantages, is_informative
from core.arrays import pack_ids, pack_positions, unpack_ids
from core.errors import CorruptEvent
from core.ids import digest_hex
from core.seeds import derive_seed
from core.settings import LearnerSettings, Settings
from core.staleness import is_stale
from events.catalogue import BatchPlanned, SamplesSwept
from events.catalogue.training import PlannedEpisode
from learner.episodes import Episode, Group
from learner.replays import Compared, compared_as
from learner.state import BufferState

REFERENCE_VERSION = 0
"""M-GRPO's KL is taken to the policy that reinforcement learning started from."""


class Entry(NamedTuple):
    """One episode as it is planned."""

    episode: Episode
    group: str
    advantage: float
    rehearsed: bool = False
    format_term: float = 0.0
    replaces: str | None = None


def config_digest(recorded: Mapping[str, Any]) -> str:
    """Digest of the settings that shape a batch and its updates, as the log records them.

    Not of our own model of them: a setting that a later Hindcast adds must not change the digest of an earlier run.
    """
    relevant = {
        "learner": recorded.get("learner"),
        "judge": recorded.get("judge"),
        "max_attempts": recorded.get("curriculum", {}).get("max_attempts"),
    }
    return digest_hex(msgspec.json.encode(relevant, order="sorted"))


def sweep(state: BufferState, settings: Settings) -> list[SamplesSwept]:
    """Episodes that will not be trained on, by reason, each once; computed before a batch is planned.

    - `stale`: a fresh online episode with a token from more than `max_staleness` versions ago. Demonstrations and
      cloning are old by design and never stale.
    - `undecided`: the training judge could not tell.
    - `agreed`: a complete group whose members all got the same reward, with no success to replay into it; `alone`: one
      without a second decided member.
    - `unsuccessful` (cloning): there is nothing to imitate. `empty`: it ended without a step.
    - `late`: it ended after its group had been used up.

    Swept at once and not when the next batch is full, so that what became of an episode can be read at any time and a
    run whose groups mostly agree holds on to nothing.
    """
    reasons: dict[str, list[str]] = {}
    for episode in state.episodes.values():
        reason = _why_swept(state, episode, settings.learner)
        if reason is not None:
            reasons.setdefault(reason, []).append(episode.id)
    if settings.learner.algorithm == "grpo":
        swept = {name for names in reasons.values() for name in names}
        for group_id in state.complete:
            members = [m for m in _trainable(state, state.groups[group_id]) if m.id not in swept]
            if members and not _differ(compared_as(state, members, settings.learner)):
                reason = "agreed" if len(members) > 1 else "alone"
                reasons.setdefault(reason, []).extend(member.id for member in members)
    return [
        SamplesSwept(episodes=tuple(reasons[reason]), reason=reason, version=state.version)
        for reason in sorted(reasons)
    ]


def _why_swept(state: BufferState, episode: Episode, settings: LearnerSettings) -> str | None:
    if episode.swept or not episode.ended:
        return None
    if episode.group not in state.groups:
        return "late"
    if settings.algorithm == "grpo" and _is_stale(
        episode, version=state.version, max_staleness=settings.max_staleness
    ):
        return "stale"
    if episode.outcome == "undecided":
        return "undecided"
    if settings.algorithm == "cloning" and episode.outcome == "failure":
        return "unsuccessful"
    if episode.decided and not episode.samples:
        return "empty"
    return None


def _is_stale(episode: Episode, *, version: int, max_staleness: int) -> bool:
    """Whether any token of a fresh online episode is too old; demonstrations are old by design."""
    if episode.origin != "online" or episode.oldest_version is None:
        return False
    return is_stale(version=version, sampled=episode.oldest_version, eta=max_staleness)


def plan(state: BufferState, settings: Settings) -> BatchPlanned | None:
    """The next batch, or None while there is not enough for one.

    Raises nothing and changes nothing; equal states give equal plans.
    """
    if state.batch is not None or state.started is None:
        return None
    if settings.learner.algorithm == "grpo":
        return _plan_groups(state, settings)
    return _plan_cloning(state, settings)


def _differ(compared: Sequence[Compared]) -> bool:
    return is_informative([one.reward for one in compared])


def _trainable(state: BufferState, group: Group) -> list[Episode]:
    """The members that can be trained on, by index."""
    members = (state.episodes[group.members[index]] for index in sorted(group.members))
    return [member for member in members if member.decided and member.samples]


def _plan_groups(state: BufferState, settings: Settings) -> BatchPlanned | None:
    chosen: list[list[Compared]] = []
    consumed: list[str] = []
    for group_id in state.complete:
        group = state.groups[group_id]
        members = _trainable(state, group)
        compared = compared_as(state, members, settings.learner)
        if _differ(compared):
            chosen.append(compared)
            consumed += [one.replaces for one in compared if one.replaces is not None]
        else:
            consumed += [member.id for member in members]
        consumed += [
            name for _, name in sorted(group.members.items()) if _leaves_nothing(state.episodes[name])
        ]
        if len(chosen) == settings.learner.group_batch:
            break
    else:
        return None
    units = [_entries(compared) for compared in chosen]
    parts = _cut(units, settings.learner.minibatches) * settings.learner.epochs
    each = settings.learner.rehearsal_episodes
    rehearsed = rehearsal(state, each * len(parts))
    return _as_fact(
        state,
        settings,
        [[*part, *rehearsed[index :: len(parts)]] for index, part in enumerate(parts)],
        consumed=consumed,
        reference_version=REFERENCE_VERSION if settings.learner.kl_coefficient > 0 else None,
        proximal_version=state.version,
    )


def _entries(compared: Sequence[Compared]) -> list[Entry]:
    """A group with the advantages of its members, those that a replay replaced left out."""
    group = next(one.episode.group for one in compared if one.replaces is None)
    advantages = group_advantages([one.reward for one in compared])
    return [
        Entry(one.episode, group, advantage, format_term=one.format_term, replaces=one.replaces)
        for one, advantage in zip(compared, advantages, strict=True)
    ]


def _leaves_nothing(episode: Episode) -> bool:
    """Ended, but undecided or without a step."""
    return episode.ended and not episode.swept and not (episode.decided and episode.samples)


def rehearsal(state: BufferState, count: int) -> list[Entry]:
    """Up to `count` remembered successes: families in turn, their order and the episode of each drawn from the run's seed."""
    assert state.started is not None
    seed = state.started.run_seed
    drawn = [
        (place, derive_seed(seed, "rehearsal", state.batches, place, family), episode)
        for family, latest in state.successes.items()
        for place, episode in enumerate(
            sorted(latest, key=lambda one: derive_seed(seed, "rehearsal", state.batches, one.id))
        )
    ]
    drawn.sort(key=lambda one: one[:2])
    return [Entry(episode, episode.group, 0.0, rehearsed=True) for _, _, episode in drawn[:count]]


def _cut(units: Sequence[Sequence[Entry]], count: int) -> list[list[Entry]]:
    """Mini-batches: whole groups where there are enough, else whole episodes. None is empty."""
    if len(units) < count:
        units = [[entry] for unit in units for entry in unit]
    parts = [
        [entry for unit in units[i * len(units) // count : (i + 1) * len(units) // count] for entry in unit]
        for i in range(count)
    ]
    return [part for part in parts if part]


def _plan_cloning(state: BufferState, settings: Settings) -> BatchPlanned | None:
    """Successful steps, whole episodes: those used least first, among them in an order drawn from the run's seed.

    Every episode is thus used once before any is used twice; each is used at most `cloning_epochs` times.
    """
    assert state.started is not None
    seed = state.started.run_seed
    pool = [
        episode
        for episode in state.episodes.values()
        if episode.decided and episode.succeeded and episode.samples
    ]
    pool.sort(key=lambda episode: (episode.uses, derive_seed(seed, "cloning", episode.uses, episode.id)))
    planned: list[list[Entry]] = []
    samples = 0
    for episode in pool:
        planned.append([Entry(episode, episode.group, 1.0)])
        samples += len(episode.samples)
        if samples >= settings.learner.cloning_batch:
            return _as_fact(
                state,
                settings,
                _cut(planned, settings.learner.minibatches),
                consumed=[],
                reference_version=None,
                proximal_version=None,
            )
    return None


def _as_fact(
    state: BufferState,
    settings: Settings,
    parts: Sequence[Sequence[Entry]],
    *,
    consumed: Sequence[str],
    reference_version: int | None,
    proximal_version: int | None,
) -> BatchPlanned:
    assert state.started is not None
    entries = [entry for part in parts for entry in part]
    samples = [sample for entry in entries for sample in entry.episode.samples]
    return BatchPlanned(
        batch=state.batches,
        algorithm=settings.learner.algorithm,
        as_of=state.position,
        log_digest=state.digest.value,
        positions=pack_positions([sample.position for sample in samples]),
        sample_digests=b"".join(sample.digest for sample in samples),
        minibatches=pack_ids([sum(len(entry.episode.samples) for entry in part) for part in parts]),
        episodes=tuple(
            PlannedEpisode(
                episode=entry.episode.id,
                group=entry.group,
                reward=entry.episode.reward,
                advantage=entry.advantage,
                samples=len(entry.episode.samples),
                rehearsed=entry.rehearsed,
                format_term=entry.format_term,
                replaces=entry.replaces,
            )
            for entry in entries
        ),
        consumed=tuple(consumed),
        seed=derive_seed(state.started.run_seed, "batch", state.batches),
        version=state.version,
        reference_version=reference_version,
        proximal_version=proximal_version,
        critic_version=None,
        config_digest=config_digest(state.resolved),
    )


class Minibatch(msgspec.Struct, frozen=True):
    """One mini-batch's part of a plan, as half-open ranges of its episodes and samples."""

    first_episode: int
    end_episode: int
    first_sample: int
    end_sample: int


def minibatches_of(fact: BatchPlanned) -> list[Minibatch]:
    """How a plan's episodes and samples fall to its mini-batches, in order.

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
