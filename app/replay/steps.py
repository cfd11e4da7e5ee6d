"""`hindcast replay steps`: replays recorded episodes on their sites, in a separate browser and store.

    log ── recorded_episodes ──> as many at once as an actor plays ── drive ──> replays, in the order of the log

Invariant 9: nothing is appended. The log is opened for reading, the store runs in this process, and no model or endpoint
is called.
"""

import asyncio
import importlib.metadata
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from hindcast.actors.agents.world import AgentWorld
from hindcast.actors.environments.base import Venue
from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.replay.agent import NOTHING, ReplayedAgent
from hindcast.actors.replay.recorded import EpisodeSelection, map_concurrently, recorded_episodes
from hindcast.actors.replay.steps import MATTER, Cause, Difference, Surroundings, drive, explain
from hindcast.app.runs.sources import Source
from hindcast.app.system.sites import sites_running
from hindcast.core.errors import BrowserUnavailable, EnvironmentFailed, HindcastError
from hindcast.core.models.folders import policy_folder
from hindcast.core.settings.schema import ActorSettings
from hindcast.events.catalogue import EpisodeEnded
from hindcast.events.log.episode_assembler import AssembledEpisode

Outcome = Literal["same", "differs", "skipped", "failed"]


class NothingToReplay(HindcastError):
    """No episode of the run meets the conditions."""


class PlayedByAgent(HindcastError):
    """A program of the user's own played the run's episodes, and a replay would start it again."""


class EpisodeReplay(msgspec.Struct, frozen=True, kw_only=True):
    """Result of replaying one episode."""

    episode: str
    family: str
    origin: str
    outcome: Outcome
    """`skipped`: there is nothing to replay; `failed`: the world broke, so there is no result."""
    steps: int
    """Recorded steps."""
    whole: bool
    """Whether it ended by itself; else it is replayed up to its last step."""
    reason: str = ""
    """Why it was skipped or failed."""
    difference: Difference | None = None
    cause: Cause | None = None


class FamilyReplays(msgspec.Struct, frozen=True, kw_only=True):
    """Episodes of one family by outcome."""

    family: str
    same: int
    differs: int
    skipped: int
    failed: int


class StepsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Results of all replays."""

    run: str
    episodes: int
    same: int
    differs: int
    skipped: int
    failed: int
    steps: int
    """Steps of equal replays: the number of equal pages, and the results of the last actions."""
    families: tuple[FamilyReplays, ...]
    differing: tuple[EpisodeReplay, ...]
    """Replays that differ, with the first difference and its cause."""
    left_out: tuple[EpisodeReplay, ...]
    """Skipped and failed ones."""


async def replay_steps(
    source: Source,
    wanted: EpisodeSelection,
    *,
    said: Callable[[EpisodeReplay], None] = lambda _: None,
    trusted: bool = False,
    starts_agent: bool = False,
    ignored: re.Pattern[str] = NOTHING,
) -> StepsReport:
    """Replay the selected episodes. `said` is called with each finished one.

    `trusted`: whether secrets and resets named by the log's tasks may be used; a log may come from anyone.
    `starts_agent`: whether the program of `actors.agent` is started again, and gets the recorded answers.
    `ignored`: what does not count in the program's messages.

    Raises:
        PlayedByAgent: the run has `actors.agent`, which may not be started; nothing was.
        NothingToReplay: there is none.
        NoSuchEpisode, BrowserUnavailable, CorruptEvent: see `recorded_episodes` and `BrowserHost`.

    """
    settings = source.settings
    if settings.actors.agent and not starts_agent:
        raise PlayedByAgent(
            f"the episodes of run {source.name} were played by a program, actors.agent = {settings.actors.agent!r}. The log has "
            "its calls and the answers, not what it did between them, so its steps cannot be replayed without starting it, "
            "which may have effects of its own. If it may be started, add --start-agent. To check the answers alone, run: "
            f"hindcast replay sampling {source.name}"
        )
    async with (
        source.connect_log() as log,
        sites_running(settings, trusted=trusted) as sites,
        BrowserHost(_here(settings.actors)) as host,
    ):
        stage = _Stage(source, host=host, sites=sites, ignored=ignored)

        async def work(episode: AssembledEpisode) -> EpisodeReplay:
            replay = await stage.replay(episode)
            said(replay)
            return replay

        contexts = settings.actors.contexts
        replays = await map_concurrently(recorded_episodes(log, wanted), work, at_once=contexts)
    if not replays:
        raise NothingToReplay(
            f"run {source.name} has begun none of the selected episodes. Run: hindcast episode list {source.name}"
        )
    return _report(source.name, replays)


def _here(settings: ActorSettings) -> ActorSettings:
    """The run's settings for this machine: its browser may be elsewhere, and simulated slowness is not part of a page."""
    path = settings.browser_path if Path(settings.browser_path).is_file() else ""
    return settings.model_copy(update={"browser_path": path, "page_latency_ms": 0.0})


class _Stage:
    """Browser and sites that every replay uses."""

    def __init__(
        self, source: Source, *, host: BrowserHost, sites: dict[str, Venue], ignored: re.Pattern[str]
    ) -> None:
        self._source = source
        self._host = host
        self._sites = sites
        self._ignored = ignored
        self._now = {name: importlib.metadata.version(name) for name in MATTER}

    async def replay(self, episode: AssembledEpisode) -> EpisodeReplay:
        """Replay one episode; a second time if it differs, to distinguish chance from change."""
        if not episode.steps:
            reason = "no step of it was recorded"
            return self._outcome(episode, "skipped", reason=reason)
        if episode.request.task.environment not in self._sites:
            reason = f"there is no site {episode.request.task.environment!r} here"
            return self._outcome(episode, "skipped", reason=reason)
        try:
            difference = await self._drive(episode)
            if difference is None:
                return self._outcome(episode, "same")
            again = await self._drive(episode)
        except (EnvironmentFailed, BrowserUnavailable) as error:
            return self._outcome(episode, "failed", reason=str(error))
        cause = explain(
            episode.request.task,
            difference,
            again,
            then=Surroundings(code_rev=episode.code_rev, packages=episode.packages),
            now=Surroundings(code_rev=self._source.code_rev, packages=self._now),
        )
        return self._outcome(episode, "differs", difference=difference, cause=cause)

    async def _drive(self, episode: AssembledEpisode) -> Difference | None:
        world = await self._host.open_world(self._sites[episode.request.task.environment])
        try:
            played = world
            if isinstance(world, AgentWorld):
                facts = [step.fact for step in episode.steps]
                tokenizer = await asyncio.to_thread(self._tokenizer)
                played = ReplayedAgent(world, facts, tokenizer, ignored=self._ignored)
            return await drive(played, episode, self._source.blobs)
        finally:
            await world.close()

    def _tokenizer(self) -> Any:
        from hindcast.core.models.tokenizer import load_tokenizer  # imports transformers

        return load_tokenizer(policy_folder(self._source.settings.policy.base))

    @staticmethod
    def _outcome(
        episode: AssembledEpisode,
        outcome: Outcome,
        *,
        reason: str = "",
        difference: Difference | None = None,
        cause: Cause | None = None,
    ) -> EpisodeReplay:
        return EpisodeReplay(
            episode=episode.name,
            family=episode.family,
            origin=episode.request.origin,
            outcome=outcome,
            steps=len(episode.steps),
            whole=isinstance(episode.end, EpisodeEnded),
            reason=reason,
            difference=difference,
            cause=cause,
        )


def _report(run: str, replays: Sequence[EpisodeReplay]) -> StepsReport:
    def count(outcome: Outcome, among: Sequence[EpisodeReplay] = replays) -> int:
        return sum(1 for replay in among if replay.outcome == outcome)

    families = []
    for family in sorted({replay.family for replay in replays}):
        own = [replay for replay in replays if replay.family == family]
        families.append(
            FamilyReplays(
                family=family,
                same=count("same", own),
                differs=count("differs", own),
                skipped=count("skipped", own),
                failed=count("failed", own),
            )
        )
    return StepsReport(
        run=run,
        episodes=len(replays),
        same=count("same"),
        differs=count("differs"),
        skipped=count("skipped"),
        failed=count("failed"),
        steps=sum(replay.steps for replay in replays if replay.outcome == "same"),
        families=tuple(families),
        differing=tuple(replay for replay in replays if replay.outcome == "differs"),
        left_out=tuple(replay for replay in replays if replay.outcome in ("skipped", "failed")),
    )
