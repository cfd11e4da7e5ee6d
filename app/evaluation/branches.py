"""`hindcast branch`: continues a recorded episode many times from its steps, to see where it went wrong.

    recorded episode ── its actions, played again ──> its page at step K ── the policy ──> N ends, judged
          in the run's log                                 compared                  in a fork's log

The success of the continuations from a step is the value of the state there, for the policy that continues. Where it falls
from one step to the next, the step between lost it. Invariant 9, no effects in replay: nothing is appended to the run.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from itertools import pairwise

import msgspec

from hindcast.actors.replay.recorded import EpisodeSelection, recorded_episodes
from hindcast.app.evaluation.evaluation import OutcomeTally, play
from hindcast.app.runs.fork import fork_run
from hindcast.app.runs.runs import RunHandle, open_run
from hindcast.app.settings.checks.sites import why_not_continued
from hindcast.core.errors import NoSuchPlace, SettingsError
from hindcast.core.models.folders import policy_folder
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.rl.statistics import Interval, difference, wilson
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BRANCH,
    BranchPoint,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    WeightsPublished,
)
from hindcast.events.log.episode_assembler import AssembledEpisode
from hindcast.events.log.reader import read


class StepValue(msgspec.Struct, frozen=True, kw_only=True):
    """Success of the continuations from one step on, with its 95 % interval."""

    step: int
    answer: str
    """What the episode itself did at this step."""
    url: str
    continuations: int
    """Those with a verdict."""
    successes: int
    value: float
    low: float
    high: float
    lost: dict[str, int]
    """Continuations without a verdict, by reason: such as that the page was another one."""


class Fall(msgspec.Struct, frozen=True, kw_only=True):
    """The step at which most was lost: values before and after it, and their difference with its 95 % interval."""

    step: int
    before: float
    after: float
    difference: float
    low: float
    high: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval lies below 0."""
        return self.high < 0


class Branches(msgspec.Struct, frozen=True, kw_only=True):
    """What continuations of an episode say about its steps."""

    run: str
    """The fork that holds the continuations."""
    parent: str
    episode: str
    family: str
    outcome: str
    """Verdict about the episode itself."""
    version: int
    """Policy version that continued."""
    values: tuple[StepValue, ...]
    fall: Fall | None
    """None: fewer than two values are known, or none is lower than the one before."""


async def branch(
    parent: RunHandle,
    episode: str,
    *,
    steps: Sequence[int],
    each: int,
    version: int | None,
    name: str | None,
    said: Callable[[str], None] = lambda _line: None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Branches:
    """Continue an episode `each` times from each of `steps`, empty: from all of them, in a fork made for it.

    `version`: policy that continues; None: the newest one when the episode's verdict was recorded.

    Raises:
        NoSuchEpisode, NoSuchPlace: there is no such episode, step or version.
        SettingsError: its environment cannot be brought back to one of its steps, or the name is taken.
    """
    recorded = await _episode(parent, episode)
    settings = parent.settings
    _require_resettable(recorded, settings)
    chosen = _steps(recorded, steps)
    at, acting, verdict = await _place(parent, recorded, version)
    forked = await fork_run(parent, at=at, name=name, overrides=(), said=said)
    run = open_run(forked.run, home=parent.home)
    requests = [_request(recorded, step, number, each, settings) for step in chosen for number in range(each)]
    said(
        f"continuing {episode} with policy version {acting}, {each} times from {len(chosen)} steps, in run {run.name}"
    )
    tally = await play(
        requests,
        folder=policy_folder(settings.policy.base),
        weights=None,
        settings=run.settings,
        run=run,
        said=lambda done, _: progress(done, len(requests)),
    )
    values = tuple(_value(recorded, step, requests, tally) for step in chosen)
    return Branches(
        run=run.name,
        parent=parent.name,
        episode=episode,
        family=recorded.family,
        outcome=verdict,
        version=acting,
        values=values,
        fall=largest_fall(values, steps=len(recorded.steps), verdict=verdict),
    )


async def _episode(parent: RunHandle, name: str) -> AssembledEpisode:
    async with parent.connect_log() as log:
        wanted = EpisodeSelection(episodes=frozenset({name}))
        async with aclosing(recorded_episodes(log, wanted)) as found:
            recorded = await anext(found)
    if not recorded.steps or not isinstance(recorded.end, EpisodeEnded):
        raise SettingsError(
            f"episode {name} has no step, or no end of its own, so it cannot be continued. Run: hindcast episode show {name}"
        )
    return recorded


def _require_resettable(recorded: AssembledEpisode, settings: Settings) -> None:
    environment = recorded.task.environment
    if why := why_not_continued(environment, settings):
        raise SettingsError(f"episodes of {environment} cannot be continued: {why}")


def _steps(recorded: AssembledEpisode, wanted: Sequence[int]) -> list[int]:
    known = range(len(recorded.steps))
    for step in wanted:
        if step not in known:
            raise NoSuchPlace(f"episode {recorded.name} has no step {step}; its last one is {known[-1]}")
    return sorted(set(wanted)) or list(known)


async def _place(parent: RunHandle, recorded: AssembledEpisode, version: int | None) -> tuple[int, int, str]:
    """Where the run is forked, the policy version that is the newest there, and the verdict about the episode."""
    at, verdict = recorded.position, "no verdict"
    published: dict[int, int] = {0: 0}
    judge = parent.settings.judge.judges[0]
    async with parent.connect_log() as log, aclosing(read(log, after=0, strict=False)) as recordeds:
        async for one in recordeds:
            fact = one.fact
            if isinstance(fact, WeightsPublished) and fact.model == POLICY:
                published[fact.version] = one.position
            elif (
                isinstance(fact, EpisodeJudged)
                and (fact.episode, fact.judge.name) == (recorded.name, judge)
                and verdict == "no verdict"
            ):
                at, verdict = max(at, one.position), fact.judgment.outcome
    newest = max(number for number, position in published.items() if position <= at)
    if version is None or version == newest:
        return at, newest, verdict
    if version not in published:
        raise NoSuchPlace(f"policy version {version} was not published; the last one is {max(published)}")
    if version < newest:
        raise SettingsError(
            f"version {version} is older than {newest}, the newest one when {recorded.name} was judged, and a fork begins with "
            f"its newest policy: choose --policy {newest} or a later one"
        )
    return published[version], version, verdict


def _request(
    recorded: AssembledEpisode, step: int, number: int, each: int, settings: Settings
) -> EpisodeRequested:
    group = f"{recorded.name}_from_{step}"
    return EpisodeRequested(
        episode=f"{group}_{number}",
        task=recorded.task,
        group=group,
        member=number,
        group_size=each,
        attempt=0,
        origin=BRANCH,
        temperature=settings.actors.temperature,
        phase=recorded.request.phase,
        branch=BranchPoint(episode=recorded.name, step=step, after=recorded.steps[0].position - 1),
        min_version=0,
        lease_s=settings.episode_lease_s,
    )


def _value(
    recorded: AssembledEpisode, step: int, requests: Sequence[EpisodeRequested], tally: OutcomeTally
) -> StepValue:
    own = [one.episode for one in requests if one.branch is not None and one.branch.step == step]
    outcomes = [tally.outcome_of(one) for one in own]
    successes = outcomes.count("success")
    judged = successes + outcomes.count("failure")
    band = wilson(successes, judged) if judged else Interval(rate=0.0, low=0.0, high=1.0)
    fact = recorded.steps[step].fact
    return StepValue(
        step=step,
        answer=fact.answer,
        url=fact.url,
        continuations=judged,
        successes=successes,
        value=band.rate,
        low=band.low,
        high=band.high,
        lost=dict(
            Counter(tally.why_lost(one) for one in own if tally.outcome_of(one) not in ("success", "failure"))
        ),
    )


def largest_fall(values: Sequence[StepValue], *, steps: int, verdict: str) -> Fall | None:
    """The largest fall between neighbouring steps of an episode of `steps` steps; after its last one its verdict is the value."""
    known = [(one.step, one.successes, one.continuations) for one in values if one.continuations]
    if known and known[-1][0] == steps - 1 and verdict in ("success", "failure"):
        most = max(count for _, _, count in known)
        known.append((steps, most if verdict == "success" else 0, most))
    falls: list[Fall] = []
    for (step, won, played), (following, won_then, played_then) in pairwise(known):
        apart = difference(won, played, won_then, played_then)
        if following == step + 1 and apart.rate < 0:
            falls.append(
                Fall(
                    step=step,
                    before=won / played,
                    after=won_then / played_then,
                    difference=apart.rate,
                    low=apart.low,
                    high=apart.high,
                )
            )
    return min(falls, key=lambda one: one.difference, default=None)
