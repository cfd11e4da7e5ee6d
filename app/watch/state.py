"""Folds the newest part of a run's log into a view. Pure: time comes from the events and from the caller."""

from collections import defaultdict, deque
from typing import Any

import msgspec

from hindcast.app.evaluation.evaluation_lines import TemperatureSuccess, by_temperature
from hindcast.app.system.progress import VersionTally
from hindcast.app.watch.view import ActorView, EpisodeView, LearnerView, RateView, RunView, bottleneck
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.rl.statistics import wilson
from hindcast.events.catalogue import (
    BatchPlanned,
    CheckpointSaved,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    EvaluationFinished,
    EventDeadLettered,
    MismatchExceeded,
    RunResumed,
    RunStarted,
    SamplesSwept,
    StepTaken,
    UpdateApplied,
    UpdateSkipped,
    WaitExceeded,
    WeightsAdopted,
    WeightsPublished,
)
from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.events.envelope import Recorded

Span = tuple[int, int]
WINDOW_S = 120.0
"""Window over which shares and rates are computed."""
LAST_VERDICTS = 100
VERSIONS = 5
"""Number of policy versions whose success is shown."""
NOTICES = 3
SECOND_NS = 1_000_000_000


class Spans(msgspec.Struct):
    """Past spans, newest last; times in ns."""

    over: deque[Span] = msgspec.field(default_factory=deque)

    def add(self, began_ns: int, ended_ns: int, *, keep_ns: int) -> None:
        """Add a span; drop those that ended more than `keep_ns` before it."""
        self.over.append((began_ns, max(began_ns, ended_ns)))
        while self.over and self.over[0][1] < ended_ns - keep_ns:
            self.over.popleft()

    def within(self, window: Span, *, under_way: list[int]) -> list[Span]:
        """The parts inside a window; `under_way`: begin times of spans that have not ended."""
        first, last = window
        spans = [*self.over, *((began, last) for began in under_way)]
        clipped = ((max(first, began), min(last, ended)) for began, ended in spans)
        return [(began, ended) for began, ended in clipped if ended > began]


def total_ns(spans: list[Span]) -> int:
    """Total length, overlaps counted repeatedly."""
    return sum(ended - began for began, ended in spans)


def covered_ns(spans: list[Span]) -> int:
    """Length of their union."""
    covered, reached = 0, 0
    for began, ended in sorted(spans):
        covered += max(0, ended - max(began, reached))
        reached = max(reached, ended)
    return covered


class RunningEpisode(msgspec.Struct):
    """A running episode."""

    actor: str
    family: str
    began_ns: int
    steps: int = 0


class Actor(msgspec.Struct):
    """One actor."""

    version: int | None = None
    heard_ns: int = 0
    episodes: Spans = msgspec.field(default_factory=Spans)
    ended_ns: int = 0
    """When its last episode ended."""


class WatchFold:
    """The fold. `apply` takes every event in order; `view` returns the current figures."""

    def __init__(self, *, judge: str, group_size: int, window_s: float = WINDOW_S) -> None:
        """`judge`: the judge whose verdicts count."""
        self._judge = judge
        self._group_size = group_size
        self._window_ns = int(window_s * SECOND_NS)
        self._run = ""
        self._position = 0
        self._newest_ns = 0
        self._began_ns = 0
        self._actors: dict[str, Actor] = {}
        self._requested: dict[str, tuple[str, str]] = {}
        self._running: dict[str, RunningEpisode] = {}
        self._unjudged: dict[str, tuple[int, int]] = {}
        self._online: set[str] = set()
        self._by_version: dict[int, VersionTally] = defaultdict(VersionTally)
        self._verdicts: deque[bool] = deque(maxlen=LAST_VERDICTS)
        self._ended: deque[int] = deque()
        self._steps: deque[tuple[int, float, float, float]] = deque()
        self._swept: deque[tuple[int, str, int]] = deque()
        self._trained: deque[tuple[int, int]] = deque()
        self._updates: deque[int] = deque()
        self._update: UpdateApplied | None = None
        self._update_ns: int | None = None
        self._beside: dict[str, int] = {}
        """Updates of the auxiliary models."""
        self._published: int | None = None
        self._planned_ns: int | None = None
        self._minibatches = 0
        self._learning = Spans()
        self._notices: deque[str] = deque(maxlen=NOTICES)
        self._evaluated: tuple[TemperatureSuccess, ...] = ()
        self._first_evaluation: EvaluationFinished | None = None

    def apply(self, recorded: Recorded) -> None:
        """Take in one event."""
        envelope = recorded.envelope
        at_ns = envelope.occurred_ns
        self._run, self._position = envelope.run, recorded.position
        self._newest_ns = max(self._newest_ns, at_ns)
        if envelope.producer.startswith("actor"):
            self._actors.setdefault(envelope.producer, Actor()).heard_ns = at_ns
        match recorded.fact:
            case RunStarted() | RunResumed():
                self._restarted(at_ns)
            case WaitExceeded() as fact:
                self._notices.append(
                    f"{envelope.producer} waited longer than {fact.setting} = {fact.limit_s:g} s for {fact.waited_for}"
                )
            case MismatchExceeded() as fact:
                self._notices.append(
                    f"sampler and learner disagree about policy {fact.version}: KL {fact.mismatch_kl:.2e} a token, above "
                    f"learner.mismatch_alarm = {fact.limit:g}"
                )
            case EvaluationFinished() as fact:
                if fact.number == 0:
                    self._first_evaluation = fact
                self._evaluated = by_temperature(fact, first=self._first_evaluation)
            case EventDeadLettered() as fact:
                self._notices.append(f"{fact.consumer} set position {fact.position} aside: {fact.error}")
            case _:
                self._apply_episode(recorded, at_ns)
                self._apply_learner(recorded, at_ns)

    def _restarted(self, at_ns: int) -> None:
        """Mark everything that was running before as over."""
        self._began_ns = at_ns
        self._planned_ns = None
        self._actors.clear()
        self._running.clear()

    def _apply_episode(self, recorded: Recorded, at_ns: int) -> None:
        match recorded.fact:
            case EpisodeRequested() as fact:
                self._requested[fact.episode] = (fact.task.full_family, fact.origin)
                if fact.origin == ONLINE:
                    self._online.add(fact.episode)
            case EpisodeStarted() as fact:
                family, _ = self._requested.pop(fact.episode, ("?", ""))
                self._running[fact.episode] = RunningEpisode(actor=fact.actor, family=family, began_ns=at_ns)
            case StepTaken() as fact:
                if fact.episode in self._running:
                    self._running[fact.episode].steps = fact.index + 1
                self._steps.append((at_ns, fact.observe_ms, fact.generate_ms, fact.act_ms))
                self._trim(self._steps)
            case EpisodeEnded() as fact:
                self._over(fact.episode, at_ns)
                self._ended.append(at_ns)
                while self._ended[0] < at_ns - self._window_ns:
                    self._ended.popleft()
                self._unjudged[fact.episode] = (at_ns, fact.policy_versions[0])
            case EpisodeAbandoned() | EpisodeCancelled() as fact:
                self._over(fact.episode, at_ns)
                self._online.discard(fact.episode)
            case EpisodeJudged() as fact if fact.judge.name == self._judge:
                _, version = self._unjudged.pop(fact.episode, (0, -1))
                if fact.episode in self._online and fact.judgment.outcome != "undecided":
                    success = fact.judgment.outcome == "success"
                    self._verdicts.append(success)
                    self._by_version[version].judged += 1
                    self._by_version[version].successes += success
                self._online.discard(fact.episode)
            case WeightsAdopted() as fact:
                self._actors.setdefault(fact.actor, Actor()).version = fact.version

    def _over(self, episode: str, at_ns: int) -> None:
        self._requested.pop(episode, None)
        running = self._running.pop(episode, None)
        if running is not None:
            actor = self._actors.setdefault(running.actor, Actor())
            actor.episodes.add(running.began_ns, at_ns, keep_ns=self._window_ns)
            actor.ended_ns = at_ns

    def _apply_learner(self, recorded: Recorded, at_ns: int) -> None:
        match recorded.fact:
            case BatchPlanned() as fact:
                self._end_batch(at_ns)
                self._planned_ns, self._minibatches = at_ns, len(unpack_ids(fact.minibatches))
                if fact.model == POLICY:
                    groups = {part.group for part in fact.episodes if not part.rehearsed}
                    self._trained.append((at_ns, len(groups)))
                    self._trim(self._trained)
            case UpdateApplied() as fact:
                if fact.model == POLICY:
                    self._update, self._update_ns = fact, at_ns
                    self._updates.append(at_ns)
                    while self._updates[0] < at_ns - self._window_ns:
                        self._updates.popleft()
                else:
                    self._beside[fact.model] = fact.update
                self._end_minibatch(at_ns)
            case UpdateSkipped():
                self._end_minibatch(at_ns)
            case WeightsPublished(model="policy", version=version):
                self._published = version
            case CheckpointSaved() if self._learning.over and self._planned_ns is None:
                began_ns, _ = self._learning.over.pop()
                self._learning.add(began_ns, at_ns, keep_ns=self._window_ns)
            case SamplesSwept() as fact:
                self._swept.append((at_ns, fact.reason, len(fact.episodes)))
                self._trim(self._swept)

    def _end_minibatch(self, at_ns: int) -> None:
        self._minibatches -= 1
        if self._minibatches <= 0:
            self._end_batch(at_ns)

    def _end_batch(self, at_ns: int) -> None:
        if self._planned_ns is not None:
            self._learning.add(self._planned_ns, at_ns, keep_ns=self._window_ns)
            self._planned_ns = None

    def _trim(self, timed: deque[Any]) -> None:
        """Drop entries before the window; each begins with its time."""
        while timed[0][0] < timed[-1][0] - self._window_ns:
            timed.popleft()

    def view(self, now_ns: int, *, up: bool = True) -> RunView:
        """The view at a time, at the earliest that of the newest event; `up`: whether the system is running."""
        now_ns = max(now_ns, self._newest_ns)
        window = (max(now_ns - self._window_ns, self._began_ns), now_ns)
        length_s = max((window[1] - window[0]) / SECOND_NS, 1e-9)
        steps = [step for step in self._steps if step[0] >= window[0]]
        agreed = (
            sum(n for at, why, n in self._swept if at >= window[0] and why == "agreed") / self._group_size
        )
        learned = sum(groups for at, groups in self._trained if at >= window[0])
        oldest = min((at for at, _ in self._unjudged.values()), default=now_ns)
        view = RunView(
            run=self._run,
            up=up,
            position=self._position,
            at_ns=now_ns,
            window_s=length_s,
            quiet_s=(now_ns - self._newest_ns) / SECOND_NS,
            actors=tuple(self._view_actor(name, window) for name in sorted(self._actors)),
            success=self._view_success(),
            learner=self._view_learner(window),
            requested=len(self._requested),
            running=len(self._running),
            unjudged=len(self._unjudged),
            oldest_unjudged_s=(now_ns - oldest) / SECOND_NS,
            episodes_per_minute=60 * sum(at >= window[0] for at in self._ended) / length_s,
            steps_per_second=len(steps) / length_s,
            step_ms={
                "observe": _mean([step[1] for step in steps]),
                "generate": _mean([step[2] for step in steps]),
                "act": _mean([step[3] for step in steps]),
            },
            agreed=agreed / (agreed + learned) if agreed + learned else 0.0,
            notices=tuple(self._notices),
            evaluated=self._evaluated,
            bottleneck="",
        )
        return msgspec.structs.replace(view, bottleneck=bottleneck(view))

    def _view_actor(self, name: str, window: tuple[int, int]) -> ActorView:
        actor, (first_ns, now_ns) = self._actors[name], window
        mine = {episode: one for episode, one in self._running.items() if one.actor == name}
        busy = actor.episodes.within(window, under_way=[one.began_ns for one in mine.values()])
        return ActorView(
            name=name,
            policy_version=actor.version,
            episodes=tuple(
                EpisodeView(
                    episode=episode,
                    family=one.family,
                    step=one.steps,
                    age_s=(now_ns - one.began_ns) / SECOND_NS,
                )
                for episode, one in mine.items()
            ),
            idle=1 - covered_ns(busy) / max(now_ns - first_ns, 1),
            idle_s=0.0 if mine else (now_ns - max(actor.ended_ns, first_ns)) / SECOND_NS,
            quiet_s=(now_ns - actor.heard_ns) / SECOND_NS,
        )

    def _view_success(self) -> tuple[RateView, ...]:
        tallies = [(f"last {len(self._verdicts)}", sum(self._verdicts), len(self._verdicts))]
        newest = sorted((version for version in self._by_version if version >= 0), reverse=True)[:VERSIONS]
        tallies += [
            (f"policy {version}", self._by_version[version].successes, self._by_version[version].judged)
            for version in newest
        ]
        rates = []
        for of, successes, judged in tallies:
            band = wilson(successes, judged)
            rates.append(RateView(of=of, rate=band.rate, low=band.low, high=band.high, n=judged))
        return tuple(rate for rate in rates if rate.n)

    def _view_learner(self, window: tuple[int, int]) -> LearnerView:
        first_ns, now_ns = window
        under_way = [] if self._planned_ns is None else [self._planned_ns]
        busy = total_ns(self._learning.within(window, under_way=under_way))
        metrics = self._update.metrics if self._update else {}
        return LearnerView(
            updates=self._update.update if self._update else 0,
            beside=dict(sorted(self._beside.items())),
            policy_version=self._published,
            loss=metrics.get("loss"),
            staleness=metrics.get("staleness_mean"),
            updates_per_minute=60
            * sum(at >= first_ns for at in self._updates)
            / max((now_ns - first_ns) / SECOND_NS, 1e-9),
            busy=min(1.0, busy / max(now_ns - first_ns, 1)),
            quiet_s=None if self._update_ns is None else (now_ns - self._update_ns) / SECOND_NS,
        )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
