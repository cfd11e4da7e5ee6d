"""`hindcast eval`: measures a policy's success on tasks that it was never trained on, with intervals.

It uses the same actor and judge as training, on a log in memory, and records nothing in a run. Continuations of an episode
(`hindcast branch`) are played in the same way, and recorded in a fork. Task seeds start at
`FIRST_EVALUATION_SEED`, far from those of training and demonstrations.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from hindcast.actors.endpoint.client import Endpoint
from hindcast.actors.engines.endpoint import EndpointEngine
from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.actors.environments.base import TaskSource
from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.web.starts import Starts
from hindcast.actors.episodes.actor import run_actor
from hindcast.actors.judges.role import run_judge
from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.bus import make_queues
from hindcast.app.system.judges import open_judges
from hindcast.app.system.sites import needs_browser, sites_running
from hindcast.core.domain.evidence import Outcome
from hindcast.core.domain.task import FIRST_EVALUATION_SEED, Task, evaluation_seeds
from hindcast.core.errors import HindcastError
from hindcast.core.rl.statistics import mean_interval, wilson
from hindcast.core.scratch import scratch_folder
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    StepTaken,
)
from hindcast.events.catalogue.episode import StepResult
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import tail
from hindcast.events.log.work_queue import QueueSource
from hindcast.storage.blobs.store import BlobStore

ATTEMPTS = 2
"""Attempts at one episode; an episode that a browser fault ended is retried once, then counted as lost."""

AGAIN = "_again"
"""End of a second attempt's name."""

REASONS = 5
"""Number of most frequent reasons that a message names."""


class NothingPlayed(HindcastError):
    """No episode of an evaluation got a verdict, so there is no success rate."""


class FamilyResult(msgspec.Struct, frozen=True, kw_only=True):
    """Success on one family."""

    rate: float
    low: float
    high: float
    episodes: int


class EndpointUse(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and cost of a model behind an endpoint."""

    prompt_tokens: int
    answer_tokens: int
    cost_usd: float


class EvaluationReport(msgspec.Struct, frozen=True, kw_only=True):
    """Success of one policy, with 95 % Wilson intervals."""

    policy: str
    suite: str
    rate: float
    low: float
    high: float
    episodes: int
    lost: int
    """Episodes without a verdict, because the world broke or the judge was undecided; not part of the rate."""
    lost_because: dict[str, int] = {}
    """Lost episodes by reason."""
    mean_steps: float
    mean_reward: float
    """Mean reward of the episodes with a verdict; some sites give partial rewards."""
    reward_low: float
    reward_high: float
    by_task: dict[str, FamilyResult]
    asked: EndpointUse | None = None
    """None: the policy is no model behind an endpoint."""
    unlike_starts: dict[str, int] = {}
    """User's own task -> episodes that did not begin like its first one, although the task says so."""


def plan_requests(
    source: TaskSource,
    *,
    episodes: int,
    families: Sequence[str],
    temperature: float,
    lease_s: float,
    first_seed: int = FIRST_EVALUATION_SEED,
) -> list[EpisodeRequested]:
    """One request for each episode: families in turn, by default the usual ones, with a new seed in each round.

    Raises:
        SettingsError: a family does not exist.

    """
    seeds = evaluation_seeds(families or source.usual(), episodes, first_seed=first_seed)
    return [
        _request(
            f"eval_{source.name}_{number}",
            source.task(family, seed),
            temperature=temperature,
            lease_s=lease_s,
        )
        for number, (family, seed) in enumerate(seeds)
    ]


def plan_attempts(
    tasks: Sequence[Task], *, attempts: int, temperature: float, lease_s: float
) -> list[EpisodeRequested]:
    """One request per attempt at each task: all tasks once, then all again."""
    return [
        _request(f"attempt_{task.id}_{number}", task, temperature=temperature, lease_s=lease_s)
        for number in range(attempts)
        for task in tasks
    ]


def _request(episode: str, task: Task, *, temperature: float, lease_s: float) -> EpisodeRequested:
    """A request of an episode in a group of its own."""
    return EpisodeRequested(
        episode=episode,
        task=task,
        group=episode,
        member=0,
        group_size=1,
        attempt=0,
        origin="evaluation",
        temperature=temperature,
        phase=0,
        min_version=0,
        lease_s=lease_s,
    )


async def play(
    requests: Sequence[EpisodeRequested],
    *,
    folder: Path | None,
    weights: Path | None,
    settings: Settings,
    said: Callable[[int, int], None] = lambda _done, _successes: None,
    run: RunHandle | None = None,
) -> "OutcomeTally":
    """Play and judge every request. `weights` replaces those of the model folder; `said` is called with the progress.

    `folder` None: a model behind the settings' endpoint acts. `run`: records everything, and its newest policy acts, whatever
    `weights` says; no role of it may be running. None: nothing is recorded.
    """
    if folder is None:
        actors = settings.actors.model_copy(
            update={"max_prompt_tokens": settings.endpoint.prompt_characters}  # whose tokens are characters
        )
        settings = settings.model_copy(update={"actors": actors})
    stop = asyncio.Event()
    tally = OutcomeTally(requests)
    async with (
        _engine(folder, settings) as engine,
        sites_running(settings) as sites,
        _in_memory(settings) if run is None else _in_run(run) as stage,
        open_judges(settings.judge.judges, settings, stage.blobs) as judges,
        BrowserHost(settings.actors, at_once=needs_browser(sites, settings)) as host,
        asyncio.TaskGroup() as roles,
    ):
        if weights is not None and run is None:
            await engine.adopt(0, weights)
        for request in requests:
            await stage.asks.publish(request, entity=request.episode)
        await stage.asks.commit()
        roles.create_task(
            run_actor(
                name="actor.1",
                log=stage.actors_log,
                publisher=stage.acts,
                queue=await stage.actors_log.open_queue("episodes", family="request"),
                engine=engine,
                host=host,
                sites=sites,
                blobs=stage.blobs,
                settings=settings,
                stop=stop,
            )
        )
        roles.create_task(
            run_judge(
                log=stage.judges_log,
                publisher=stage.judges,
                queue=await stage.judges_log.open_queue("verdicts", family="episode_end"),
                settings=settings,
                blobs=stage.blobs,
                stop=stop,
                judges=judges,
            )
        )
        async with aclosing(tail(stage.actors_log, after=stage.after)) as events:
            async for recorded in events:
                again = tally.apply(recorded.fact)
                if again is not None:
                    await stage.asks.publish(again, entity=again.episode)
                    await stage.asks.commit()
                said(tally.done, tally.successes)
                if tally.done == len(requests):
                    break
        stop.set()
    if isinstance(engine, EndpointEngine):
        tally.asked = EndpointUse(
            prompt_tokens=engine.prompt_tokens, answer_tokens=engine.answer_tokens, cost_usd=engine.cost_usd
        )
    return tally


class PlayedLog(EventLog, QueueSource, Protocol):
    """A log with work queues."""


class _Stage(NamedTuple):
    """Where episodes are played and judged: each role's way to a log, and the blobs."""

    asks: Publisher
    acts: Publisher
    judges: Publisher
    actors_log: PlayedLog
    judges_log: PlayedLog
    blobs: BlobStore
    after: int
    """Position after which everything belongs to what is played."""


@asynccontextmanager
async def _in_memory(settings: Settings) -> AsyncIterator[_Stage]:
    """A stage that leaves nothing behind."""
    log = MemoryLog("evaluation")
    with scratch_folder() as scratch:
        async with (
            Publisher(log, producer="evaluation.1", code_rev="", settings=settings.log) as asks,
            Publisher(log, producer="actor.1", code_rev="", settings=settings.log) as acts,
            Publisher(log, producer="judge.1", code_rev="", settings=settings.log) as judges,
        ):
            yield _Stage(asks, acts, judges, log, log, BlobStore(scratch), after=0)


@asynccontextmanager
async def _in_run(run: RunHandle) -> AsyncIterator[_Stage]:
    """A run's log and blobs; makes the work queues that its start would make."""
    async with run.connect_stream("admin") as stream:
        await make_queues(run, stream)
    async with (
        run.connect_log("curriculum") as asking,
        run.connect_log("actor") as acting,
        run.connect_log("judge") as judging,
        run.publisher(asking, "curriculum.1") as asks,
        run.publisher(acting, "actor.1") as acts,
        run.publisher(judging, "judge.1") as judges,
    ):
        after = (await acting.identity()).last
        yield _Stage(asks, acts, judges, acting, judging, run.blobs, after)


@asynccontextmanager
async def _engine(folder: Path | None, settings: Settings) -> AsyncIterator[InProcessEngine | EndpointEngine]:
    """The policy engine. Answers of an endpoint's model are not stored, because equal questions may have other answers."""
    if folder is not None:
        async with await asyncio.to_thread(InProcessEngine, folder, settings.policy) as engine:
            yield engine
    else:
        async with Endpoint(settings.endpoint) as endpoint:
            yield EndpointEngine(
                endpoint,
                keep_thoughts=settings.actors.answer_format == "thinking",
                system_prompt=settings.endpoint.system_prompt,
            )


class EvaluatedStep(NamedTuple):
    """One step of an evaluated episode."""

    page: str
    """Digest of the page before it."""
    result: StepResult


@dataclass(slots=True)
class EvaluatedEpisode:
    """State of one evaluated episode."""

    family: str
    steps: list[EvaluatedStep] = field(default_factory=list)
    end: str = ""
    """Reason of its end; empty: it has not ended."""
    outcome: Outcome | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the judge called it a success."""
        return self.outcome == "success"


class OutcomeTally:
    """Outcomes of an evaluation's episodes."""

    def __init__(self, requests: Sequence[EpisodeRequested]) -> None:
        self._requests = {request.episode: request for request in requests}
        self._starts = Starts()
        self._verdicts: dict[str, list[bool]] = defaultdict(list)
        self._rewards: list[float] = []
        self._steps: list[int] = []
        self._played: dict[str, EvaluatedEpisode] = {}
        self.by_task: dict[str, list[bool]] = defaultdict(list)
        """Verdicts by the task's id."""
        self._lost: dict[str, str] = {}
        """Reasons of the episodes without a verdict, by their first attempt."""
        self.asked: EndpointUse | None = None

    @property
    def lost(self) -> int:
        """Episodes without a verdict."""
        return len(self._lost)

    @property
    def lost_because(self) -> Counter[str]:
        """Reasons of the episodes without a verdict."""
        return Counter(self._lost.values())

    def outcome_of(self, episode: str) -> Outcome | None:
        """Verdict on an episode or its second attempt; None: neither has one."""
        last = self._played.get(f"{episode}{AGAIN}") or self._played.get(episode)
        return None if last is None else last.outcome

    def why_lost(self, episode: str) -> str:
        """Why an episode has no verdict; empty: it has one."""
        return self._lost.get(episode, "")

    @property
    def done(self) -> int:
        """Episodes with a verdict, or lost for good."""
        return self.lost + sum(len(verdicts) for verdicts in self._verdicts.values())

    @property
    def successes(self) -> int:
        """Episodes judged successful."""
        return sum(sum(verdicts) for verdicts in self._verdicts.values())

    def apply(self, fact: object) -> EpisodeRequested | None:
        """Take in one fact; returns the request of another attempt if one is due."""
        self._starts.apply(fact)
        match fact:
            case StepTaken(episode=episode, observation_digest=page, result=result):
                self._story(episode).steps.append(EvaluatedStep(page, result))
            case EpisodeEnded(episode=episode, steps=steps, reason=reason):
                self._steps.append(steps)
                self._story(episode).end = reason
            case EpisodeJudged(episode=episode, judgment=judgment):
                self._story(episode).outcome = judgment.outcome
                if judgment.outcome == "undecided":
                    self._lost[episode.removesuffix(AGAIN)] = f"undecided: {judgment.reason}"
                else:
                    task = self._requests[episode].task
                    self._verdicts[task.family].append(judgment.outcome == "success")
                    self._rewards.append(judgment.reward)
                    self.by_task[task.id].append(judgment.outcome == "success")
            case EpisodeAbandoned(episode=episode, reason=reason, detail=detail):
                request = self._requests[episode]
                if request.attempt + 1 < ATTEMPTS:
                    again = msgspec.structs.replace(
                        request, episode=f"{episode}{AGAIN}", attempt=request.attempt + 1
                    )
                    self._requests[again.episode] = again
                    return again
                self._lost[episode.removesuffix(AGAIN)] = f"{reason}: {detail}" if detail else reason
        return None

    def _story(self, episode: str) -> EvaluatedEpisode:
        return self._played.setdefault(episode, EvaluatedEpisode(self._requests[episode].task.family))

    @property
    def decided(self) -> list[EvaluatedEpisode]:
        """The episodes that the judge decided, in the order of their beginnings."""
        return [played for played in self._played.values() if played.outcome in ("success", "failure")]

    def count(self, tasks: Iterable[Task]) -> FamilyResult:
        """Success on these tasks."""
        return _result([verdict for task in tasks for verdict in self.by_task.get(task.id, ())])

    def require_verdicts(self, what: str) -> None:
        """Raise NothingPlayed, with counted reasons, if no episode has a verdict. `what`: what was evaluated."""
        if self.done > self.lost:
            return
        reasons = "; ".join(f"{count} × {reason}" for reason, count in self.lost_because.most_common(REASONS))
        raise NothingPlayed(
            f"{what}: no episode could be played, so there is no success rate. {self.lost} without a verdict: "
            f"{reasons}. Run: hindcast doctor"
        )

    def report(self, *, suite: str, policy: str) -> EvaluationReport:
        """Report success over all episodes and by family.

        Raises:
            NothingPlayed: no episode has a verdict.

        """
        self.require_verdicts(f"policy {policy} on {suite}")
        families = {family: _result(verdicts) for family, verdicts in sorted(self._verdicts.items())}
        whole = _result([verdict for verdicts in self._verdicts.values() for verdict in verdicts])
        reward = mean_interval(self._rewards)
        return EvaluationReport(
            policy=policy,
            suite=suite,
            rate=whole.rate,
            low=whole.low,
            high=whole.high,
            episodes=whole.episodes,
            lost=self.lost,
            lost_because=dict(self.lost_because.most_common()),
            mean_steps=round(sum(self._steps) / max(1, len(self._steps)), 2),
            mean_reward=round(reward.rate, 4),
            reward_low=round(reward.low, 4),
            reward_high=round(reward.high, 4),
            by_task=families,
            asked=self.asked,
            unlike_starts=self._starts.unlike,
        )


def _result(verdicts: Sequence[bool]) -> FamilyResult:
    band = wilson(sum(verdicts), len(verdicts))
    return FamilyResult(
        rate=round(band.rate, 4), low=round(band.low, 4), high=round(band.high, 4), episodes=len(verdicts)
    )
