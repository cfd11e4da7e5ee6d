"""One attempt at one request: open a world, take and play the episode, and give every failure a reason.

This is the task boundary of an episode. No error of a page, site, browser, engine or demonstrator passes it; each
becomes `episode.abandoned` with a reason. Errors of the log do pass it: an actor that cannot record must stop.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Protocol

import structlog

from hindcast.actors.agents.answerer import AgentAnswerer
from hindcast.actors.agents.world import AgentWorld
from hindcast.actors.engines.base import PolicyEngine
from hindcast.actors.environments.base import Demonstrate, EpisodeWorld, Venue
from hindcast.actors.environments.early_stopping_demonstrator import last_page_action
from hindcast.actors.environments.plugin import find_environment
from hindcast.actors.episodes.answerers import (
    Answerer,
    BranchAnswerer,
    DemonstratorAnswerer,
    PolicyAnswerer,
)
from hindcast.actors.episodes.episode import Episode
from hindcast.actors.episodes.prompt_reader import vision_engine
from hindcast.actors.episodes.recorder import Abandoned, Ended, EpisodeRecord
from hindcast.actors.episodes.screenshots import EpisodeScreenshots, ScreenshotBudget
from hindcast.actors.episodes.weight_adoption import Adoption
from hindcast.actors.log_follower import read_families
from hindcast.actors.scaffold.scaffold import scaffold_of
from hindcast.core.errors import (
    BlobsUnreachable,
    BrokerDenied,
    BrokerUnreachable,
    BrowserUnavailable,
    CorruptEvent,
    DiskFull,
    EngineFailed,
    EnvironmentFailed,
    ForeignLog,
    LogFull,
)
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import BranchPoint, EpisodeRequested, StepTaken
from hindcast.events.catalogue.curriculum import DEMONSTRATION
from hindcast.events.log.port import EventLog

CLOSE_S = 15.0
"""Time limit for closing a world; longer than the world's own limits, which apply first."""
CLOSE_STOPPED_S = 1.0
"""The same limit after the actor's stop signal: its browser is killed right after."""
LOG_ERRORS = (BrokerDenied, BrokerUnreachable, CorruptEvent, ForeignLog, LogFull)
"""Errors after which an actor cannot continue."""
REASONS: dict[type[Exception], str] = {
    BrowserUnavailable: "browser_died",
    EnvironmentFailed: "environment_failed",
    EngineFailed: "engine_failed",
    BlobsUnreachable: "blobs_unreachable",
    DiskFull: "disk_full",
}
"""Reason of an abandoned episode by exception type; any other exception gives `error`."""

logger = structlog.get_logger(__name__)


async def steps_before(log: EventLog, branch: BranchPoint) -> list[StepTaken]:
    """An episode's recorded steps up to the one at which another leaves it. Raises EnvironmentFailed if the log lacks one."""
    steps: list[StepTaken] = []
    async with aclosing(read_families(log, after=branch.after, families={"step"})) as batches:
        async for followed in batches:
            facts = (recorded.fact for recorded in followed.recorded if isinstance(recorded.fact, StepTaken))
            steps += [fact for fact in facts if fact.episode == branch.episode]
            if len(steps) > branch.step:
                return steps[: branch.step + 1]
    raise EnvironmentFailed(
        f"the log of run {log.run} holds {len(steps)} steps of {branch.episode} after position {branch.after}, so it cannot be "
        f"continued from step {branch.step}. Run: hindcast episode show {branch.episode}"
    )


class AttemptTimeout(Exception):
    """A time limit of `AttemptContext.limited` passed."""


class WorldHost(Protocol):
    """Opens worlds, each isolated from the others; a browser in production."""

    async def open_world(self, site: Venue) -> EpisodeWorld:
        """Open a world at a site. Raises BrowserUnavailable or EnvironmentFailed."""
        ...


class AttemptContext:
    """What all attempts of an actor share."""

    def __init__(
        self,
        *,
        host: WorldHost,
        sites: Mapping[str, Venue],
        engine: PolicyEngine,
        adoption: Adoption,
        demonstrators: Mapping[tuple[str, str], Demonstrate],
        settings: Settings,
        log: EventLog,
    ) -> None:
        """`log`: holds the episodes that requests continue."""
        self.log = log
        self.host = host
        self.sites = sites
        self.engine = engine
        self.adoption = adoption
        self.demonstrators = demonstrators
        self.settings = settings
        self.screenshots = ScreenshotBudget(settings.actors)
        self._scopes: dict[asyncio.Timeout, float] = {}
        self.stopped = False
        """Whether the actor has stopped its attempts."""

    def stop(self) -> None:
        """End every running attempt within its grace period."""
        self.stopped = True
        for scope, grace_s in self._scopes.items():
            _shorten(scope, grace_s)

    @asynccontextmanager
    async def limited(self, limit_s: float, *, grace_s: float) -> AsyncIterator[None]:
        """Limit the body to `limit_s`, and to `grace_s` once the actor stops. Raises AttemptTimeout."""
        scope = asyncio.timeout(limit_s)
        try:
            async with scope:
                self._scopes[scope] = grace_s
                if self.stopped:
                    _shorten(scope, grace_s)
                try:
                    yield
                finally:
                    del self._scopes[scope]
        except TimeoutError:
            if scope.expired():
                raise AttemptTimeout from None
            raise


def _shorten(scope: asyncio.Timeout, grace_s: float) -> None:
    deadline = asyncio.get_running_loop().time() + grace_s
    planned = scope.when()
    if not scope.expired() and (planned is None or deadline < planned):
        scope.reschedule(deadline)


class Attempt:
    """One attempt at one request. Call `run` once, then `close`."""

    def __init__(self, request: EpisodeRequested, *, stage: AttemptContext, record: EpisodeRecord) -> None:
        self._request = request
        self._stage = stage
        self._record = record
        self._world: EpisodeWorld | None = None

    async def run(self) -> Ended | Abandoned | None:
        """Play the episode and return its outcome; None when another actor has the episode.

        Raises:
            BrokerUnreachable, LogFull, BrokerDenied, ForeignLog, CorruptEvent: nothing can be recorded any more.
        """
        try:
            async with self._stage.limited(self._stage.settings.actors.episode_timeout_s, grace_s=0.0):
                return await self._play()
        except LOG_ERRORS:
            raise
        except Exception as error:
            return await self._abandon(error)

    async def close(self) -> None:
        """Close the world, within a limit."""
        if self._world is None:
            return
        try:
            async with self._stage.limited(CLOSE_S, grace_s=CLOSE_STOPPED_S):
                await self._world.close()
        except AttemptTimeout:
            logger.warning("a world did not close in its time", episode=self._request.episode)

    async def _play(self) -> Ended | None:
        request, settings = self._request, self._stage.settings
        if request.origin != DEMONSTRATION:
            await self._adopted()
        site = self._stage.sites.get(request.task.environment)
        if site is None:
            raise EnvironmentFailed(
                f"{request.episode} wants the environment {request.task.environment!r}; this actor has "
                f"{', '.join(sorted(self._stage.sites))}. Name it in curriculum.environments."
            )
        began = time.monotonic()
        self._world = await self._stage.host.open_world(site)
        answerer = await self._answerer(self._world)
        start = await self._world.reset(request.task)
        observe_ms = (time.monotonic() - began) * 1000
        if not await self._record.start(instruction=start.instruction, renderer=settings.actors.renderer):
            return None
        episode = Episode(
            request,
            world=self._world,
            answerer=answerer,
            record=self._record,
            settings=settings.actors,
            screenshots=EpisodeScreenshots(
                self._world,
                keep=self._record.keep_image,
                settings=settings.actors,
                allowance=self._stage.screenshots,
            ),
            content=settings.telemetry.content,
        )
        return await episode.play(start, observe_ms=observe_ms)

    async def _answerer(self, world: EpisodeWorld) -> Answerer:
        """Raises LookupError when a demonstrated family has no demonstrator."""
        request, stage = self._request, self._stage
        actors, run_seed = stage.settings.actors, stage.settings.run.seed
        if request.origin == DEMONSTRATION:
            task = request.task
            demonstrate = stage.demonstrators[task.environment, task.family]
            return DemonstratorAnswerer(
                request,
                demonstrate=demonstrate,
                leaves_at=await last_page_action(world, task, demonstrate) if request.hasty else None,
                tokenizer=stage.engine.tokenizer,
                settings=actors,
                run_seed=run_seed,
                scaffold=scaffold_of(request.task, stage.settings.scaffold, binding=False),
                seeing=vision_engine(stage.engine, actors),
            )
        if isinstance(world, AgentWorld):
            return AgentAnswerer(
                request,
                world=world,
                engine=stage.engine,
                run_seed=run_seed,
                content=stage.settings.telemetry.content,
            )
        policy = PolicyAnswerer(
            request,
            engine=stage.engine,
            settings=actors,
            run_seed=run_seed,
            scaffold=scaffold_of(request.task, stage.settings.scaffold, dialect=actors.dialect),
            content=stage.settings.telemetry.content,
        )
        if request.branch is None:
            return policy
        recorded = await steps_before(stage.log, request.branch)
        timed = find_environment(request.task.environment).depends_on_time(request.task)
        return BranchAnswerer(recorded, policy, at=request.branch.step, timed=timed)

    async def _adopted(self) -> None:
        """Wait until the engine samples from the least version that may play it. Raises EngineFailed after the limit."""
        request, stage = self._request, self._stage
        limit_s = stage.settings.actors.generate_timeout_s
        if not await stage.adoption.reach(request.min_version, within_s=limit_s):
            version_text = f"policy version {request.min_version}"
            await self._record.exceeded(
                setting="actors.generate_timeout_s", limit_s=limit_s, waited_for=version_text
            )
            raise EngineFailed(
                f"{request.episode} wants {version_text} or newer; after {limit_s:g} s (actors.generate_timeout_s) this "
                f"actor still samples from {stage.engine.version}"
            )

    async def _abandon(self, error: Exception) -> Abandoned:
        steps = self._record.steps
        if self._stage.stopped:
            return Abandoned(reason="actor_stopped", detail="the actor was stopped", steps=steps)
        if isinstance(error, AttemptTimeout):
            limit_s = self._stage.settings.actors.episode_timeout_s
            await self._record.exceeded(
                setting="actors.episode_timeout_s", limit_s=limit_s, waited_for="the end of the episode"
            )
            return Abandoned(
                reason="episode_timeout",
                detail=f"not over after {limit_s:g} s (actors.episode_timeout_s)",
                steps=steps,
            )
        if isinstance(error, DiskFull):
            await self._record.exceeded(
                setting="storage.full_wait_s",
                limit_s=self._stage.settings.storage.full_wait_s,
                waited_for="room for a blob",
            )
        reason = next((name for kind, name in REASONS.items() if isinstance(error, kind)), "error")
        detail = str(error) if reason != "error" else f"{type(error).__name__}: {error}"
        # an unexpected error: its message alone does not show where it comes from
        cause = error if reason == "error" else None
        logger.warning(
            "episode abandoned", episode=self._request.episode, reason=reason, detail=detail, exc_info=cause
        )
        return Abandoned(reason=reason, detail=detail, steps=steps)
