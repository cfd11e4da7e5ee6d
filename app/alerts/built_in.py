"""The alerts that Hindcast brings."""

from collections.abc import Sequence
from math import isfinite
from statistics import fmean
from typing import NamedTuple

import msgspec

from hindcast.app.alerts.alert import Alert, AlertContext, AlertIncidents, Incident, SystemView
from hindcast.core.rl.combined_state import CRITIC, POLICY
from hindcast.core.rl.statistics import difference
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    QueueRepaired,
    UpdateApplied,
    WeightsPublished,
)
from hindcast.events.envelope import Recorded
from hindcast.events.jetstream.accounts import may_append
from hindcast.events.registry import BY_CLASS

MISMATCH = "mismatch_kl"
UPDATES = 10
"""Updates in the present mean; the mean before is over five times as many."""
EARLIER = 5 * UPDATES


class SuccessOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the alert `success`."""

    stretch: int = 100
    """Number of judged online episodes in a success rate."""
    fall: float = 0.1
    """Drop of success against the best stretch before; the difference's 95 % interval must also be below 0."""


class SuccessState(msgspec.Struct, kw_only=True):
    """State of the alert `success`."""

    online: list[str] = []
    """Online episodes without a verdict."""
    recent: list[bool] = []
    """Outcomes of the newest stretch."""
    block: list[bool] = []
    """Older outcomes that do not fill a stretch yet."""
    best: int | None = None
    """Successes of the best full stretch before the newest."""


class SuccessFold:
    """Finds that success falls, by the verdicts of the judge that training uses."""

    def __init__(self, context: AlertContext) -> None:
        self._options: SuccessOptions = context.options
        self._judge = context.settings.judge.judges[0]

    def initial(self) -> SuccessState:
        """The empty state."""
        return SuccessState()

    def apply(self, state: SuccessState, recorded: Recorded, incidents: AlertIncidents) -> None:
        """Take one more event."""
        match recorded.fact:
            case EpisodeRequested(origin="online", episode=episode):
                state.online.append(episode)
            case EpisodeAbandoned(episode=episode) | EpisodeCancelled(episode=episode):
                if episode in state.online:
                    state.online.remove(episode)
            case EpisodeJudged() as fact if fact.judge.name == self._judge and fact.episode in state.online:
                state.online.remove(fact.episode)
                if fact.judgment.outcome != "undecided":
                    self._judged(state, fact.judgment.outcome == "success", incidents)
            case _:
                pass

    def _judged(self, state: SuccessState, success: bool, incidents: AlertIncidents) -> None:
        stretch = self._options.stretch
        state.recent.append(success)
        if len(state.recent) > stretch:
            state.block.append(state.recent.pop(0))
        if len(state.block) == stretch:
            state.best = max(state.best or 0, sum(state.block))
            state.block = []
        if state.best is None:
            return
        now = sum(state.recent)
        change = difference(state.best, stretch, now, stretch)
        fell = change.high < 0 and -change.rate >= self._options.fall
        told = f"{now / stretch:.0%} of the last {stretch} judged episodes succeed"
        if fell and not incidents.is_open:
            best = f"the best {stretch} before them came to {state.best / stretch:.0%}"
            interval = f"change {change.rate:+.0%} [{change.low:+.0%}, {change.high:+.0%}]"
            incidents.begin(f"success falls: {told}, {best}; {interval}")
        elif not fell:
            incidents.end(f"success is back: {told}")


class MismatchOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the alert `mismatch`."""

    times: float = 3.0
    """Mean mismatch of the last updates, as a multiple of the mean before …"""
    least: float = 0.01
    """… and its least absolute value."""


class MismatchState(msgspec.Struct, kw_only=True):
    """State of the alert `mismatch`."""

    mismatches: list[float] = []
    before: float | None = None
    """Mean mismatch before the current incident."""


class MismatchFold:
    """Finds that the sampler's mismatch rises."""

    def __init__(self, context: AlertContext) -> None:
        self._options: MismatchOptions = context.options

    def initial(self) -> MismatchState:
        """The empty state."""
        return MismatchState()

    def apply(self, state: MismatchState, recorded: Recorded, incidents: AlertIncidents) -> None:
        """Take one more update."""
        fact = recorded.fact
        assert isinstance(fact, UpdateApplied)
        value = fact.metrics.get(MISMATCH)
        if fact.model != POLICY or value is None or not isfinite(value):
            return
        state.mismatches = [*state.mismatches, value][-(UPDATES + EARLIER) :]
        earlier, newest = state.mismatches[:-UPDATES], state.mismatches[-UPDATES:]
        if len(earlier) < UPDATES:
            return
        before = fmean(earlier) if state.before is None else state.before
        limit = max(self._options.least, self._options.times * before)
        mean = fmean(newest)
        told = f"the sampler's mismatch is {mean:.3g} over the last {UPDATES} updates"
        if mean > limit and state.before is None and not incidents.is_open:
            state.before = before
            incidents.begin(f"mismatch rises: {told}, {before:.3g} before")
        elif mean <= limit:
            state.before = None
            incidents.end(f"mismatch is down again: {told}")


class CriticOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the alert `constant_critic`."""

    least: float = 0.02
    """Least difference of V between successes and failures. A critic that learned nothing had .009, one that learned .23."""


class CriticState(msgspec.Struct, kw_only=True):
    """State of the alert `constant_critic`."""

    gaps: list[float] = []
    """V of successes minus V of failures, by update of the batch that trains now."""


class CriticFold:
    """Finds a critic that does not tell successes from failures after a phase."""

    def __init__(self, context: AlertContext) -> None:
        self._least: float = context.options.least
        self._epoch = context.settings.learner.minibatches

    def initial(self) -> CriticState:
        """The empty state."""
        return CriticState()

    def apply(self, state: CriticState, recorded: Recorded, incidents: AlertIncidents) -> None:
        """Take one more update of the critic, or the end of its batch."""
        match recorded.fact:
            case UpdateApplied(model=model, metrics=metrics) if model == CRITIC and "auc" in metrics:
                state.gaps.append(metrics["value_of_successes"] - metrics["value_of_failures"])
            case WeightsPublished(model=model, version=version) if model == CRITIC and state.gaps:
                self._trained(version, fmean(state.gaps[-self._epoch :]), incidents)
                state.gaps = []
            case _:
                pass

    def _trained(self, version: int, gap: float, incidents: AlertIncidents) -> None:
        told = f"at version {version} its values of successes are {gap:+.3f} above those of failures"
        if gap >= self._least:
            incidents.end(f"the critic tells them apart: {told}")
        elif not incidents.is_open:
            incidents.begin(
                f"the critic is constant: {told}, less than {self._least:g}, so advantages and the choice of tasks follow "
                "chance. Raise learner.critic_learning_rate or learner.critic_head_rate (0: the same rate), or "
                "learner.critic_epochs: hindcast ctl set"
            )


class PinnedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the alert `pinned_sampler`."""

    episodes: int = 20
    """Number of online episodes in a row that one policy version sampled …"""
    versions: int = 5
    """… although it is this many versions behind the newest."""


class PinnedState(msgspec.Struct, kw_only=True):
    """State of the alert `pinned_sampler`."""

    online: list[str] = []
    """Online episodes that have not ended."""
    newest: int = 0
    """Newest published version of the policy."""
    version: int = -1
    """Version that sampled the last online episode; -1: none did yet."""
    episodes: int = 0
    """Online episodes in a row that it sampled."""


class PinnedFold:
    """Finds actors that keep sampling from an old version although later ones are published."""

    def __init__(self, context: AlertContext) -> None:
        self._options: PinnedOptions = context.options

    def initial(self) -> PinnedState:
        """The empty state."""
        return PinnedState()

    def apply(self, state: PinnedState, recorded: Recorded, incidents: AlertIncidents) -> None:
        """Take one more publication, or begin or end of an episode."""
        match recorded.fact:
            case WeightsPublished(model=model, version=version) if model == POLICY:
                state.newest = version
            case EpisodeRequested(origin="online", episode=episode):
                state.online.append(episode)
            case EpisodeAbandoned(episode=episode) | EpisodeCancelled(episode=episode):
                if episode in state.online:
                    state.online.remove(episode)
            case EpisodeEnded() as fact if fact.episode in state.online:
                state.online.remove(fact.episode)
                self._sampled(state, fact.policy_versions[1], incidents)
            case _:
                pass

    def _sampled(self, state: PinnedState, version: int, incidents: AlertIncidents) -> None:
        if version > state.version:
            incidents.end(f"version {version} samples episodes")
        if version != state.version:
            state.version, state.episodes = version, 0
        state.episodes += 1
        behind = state.newest - version
        if (
            state.episodes >= self._options.episodes
            and behind >= self._options.versions
            and not incidents.is_open
        ):
            incidents.begin(
                f"the sampler is pinned: version {version} sampled the last {state.episodes} online episodes, although version "
                f"{state.newest} is published. The actors or the policy servers do not load new versions: hindcast lineage "
                f"policy {state.newest}"
            )


class NoState(msgspec.Struct):
    """State of a fold that remembers nothing."""


class QueueFold:
    """Finds work queues that had to be made anew."""

    def initial(self) -> NoState:
        """Nothing."""
        return NoState()

    def apply(self, state: NoState, recorded: Recorded, incidents: AlertIncidents) -> None:
        """Take one more repair."""
        assert isinstance(recorded.fact, QueueRepaired)
        text = f"the work queue {recorded.fact.queue} was made anew: {recorded.fact.wrong}"
        incidents.begin(text, over="it hands out its events again")


class IntruderFold:
    """Finds events under a subject that their producer's role may not write."""

    def initial(self) -> NoState:
        """Nothing."""
        return NoState()

    def apply(self, state: NoState, recorded: Recorded, incidents: AlertIncidents) -> None:
        """Take one more event."""
        family, producer = BY_CLASS[type(recorded.fact)].family, recorded.envelope.producer
        if not may_append(producer, family):
            incidents.begin(
                f"{producer} stands under `{family}`, which its role may not write. "
                f"Run: hindcast audit {recorded.envelope.run}"
            )


class StandstillOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the alert `still`."""

    still_s: float = 300.0
    """Seconds without an event after which a system that is up and not paused stands still."""


class StandstillQuery:
    """Finds that nothing is recorded, from the log's last position."""

    def __init__(self, context: AlertContext) -> None:
        self._still_s: float = context.options.still_s
        self._last: tuple[int, float] | None = None

    def __call__(self, view: SystemView, standing: Sequence[Incident]) -> list[Incident]:
        """Incidents that are new or over."""
        last = view.last
        if not last:
            return []
        if self._last is None or self._last[0] != last or not view.expected:
            self._last = (last, view.now_s)
        for_s = view.now_s - self._last[1]
        if view.expected and for_s >= self._still_s:
            text = f"nothing moves: nothing was recorded after position {last} for {for_s:.0f} s, though the system is up"
            return [Incident(id=f"still.{last}", kind="still", position=last, text=text)]
        return [
            msgspec.structs.replace(one, over=f"it moves again, at position {last}")
            for one in standing
            if one.position != last
        ]


class LagOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the alert `lag`."""

    lag_s: float = 60.0
    """Seconds: a consumer that is further behind, and whose lag grows, is too slow."""
    still_s: float = 300.0
    """Longest time that one event may hold a consumer before its lag counts."""


class _LagSeen(NamedTuple):
    """One consumer at the last check."""

    lag_s: float
    position: int
    lag_at_move_s: float
    """Its lag when its position last moved."""


class LagQuery:
    """Finds consumers that fall behind: their lag grows although they apply events, or one event holds them for long."""

    def __init__(self, context: AlertContext) -> None:
        self._options: LagOptions = context.options
        self._lags: dict[str, _LagSeen] = {}

    def __call__(self, view: SystemView, standing: Sequence[Incident]) -> list[Incident]:
        """Incidents that are new or over."""
        if view.lags is None:
            return []
        found = []
        begun = {one.id.split(".")[1]: one for one in standing}
        for name, one in begun.items():
            if name not in view.lags:
                found.append(msgspec.structs.replace(one, over=f"{name} is not attached any more"))
        for name, (lag_s, position) in view.lags.items():
            if lag_s is None:
                continue
            seen = self._lags.get(name, _LagSeen(lag_s, position, lag_s))
            moved = position != seen.position
            at_move_s = lag_s if moved else seen.lag_at_move_s
            grows = (moved and lag_s > seen.lag_s) or lag_s - at_move_s > self._options.still_s
            if name in begun and lag_s < self._options.lag_s / 2:
                found.append(msgspec.structs.replace(begun[name], over=f"{name} is {lag_s:.0f} s behind"))
            elif name not in begun and grows and lag_s > self._options.lag_s:
                text = f"lag grows: {name} is {lag_s:.0f} s behind, at position {position}"
                found.append(Incident(id=f"lag.{name}.{position}", kind="lag", position=position, text=text))
            self._lags[name] = _LagSeen(lag_s, position, at_move_s)
        return found


SUCCESS = Alert(
    fold=SuccessFold,
    watches=(EpisodeRequested, EpisodeAbandoned, EpisodeCancelled, EpisodeJudged),
    options=SuccessOptions,
    finds="Success of online episodes falls clearly below its best stretch before.",
    advice=(
        "See on the overview from which policy version on it falls, and ask what moved that version: "
        "hindcast why policy=VERSION. A fork begins before the fall: hindcast fork --at policy=VERSION --name again"
    ),
)
CONSTANT_CRITIC = Alert(
    fold=CriticFold,
    watches=(UpdateApplied, WeightsPublished),
    options=CriticOptions,
    finds="The critic gives successes and failures the same value after a phase.",
    advice=(
        "Raise learner.critic_learning_rate or learner.critic_epochs: hindcast ctl set learner.critic_epochs=VALUE"
    ),
)
MISMATCH_RISES = Alert(
    fold=MismatchFold,
    watches=(UpdateApplied,),
    options=MismatchOptions,
    finds="The sampler's probabilities differ from the learner's at equal weights more than before.",
    advice=(
        "Check that actors or policy servers run the learner's versions and precision. A correction of the ratio, such as "
        "IcePop's, bounds the damage."
    ),
)
PINNED_SAMPLER = Alert(
    fold=PinnedFold,
    watches=(WeightsPublished, EpisodeRequested, EpisodeAbandoned, EpisodeCancelled, EpisodeEnded),
    options=PinnedOptions,
    finds="Actors keep sampling from an old policy version although later ones are published.",
    advice="See on the policies page who samples from which version, and restart the actor or policy server that stays behind.",
)
QUEUE = Alert(
    fold=lambda context: QueueFold(),
    watches=(QueueRepaired,),
    finds="A work queue was missing or changed in the broker, and was made again.",
    advice="Nothing is lost. If it happens again, check who else administers the broker.",
)
INTRUDER = Alert(
    fold=lambda context: IntruderFold(),
    severity="critical",
    finds="An event is under a subject that its producer's role may not write.",
    advice="Someone has the keys of another role, or changed the log. Check the log's chains: hindcast audit",
)
LAG = Alert(
    query=LagQuery,
    options=LagOptions,
    finds="A consumer of the log is behind and falls further back.",
    advice="The consumers page shows its position and last error. Restart it, or give its role more processes.",
)
STILL = Alert(
    query=StandstillQuery,
    options=StandstillOptions,
    severity="critical",
    finds="The system is up and not paused, and nothing is recorded.",
    advice="Ask for the processes' states and errors: hindcast doctor",
)
