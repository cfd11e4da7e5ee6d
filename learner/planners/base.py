"""Interface of planners: which episodes make a model's next batch and, for the policy, which are wanted and which swept.

Pure functions of the buffer's state, so that a plan can be computed again from the log alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from hindcast.core.domain.arrays import pack_ids, pack_positions
from hindcast.core.ids import digest_hex
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.rl.staleness import is_stale
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.learner.buffer.records import Episode, Group
from hindcast.learner.buffer.state import BufferState


class Planner(Protocol):
    """Makes the batches of one model from the buffer."""

    name: str
    """`batch.planned.algorithm` of its batches."""
    model: str
    """The model that they train."""

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """The next batch, or None while there is not enough for one."""

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """Drop what a batch of this planner has used up; part of the buffer's fold."""


class PolicyPlanner(ABC):
    """A planner of the policy's batches, which also decides what the buffer keeps for them."""

    model = POLICY

    def __init__(self, name: str) -> None:
        """`name`: the algorithm's."""
        self.name = name

    @abstractmethod
    def wants(self, origin: str, settings: LearnerSettings) -> bool:
        """Whether episodes of this origin may be trained on."""

    def why_swept(self, state: BufferState, episode: Episode, settings: LearnerSettings) -> str | None:
        """Why an ended episode of an unfinished group will never be trained on; None: it may be."""
        return why_unusable(state, episode)

    def groups_swept(
        self, state: BufferState, swept: set[str], settings: LearnerSettings
    ) -> dict[str, list[str]]:
        """Episodes of complete groups to sweep, by reason; `swept` are swept already."""
        return {}

    @abstractmethod
    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """See `Planner`."""

    @abstractmethod
    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """See `Planner`."""

    def missing(self, state: BufferState, settings: Settings) -> str:
        """What no later episode can provide, in words; empty: there may still be a batch."""
        return ""


class BatchEntry(NamedTuple):
    """One episode as it is planned."""

    episode: Episode
    group: str
    advantage: float
    rehearsed: bool = False
    format_term: float = 0.0
    replaces: str | None = None
    kept: bytes | None = None
    relabel: int | None = None
    step_weights: tuple[float, ...] | None = None
    length_term: float = 0.0
    step_advantages: tuple[float, ...] | None = None


def in_turn(state: BufferState, episodes: Sequence[Episode], *, count: int, model: str) -> list[Episode]:
    """`count` episodes, least used first, ties in an order drawn from the run's seed; repeated if there are fewer."""
    assert state.started is not None
    seed, batch = state.started.run_seed, state.batches
    ordered = sorted(
        episodes, key=lambda episode: (episode.uses, derive_seed(seed, model, batch, episode.id))
    )
    return [ordered[index % len(ordered)] for index in range(count)]


def clones_before(state: BufferState, settings: LearnerSettings) -> bool:
    """Whether the run is still in its first cloning updates (`learner.cloning_updates`)."""
    return state.updates < settings.cloning_updates


def why_unusable(state: BufferState, episode: Episode) -> str | None:
    """Why no algorithm can use an ended episode; None: one may."""
    if episode.outcome == "undecided":
        return "undecided"
    if episode.decided and not episode.samples:
        return "empty"
    return None


def too_old(state: BufferState, episode: Episode, settings: LearnerSettings) -> bool:
    """Whether any token of a fresh online episode is too old; demonstrations are old by design."""
    if episode.origin != ONLINE or episode.oldest_version is None:
        return False
    return is_stale(version=state.version, sampled=episode.oldest_version, eta=settings.max_staleness)


def trainable(state: BufferState, group: Group) -> list[Episode]:
    """Members of a group that can be trained on, in order."""
    members = (state.episodes[group.members[index]] for index in sorted(group.members))
    return [member for member in members if member.decided and member.samples]


def cut(units: Sequence[Sequence[BatchEntry]], count: int) -> list[list[BatchEntry]]:
    """Mini-batches of whole units (groups, pairs) if there are enough, else of whole episodes; none is empty."""
    if len(units) < count:
        units = [[entry] for unit in units for entry in unit]
    parts = [
        [entry for unit in units[i * len(units) // count : (i + 1) * len(units) // count] for entry in unit]
        for i in range(count)
    ]
    return [part for part in parts if part]


def as_fact(
    state: BufferState,
    parts: Sequence[Sequence[BatchEntry]],
    *,
    planner: Planner,
    consumed: Sequence[str] = (),
    reference_version: int | None = None,
    proximal_version: int | None = None,
    critic_version: int | None = None,
) -> BatchPlanned:
    """The plan of mini-batches, each of episodes with all of their samples."""
    assert state.started is not None
    entries = [entry for part in parts for entry in part]
    samples = [sample for entry in entries for sample in entry.episode.samples]
    return BatchPlanned(
        batch=state.batches,
        model=planner.model,
        algorithm=planner.name,
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
                kept=entry.kept,
                relabel=entry.relabel,
                step_weights=entry.step_weights,
                length_term=entry.length_term,
                step_advantages=entry.step_advantages,
            )
            for entry in entries
        ),
        consumed=tuple(consumed),
        seed=derive_seed(state.started.run_seed, "batch", state.batches),
        version=state.version,
        reference_version=reference_version,
        proximal_version=proximal_version,
        critic_version=critic_version,
        config_digest=config_digest(state.resolved),
    )


def config_digest(recorded: Mapping[str, Any]) -> str:
    """Digest of the settings that shape a batch and its updates, as the log records them.

    It covers the recorded values, not our model of them: a setting added later must not change the digest of an older run.
    """
    relevant = {
        "learner": recorded.get("learner"),
        "judge": recorded.get("judge"),
        "max_attempts": recorded.get("curriculum", {}).get("max_attempts"),
    }
    return digest_hex(msgspec.json.encode(relevant, order="sorted"))
