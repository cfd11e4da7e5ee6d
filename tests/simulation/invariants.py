"""What must hold of every simulated run, by the names of docs/architecture.md. Each check counts for itself, from the
facts alone: none asks the projections that the roles decide by."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

from hindcast.core.domain.arrays import unpack_floats, unpack_ids, unpack_positions
from hindcast.core.rl.algorithm import options_as
from hindcast.core.rl.algorithm_options import GroupOptions, PhaseOptions
from hindcast.core.rl.combined_state import CRITIC, POLICY
from hindcast.events.catalogue import (
    BatchPlanned,
    BlobReleased,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    ReplayScored,
    SamplesSwept,
    StepTaken,
    UpdateApplied,
    UpdateSkipped,
    WeightsAdopted,
    WeightsPublished,
)
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.events.envelope import Fact
from hindcast.events.log.projection import fold
from simulation.schedules import Outcome, Tally, updates_of
from simulation.stand_ins import BASE_WEIGHTS, logprob_under

F = TypeVar("F", bound=Fact)


class Broken(AssertionError):
    """An invariant does not hold."""


def require(holds: object, name: str, what: object) -> None:
    if not holds:
        raise Broken(f"{name}: {what}")


def facts(outcome: Outcome, kind: type[F]) -> list[F]:
    return [recorded.fact for recorded in outcome.history if isinstance(recorded.fact, kind)]


def log_is_the_truth(outcome: Outcome) -> None:
    """A view that was killed and doubled is the fold of the log up to its position; nothing is stored twice."""
    name = "log is the truth"
    folded = fold(Tally(), outcome.history[: outcome.view.reached])
    require(outcome.view.state == folded, name, "the view is not the fold of the log up to its position")
    ids = Counter(recorded.envelope.id for recorded in outcome.history)
    require(set(ids.values()) == {1}, name, "an event is stored twice")


def every_episode_ends_once(outcome: Outcome) -> None:
    name = "every episode ends once"
    requested = Counter(fact.episode for fact in facts(outcome, EpisodeRequested))
    ends: list[EpisodeEnded | EpisodeAbandoned | EpisodeCancelled] = [
        *facts(outcome, EpisodeEnded),
        *facts(outcome, EpisodeAbandoned),
        *facts(outcome, EpisodeCancelled),
    ]
    terminal = Counter(fact.episode for fact in ends)
    started = Counter(fact.episode for fact in facts(outcome, EpisodeStarted))
    require(set(requested.values()) <= {1}, name, "an episode was requested twice")
    require(terminal == requested, name, f"{(terminal - requested) or (requested - terminal)}")
    require(started <= requested, name, "an episode was started twice")


def an_end_stands_behind_all_of_its_steps(outcome: Outcome) -> None:
    name = "every episode ends once"
    owners: dict[str, str] = {}
    steps: dict[str, list[int]] = defaultdict(list)
    for recorded in outcome.history:
        fact, who = recorded.fact, recorded.envelope.incarnation
        if isinstance(fact, EpisodeStarted):
            owners[fact.episode] = who
        elif isinstance(fact, StepTaken):
            require(owners.get(fact.episode) == who, name, f"{fact.episode}: a step by who did not start it")
            steps[fact.episode].append(fact.index)
        elif isinstance(fact, EpisodeEnded):
            require(
                owners.get(fact.episode) == who, name, f"{fact.episode} was ended by who did not start it"
            )
            require(steps[fact.episode] == list(range(fact.steps)), name, f"{fact.episode} lacks steps")


def plan_before_training(outcome: Outcome) -> None:
    """Updates follow the plan of their batch, in order, each from the state that the one before left its model in."""
    name = "plan before training"
    batches = 0
    due: list[int] = []
    model = POLICY
    states: dict[str, str] = {}
    for recorded in outcome.history:
        fact = recorded.fact
        if isinstance(fact, BatchPlanned):
            require(fact.batch == batches and not due, name, f"batch {fact.batch} was planned out of turn")
            require(fact.as_of < recorded.position, name, "a plan of the future")
            batches += 1
            model, due = fact.model, list(range(len(unpack_ids(fact.minibatches))))
        elif isinstance(fact, UpdateApplied | UpdateSkipped):
            require(fact.batch == batches - 1, name, f"update {fact.update} of a batch not planned last")
            require(fact.model == model, name, f"update {fact.update} of another model than its batch's")
            require(due and due.pop(0) == fact.minibatch, name, f"mini-batch {fact.minibatch} out of turn")
            before = fact.before if isinstance(fact, UpdateApplied) else fact.state
            known = states.get(model, before)
            require(known == before, name, f"update {fact.update} does not follow the one before")
            states[model] = fact.after if isinstance(fact, UpdateApplied) else before
        elif isinstance(fact, WeightsPublished):
            require(not due, name, f"version {fact.version} was published in the middle of a batch")


def what_was_sampled_is_what_is_trained(outcome: Outcome) -> None:
    """Plans name recorded steps of ended, decided episodes; each episode is trained, consumed or swept once at most.

    Apart from rehearsal and replay, which take what was trained, consumed or swept before.
    """
    name = "what was sampled is what is trained"
    learner = outcome.settings.learner
    cloning = learner.algorithm == "cloning"
    epochs = {POLICY: 1 if cloning else learner.epochs, CRITIC: learner.critic_epochs}
    uses: Counter[tuple[str, str]] = Counter()
    swept: Counter[str] = Counter()
    rewards: dict[str, float] = {}
    for recorded in outcome.history:
        fact = recorded.fact
        if isinstance(fact, EpisodeJudged) and fact.judgment.outcome != "undecided":
            rewards[fact.episode] = fact.judgment.reward
        elif isinstance(fact, SamplesSwept):
            swept.update(fact.episodes)
        elif isinstance(fact, BatchPlanned):
            used = {episode for model, episode in uses if model == POLICY}
            again = {planned.episode for planned in fact.episodes if _is_used_up(planned)}
            shown = (
                _shown(outcome, rewards) if options_as(learner, PhaseOptions).phase_demonstrations else set()
            )
            require(again <= used | swept.keys() | shown, name, "rehearsed or replayed before it was used up")
            swept.update(fact.consumed)
            own = Counter(planned.episode for planned in fact.episodes if not _is_used_up(planned))
            times = epochs[fact.model]
            require(
                set(own.values()) == {times}, name, f"batch {fact.batch} is not gone through {times} times"
            )
            uses.update((fact.model, episode) for episode in own)
            named = [each.episode for each in fact.episodes for _ in range(each.samples)]
            digests = fact.sample_digests
            for index, position in enumerate(unpack_positions(fact.positions).tolist()):
                step = outcome.history[position - 1]
                require(isinstance(step.fact, StepTaken), name, f"position {position} is no step")
                assert isinstance(step.fact, StepTaken)
                require(step.fact.episode == named[index], name, "a step of another episode")
                require(step.digest[:8] == digests[8 * index : 8 * index + 8], name, "other bytes")
            for planned in fact.episodes:
                known = rewards.get(planned.episode)
                require(known == planned.reward, name, f"{planned.episode} has reward {known} at its plan")
    most = learner.cloning_epochs if cloning else 1
    require(max(uses.values(), default=0) <= most, name, "an episode was trained too often")
    require(max(swept.values(), default=0) <= 1, name, "an episode was given up twice")
    trained = {episode for _, episode in uses}
    require(cloning or not trained & swept.keys(), name, "an episode was trained and given up")


def _is_used_up(planned: PlannedEpisode) -> bool:
    return planned.rehearsed or planned.kept is not None


def _shown(outcome: Outcome, rewards: Mapping[str, float]) -> set[str]:
    """Demonstrations that succeeded."""
    return {
        fact.episode
        for fact in facts(outcome, EpisodeRequested)
        if fact.origin == "demonstration" and rewards.get(fact.episode, 0.0) > 0
    }


def replayed_is_what_was_scored(outcome: Outcome) -> None:
    """A step that is trained on again was scored under the policy of now, and lies in the window."""
    name = "what was sampled is what is trained"
    lowest, highest = options_as(outcome.settings.learner, PhaseOptions).phase_window
    scores: dict[int, float] = {}
    for recorded in outcome.history:
        fact = recorded.fact
        if isinstance(fact, ReplayScored):
            positions = unpack_positions(fact.positions).tolist()
            scores |= zip(positions, unpack_floats(fact.perplexities).tolist(), strict=True)
        elif isinstance(fact, WeightsPublished) and fact.model == POLICY:
            scores = {}
        elif isinstance(fact, BatchPlanned):
            positions = iter(unpack_positions(fact.positions).tolist())
            for planned in fact.episodes:
                own = [next(positions) for _ in range(planned.samples)]
                for position, kept in zip(own, planned.kept or bytes(len(own)), strict=True):
                    sure = 1 / scores.get(position, float("inf")) if kept else lowest
                    require(lowest <= sure <= highest, name, f"{planned.episode}, {position}: {sure}")


def verdicts_are_facts_about_a_judge(outcome: Outcome) -> None:
    """One per end and judge, and the right one: an outage is undecided, never a failure."""
    name = "verdicts are facts about a judge"
    ends = {fact.episode: fact.evidence.probes for fact in facts(outcome, EpisodeEnded)}
    verdicts = facts(outcome, EpisodeJudged)
    times = Counter(fact.episode for fact in verdicts)
    require(
        times == Counter(ends.keys()), name, f"{times - Counter(ends.keys())} {Counter(ends.keys()) - times}"
    )
    for fact in verdicts:
        probes = ends[fact.episode]
        true = "success" if probes["good"] else "failure"
        allowed = ("undecided",) if probes["trouble"] else (true, "undecided")
        require(fact.judgment.outcome in allowed, name, f"{fact.judgment.outcome} where it is {allowed}")


def adopted_is_not_published(outcome: Outcome) -> None:
    """Every token bears the version of the weights that gave its log-probability, adopted before by that actor."""
    name = "adopted is not published"
    said = {0: logprob_under(BASE_WEIGHTS)}
    versions: dict[str, set[int]] = defaultdict(set)
    published = {0}
    weights = {(fact.model, fact.version): fact.weights for fact in facts(outcome, WeightsPublished)}
    released = {fact.blob.sha256 for fact in facts(outcome, BlobReleased)}
    states = {0: ""}
    for recorded in outcome.history:
        fact = recorded.fact
        if isinstance(fact, UpdateApplied) and fact.model == POLICY:
            states[fact.update] = fact.after
        elif isinstance(fact, WeightsPublished) and fact.model == POLICY and fact.version > 0:
            published.add(fact.version)
            if states.get(fact.update):
                said[fact.version] = logprob_under(f"weights {states[fact.update]}".encode())
        elif isinstance(fact, WeightsAdopted):
            require(fact.version in published, name, f"version {fact.version} was adopted before it existed")
            versions[recorded.envelope.incarnation].add(fact.version)
        elif isinstance(fact, StepTaken) and recorded.envelope.policy_version != -1:
            stamped = unpack_ids(fact.versions).tolist()
            require(set(stamped) <= published, name, f"sampled from versions {set(stamped)}")
            for version, logprob in zip(stamped, unpack_floats(fact.logprobs).tolist(), strict=True):
                true = said.get(version)
                require(true in (None, logprob), name, f"a token of other weights than version {version}")
    for (model, version), ref in weights.items():
        there = ref.sha256 in released or outcome.site.blobs.has(ref)
        require(there, name, f"the weights of version {version} of {model} are neither there nor released")


def counters_are_projections(outcome: Outcome) -> None:
    """No step trained is older than eta; no more episodes are under way than eta and `max_running` allow."""
    name = "counters are projections"
    learner, limits = outcome.settings.learner, outcome.settings.curriculum
    compares, eta = learner.algorithm == "grpo", learner.max_staleness
    most = (eta + 1) * options_as(learner, GroupOptions).group_batch * limits.group_size
    admission = Admission(eta=eta)
    for recorded in outcome.history:
        fact = recorded.fact
        if isinstance(fact, BatchPlanned):
            require(fact.version == admission.version, name, f"a plan for version {fact.version}")
            ages = {e.episode: admission.age(e.episode) for e in fact.episodes if not _is_used_up(e)}
            require(not compares or max(ages.values()) <= eta, name, f"ages {ages}, eta is {eta}")
        admission.take(fact)
        if isinstance(fact, EpisodeRequested):
            running, under_way = len(admission.running), admission.under_way()
            require(running <= limits.max_running, name, f"{running} episodes run")
            require(not compares or under_way <= most, name, f"{under_way} are under way, {most} may be")
        if isinstance(fact, WeightsPublished) and fact.model == POLICY:
            require(fact.version in (0, admission.version), name, f"version {fact.version}")


class Admission:
    """How many online episodes take up room, counted from the facts: what runs, waits for a verdict, or can be trained."""

    def __init__(self, *, eta: int) -> None:
        self.version = 0
        self.running: set[str] = set()
        self._eta = eta
        self._online: dict[str, str] = {}
        self._unjudged: set[str] = set()
        self._rewards: dict[str, dict[str, float]] = defaultdict(dict)
        self._oldest: dict[str, int] = {}

    def age(self, episode: str) -> int:
        return self.version - self._oldest.get(episode, self.version)

    def under_way(self) -> int:
        hopeful = 0
        for rewards in self._rewards.values():
            fresh = [reward for episode, reward in rewards.items() if self.age(episode) <= self._eta]
            hopeful += len(fresh) if len(set(fresh)) > 1 else 0
        return len((self.running | self._unjudged) & self._online.keys()) + hopeful

    def take(self, fact: Fact) -> None:
        match fact:
            case EpisodeRequested():
                self.running.add(fact.episode)
                if fact.origin == "online":
                    self._online[fact.episode] = fact.group
            case StepTaken():
                stamped = [each for each in unpack_ids(fact.versions).tolist() if each >= 0]
                if stamped:
                    self._oldest[fact.episode] = min(*stamped, self._oldest.get(fact.episode, stamped[0]))
            case EpisodeEnded():
                self.running.discard(fact.episode)
                if fact.episode in self._online and self.age(fact.episode) <= self._eta:
                    self._unjudged.add(fact.episode)
            case EpisodeAbandoned() | EpisodeCancelled():
                self.running.discard(fact.episode)
            case EpisodeJudged():
                if fact.episode in self._unjudged and fact.judgment.outcome != "undecided":
                    self._rewards[self._online[fact.episode]][fact.episode] = fact.judgment.reward
                self._unjudged.discard(fact.episode)
            case SamplesSwept():
                self._let_go(fact.episodes)
            case BatchPlanned():
                self._let_go([*(each.episode for each in fact.episodes), *fact.consumed])
                for each in fact.episodes:
                    self._rewards.pop(each.group, None)
            case WeightsPublished(model=model) if model == POLICY:
                self.version = fact.version
                self._unjudged = {each for each in self._unjudged if self.age(each) <= self._eta}
            case _:
                pass

    def _let_go(self, episodes: Iterable[str]) -> None:
        for episode in episodes:
            self._unjudged.discard(episode)
            self._rewards[self._online.get(episode, "none")].pop(episode, None)


def one_writer_per_chain(outcome: Outcome) -> None:
    name = "one writer per chain"
    batches = [fact.batch for fact in facts(outcome, BatchPlanned)]
    chains: dict[str, list[int]] = defaultdict(list)
    for fact in facts(outcome, WeightsPublished):
        chains[f"version of {fact.model}"].append(fact.version)
    for update in facts(outcome, UpdateApplied):
        chains[f"update of {update.model}"].append(update.update)
    for chain, numbers in [("batch", batches), *chains.items()]:
        expected = list(range(numbers[0], numbers[0] + len(numbers))) if numbers else []
        require(numbers == expected, name, f"{chain}: {numbers}")


def no_effects_in_replay(outcome: Outcome) -> None:
    """And replay comes out the same."""
    name = "no effects in replay"
    report = outcome.verified
    assert report is not None
    require(report.identical, name, f"verify: {report.first_divergence}")
    require(outcome.events_after_replay == outcome.events_before_replay, name, "verify appended")
    require(outcome.blobs_after_replay == outcome.blobs_before_replay, name, "verify wrote a blob")


def every_wait_has_a_bound(outcome: Outcome) -> None:
    """The run came to its end, and every process with it; what nobody awaited did not fail in silence."""
    name = "every wait has a bound"
    updates = updates_of(outcome.history)
    require(not outcome.complaints, name, outcome.complaints[:1])
    require(updates >= outcome.updates, name, f"{updates} of {outcome.updates} updates")


def one_sequence_outlives_the_broker(outcome: Outcome) -> None:
    """Archive and stream are one log, to the byte; it is without defects; a fork of it goes on and verifies."""
    found, name = outcome.continued, "one sequence outlives the broker"
    if found is None:
        return
    live = [
        (stored.position, stored.subject, stored.id, stored.data) for stored in outcome.site.broker.events
    ]
    kept = [(stored.position, stored.subject, stored.id, stored.data) for stored in found.archived]
    require(kept == live, name, f"the archive holds {len(kept)} events, {len(live)} were recorded")
    require(not found.archive_defects, name, found.archive_defects)
    require(not found.audited.defects, name, found.audited.defects)
    require(not found.fork_audited.defects, name, f"fork at {found.forked_at}: {found.fork_audited.defects}")
    report = found.fork_verified
    require(report.identical, name, f"fork at {found.forked_at}: {report.first_divergence}")
    require(found.fork_updates >= 1, name, "the fork did not go on")


def pages_that_are_wanted_stay(outcome: Outcome) -> None:
    """Counted from the facts: of what is kept nothing is gone, and the archive has what the run let go of."""
    name = "pages"
    if outcome.continued is None:
        return
    keep = outcome.settings.storage.keep_page_episodes
    shown: set[str] = set()
    over: list[str] = []
    for recorded in outcome.history:
        if isinstance(recorded.fact, StepTaken):
            shown.add(recorded.fact.episode)
        elif isinstance(recorded.fact, EpisodeEnded | EpisodeAbandoned | EpisodeCancelled):
            over += [recorded.fact.episode] if recorded.fact.episode in shown else []
    kept = set(over[-keep:])
    for recorded in outcome.history:
        fact = recorded.fact
        page = None
        if isinstance(fact, StepTaken):
            page = fact.observation
        elif isinstance(fact, EpisodeEnded):
            page = fact.final_observation
        if page is not None:
            there = outcome.site.blobs.has(page)
            assert isinstance(fact, StepTaken | EpisodeEnded)
            require(there or fact.episode not in kept, name, f"{fact.episode} lost the page it showed")
            require(page.sha256 in outcome.continued.copied, name, "a page is not in the archive")


INVARIANTS = (
    log_is_the_truth,
    every_episode_ends_once,
    an_end_stands_behind_all_of_its_steps,
    plan_before_training,
    what_was_sampled_is_what_is_trained,
    replayed_is_what_was_scored,
    verdicts_are_facts_about_a_judge,
    adopted_is_not_published,
    counters_are_projections,
    one_writer_per_chain,
    no_effects_in_replay,
    every_wait_has_a_bound,
    one_sequence_outlives_the_broker,
    pages_that_are_wanted_stay,
)


def check(outcome: Outcome) -> None:
    """All of them.

    Raises:
        Broken: naming the invariant.

    """
    for invariant in INVARIANTS:
        invariant(outcome)
