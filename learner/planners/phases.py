"""Phases (WebRL, AWR, DigiRL and REINFORCE): first a batch of the critic, then one of the policy on the same episodes.

    phase_episodes decided ──> steps of earlier phases scored ──> critic's batch ──> policy's batch ──> used up

A phase is due once `phase_episodes` decided online episodes wait. Both batches go `epochs` times through the phase's episodes
and what is replayed of earlier ones, in mini-batches of whole episodes whose order is drawn anew each time. The policy's version
does not change between then and the end of its batch: the policy at the phase's start scores everything. Its advantages come
from the critic just trained (`critic_version`); a KL reference is the policy at the phase's start.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from hindcast.core.rl.algorithm import options_as, traits_of
from hindcast.core.rl.algorithm_options import PhaseOptions
from hindcast.core.rl.combined_state import CRITIC
from hindcast.core.rl.values import in_window
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.events.catalogue import BatchPlanned
from hindcast.events.catalogue.curriculum import DEMONSTRATION, ONLINE
from hindcast.learner.buffer.groups import drop
from hindcast.learner.buffer.records import Episode, Sample
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.base import BatchEntry, PolicyPlanner, as_fact, cut, why_unusable

CHANGEABLE = frozenset({"discount"})
"""Options of every algorithm that learns in phases that the learner alone reads."""


class ReplayedEpisode(NamedTuple):
    """An episode of an earlier phase in a batch."""

    episode: Episode
    kept: bytes
    """Per step: 1 where it is trained on."""


def in_phases(state: BufferState) -> bool:
    """Whether the policy learns in phases now; False during the cloning that a run may begin with."""
    learner = state.settings.learner
    return traits_of(learner.algorithm).learns_in_phases and state.updates >= learner.cloning_updates


def collected(state: BufferState, learner: LearnerSettings) -> list[Episode]:
    """The episodes of the phase that is due, in the order of their verdicts; empty while there are too few."""
    usable = [episode for episode in state.episodes.values() if _is_usable(episode)]
    usable.sort(key=lambda episode: episode.judged)
    return usable[: learner.phase_episodes] if len(usable) >= learner.phase_episodes else []


def valued(state: BufferState) -> list[Episode]:
    """Episodes of the phase that the critic was trained on and the policy was not yet."""
    episodes = (state.episodes.get(name) for name in state.phase)
    return [episode for episode in episodes if episode is not None and _is_usable(episode)]


def _is_usable(episode: Episode) -> bool:
    return episode.origin == ONLINE and episode.decided and bool(episode.samples)


def replays_demonstrations(learner: LearnerSettings) -> bool:
    """Whether demonstrations are of use to phases."""
    options = options_as(learner, PhaseOptions)
    return options.phase_replay != "off" and options.phase_demonstrations


def store_demonstration(state: BufferState, episode: Episode) -> None:
    """Keep a successful demonstration as if an earlier phase had played it. Cloning keeps its own copy."""
    is_demonstration = (
        episode.origin == DEMONSTRATION and episode.decided and episode.succeeded and episode.samples
    )
    if is_demonstration and replays_demonstrations(state.settings.learner):
        store_earlier(state, episode)


def store_earlier(state: BufferState, episode: Episode) -> None:
    """Keep an episode for replay in later phases: each task's first success and, if `phase_replay` is "all", first failure."""
    options = options_as(state.settings.learner, PhaseOptions)
    if options.phase_replay == "off" or not (episode.succeeded or options.phase_replay == "all"):
        return
    state.earlier.setdefault(f"{episode.task} {episode.outcome}", replace(episode))
    while len(state.earlier) > options.phase_memory:
        del state.earlier[next(iter(state.earlier))]


def unscored(state: BufferState, learner: LearnerSettings) -> list[Sample]:
    """Steps of earlier phases that must be scored before the phase that is due can be planned."""
    if not in_phases(state) or state.batch is not None or valued(state) or not collected(state, learner):
        return []
    return [sample for sample in earlier_samples(state) if sample.position not in state.perplexities]


def earlier_samples(state: BufferState) -> Iterator[Sample]:
    """Every step that may be replayed."""
    for episode in state.earlier.values():
        yield from episode.samples


def replayed(state: BufferState, learner: LearnerSettings, *, steps: int) -> list[ReplayedEpisode]:
    """Steps to replay with `steps` steps of a phase's own: those in the window, at most `phase_replay_ratio` times as many.

    If there are more, episodes are taken in an order drawn from the run's seed. A demonstration judged after the phase's
    scores were computed has none, and waits for the next phase.
    """
    assert state.started is not None
    options = options_as(learner, PhaseOptions)
    seed, remaining = state.started.run_seed, int(options.phase_replay_ratio * steps)
    candidates = [
        episode
        for episode in state.earlier.values()
        if all(sample.position in state.perplexities for sample in episode.samples)
    ]
    order = sorted(
        candidates, key=lambda candidate: derive_seed(seed, "phase replay", state.version, candidate.id)
    )
    replays = []
    for episode in order:
        mask = bytearray()
        for sample in episode.samples:
            is_replayed = remaining > 0 and _in_window(state.perplexities[sample.position], options)
            remaining -= is_replayed
            mask.append(is_replayed)
        if any(mask):
            replays.append(ReplayedEpisode(episode, bytes(mask)))
    return replays


def _in_window(perplexity: float, options: PhaseOptions) -> bool:
    lowest, highest = options.phase_window
    return in_window(perplexity, lowest=lowest, highest=highest, lowest_is_in=not options.phase_window_open)


class PhasePlanner(PolicyPlanner):
    """Plans the policy's batch of a phase."""

    def __init__(self, name: str, *, reference: bool = False) -> None:
        """`reference`: whether the loss has a KL to the policy at the phase's start."""
        super().__init__(name)
        self._reference = reference

    def wants(self, origin: str, settings: LearnerSettings) -> bool:
        """The policy's own episodes, and demonstrations if phases replay them."""
        return origin == ONLINE or (origin == DEMONSTRATION and replays_demonstrations(settings))

    def why_swept(self, state: BufferState, episode: Episode, settings: LearnerSettings) -> str | None:
        """Failures are trained on, too, and no episode is too old. Demonstrations are stored separately at their verdict."""
        if episode.origin == DEMONSTRATION and episode.outcome in ("success", "failure"):
            return "past" if episode.succeeded else "unsuccessful"
        return why_unusable(state, episode)

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """The policy's batch of the phase that the critic has been trained on."""
        episodes, learner = valued(state), settings.learner
        if not episodes:
            return None
        return as_fact(
            state,
            _parts(state, episodes, learner, replay=True, epochs=learner.epochs),
            planner=self,
            reference_version=state.version if self._reference else None,
            critic_version=state.auxiliary_model(CRITIC).version,
        )

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """Drop the phase's episodes; later phases may replay them."""
        names = {planned.episode for planned in fact.episodes if planned.kept is None}
        for episode in sorted((state.episodes[name] for name in names), key=lambda played: played.judged):
            store_earlier(state, episode)
            drop(state, episode)
        state.phase = []


class CriticPhasePlanner:
    """Plans the critic's batch of a phase, before the policy's."""

    name = CRITIC
    model = CRITIC

    def plan(self, state: BufferState, settings: Settings) -> BatchPlanned | None:
        """The critic's batch of the phase that is due."""
        learner = settings.learner
        if not in_phases(state) or valued(state) or unscored(state, learner):
            return None
        episodes = collected(state, learner)
        if not episodes:
            return None
        parts = _parts(state, episodes, learner, replay=learner.critic_replay, epochs=learner.critic_epochs)
        return as_fact(state, parts, planner=self)

    def use_up(self, state: BufferState, fact: BatchPlanned) -> None:
        """Remember the episodes, which the policy is trained on next."""
        state.phase = list(
            dict.fromkeys(episode.episode for episode in fact.episodes if episode.kept is None)
        )


def episodes_per_batch(settings: Settings) -> int:
    """A phase and one group more, so that a group can start while one episode is missing."""
    return settings.learner.phase_episodes + settings.curriculum.group_size


def check_phases(settings: Settings) -> list[str]:
    """What is wrong in the settings for an algorithm that learns in phases, one sentence each."""
    learner, options, problems = settings.learner, options_as(settings.learner, PhaseOptions), []
    if not learner.phase_episodes:
        problems.append(
            f"learner.phase_episodes = 0 leaves learner.algorithm = {learner.algorithm!r} without a phase to train on: say "
            "how many episodes fill one"
        )
    if options.phase_window[0] > options.phase_window[1]:
        problems.append(
            f"learner.options.phase_window = {list(options.phase_window)} holds nothing: its lower bound comes first"
        )
    if learner.critic_from == "policy" and learner.lora_rank:
        problems.append(
            f"learner.critic_from = 'policy' needs a policy whose weights are trained, and learner.lora_rank = {learner.lora_rank} "
            "trains an adapter: set critic_from = 'base'"
        )
    demonstrations = settings.curriculum.demonstrations
    if options.phase_demonstrations and (options.phase_replay == "off" or not demonstrations):
        problems.append(
            "learner.options.phase_demonstrations replays demonstrations together with a phase's episodes: it needs "
            f"learner.options.phase_replay = 'successes' or 'all' (it is {options.phase_replay!r}) and curriculum.demonstrations "
            f"(they are {demonstrations})"
        )
    return problems


def _parts(
    state: BufferState, episodes: Sequence[Episode], learner: LearnerSettings, *, replay: bool, epochs: int
) -> list[list[BatchEntry]]:
    """Mini-batches of a phase's own episodes and the replayed ones, in a new order in each epoch."""
    assert state.started is not None
    seed = state.started.run_seed
    entries = [BatchEntry(one, one.group, 0.0) for one in episodes]
    if replay:
        steps = sum(len(one.samples) for one in episodes)
        entries += [
            BatchEntry(one.episode, one.episode.group, 0.0, kept=one.kept)
            for one in replayed(state, learner, steps=steps)
        ]
    parts: list[list[BatchEntry]] = []
    for epoch in range(epochs):
        order = sorted(
            entries, key=lambda one: derive_seed(seed, "phase", state.batches, epoch, one.episode.id)
        )
        parts += cut([[one] for one in order], learner.minibatches)
    return parts
