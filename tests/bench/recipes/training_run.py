"""A training run of a row: started as a user would start it, and what its log tells afterwards."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.command import hindcast
from hindcast.actors.environments.base import TaskSource
from hindcast.app.evaluation.evaluation import plan_requests
from hindcast.app.runs.runs import RunHandle, list_runs, open_run
from hindcast.core.domain.task import FIRST_EVALUATION_SEED
from hindcast.core.errors import HindcastError
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    BlobReleased,
    EpisodeEnded,
    EpisodeRequested,
    RunForked,
    UpdateApplied,
    WeightsPublished,
)
from hindcast.events.envelope import BlobRef
from hindcast.events.log.hash_chain import RollingDigest
from hindcast.events.log.reader import read

SEEDS_APART = 10_000
"""Evaluation tasks of one run seed begin this far from those of the next."""
OVERHEAD_S = 300.0
"""How much longer than its minutes a finite start may take: start, drain, stop."""


class TrainingFailed(HindcastError):
    """A row's training did not end as it should."""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A policy version whose weights are still there."""

    version: int
    minutes: float
    weights: BlobRef


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """What the log of a run tells; of a fork what follows its parent's part."""

    versions: list[Version]
    updates: int
    last_update: int
    """Number of the last, the parent's counted."""
    training_episodes: int
    events: int
    log_digest: str


def requests_for(
    families: Sequence[str],
    sources: dict[str, TaskSource],
    *,
    settings: Settings,
    seed: int,
    episodes: int,
    temperature: float,
) -> list[EpisodeRequested]:
    """At least `episodes` unseen tasks, as many of each family; the same for every policy under one run seed."""
    by_site: dict[str, list[str]] = {}
    for family in families:
        site, _, short = family.partition("/")
        by_site.setdefault(site, []).append(short)
    each = -(-episodes // len(families))
    return [
        request
        for site, names in by_site.items()
        for request in plan_requests(
            sources[site],
            episodes=each * len(names),
            families=names,
            temperature=temperature,
            lease_s=settings.episode_lease_s,
            first_seed=FIRST_EVALUATION_SEED + seed * SEEDS_APART,
        )
    ]


def train(
    name: str, overrides: Sequence[str], *, recipe: str, minutes: float, updates: int | None, home: Path
) -> RunHandle:
    """`hindcast start --until minutes=M` as a user would type it; what it says goes to `<home>/start.log`.

    With `updates` it ends after so many, a parent's counted, if that is sooner. A run that stands in `home` already goes on.

    Raises:
        TrainingFailed: it ended with another status, or not in time.

    """
    home.mkdir(parents=True, exist_ok=True)
    command = start_command(name, overrides, recipe=recipe, minutes=minutes, updates=updates, home=home)
    with (home / "start.log").open("ab") as output:
        try:
            status = subprocess.run(
                command,
                env={**os.environ, "HINDCAST_HOME": str(home)},
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=minutes * 60 + OVERHEAD_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise TrainingFailed(
                f"training did not end within {error.timeout:.0f} s; see {home / 'start.log'}"
            ) from error
    if status != 0:
        raise TrainingFailed(f"hindcast start ended with status {status}; see {home / 'start.log'}")
    return open_run(name, home=home)


def start_command(
    name: str, overrides: Sequence[str], *, recipe: str, minutes: float, updates: int | None, home: Path
) -> list[str]:
    """The command that begins the run, or resumes it: then without settings, which its first event has fixed.

    The run has no evaluations of its own: the bench evaluates afterwards, so that all of the time is for training.
    """
    command = hindcast("start", "--run", name, "--until", f"minutes={minutes:g}")
    command += [] if updates is None else ["--until", f"updates={updates}"]
    if name in list_runs(home):
        return command
    chosen = ["evaluation.every=0", *overrides]
    return [*command, "--recipe", recipe, *(part for override in chosen for part in ("--set", override))]


async def read_story(handle: RunHandle) -> Story:
    """Versions, counts and digest of a run's log."""
    digest = RollingDigest()
    began = updates = before = episodes = position = 0
    requested: dict[str, str] = {}
    published: list[tuple[int, int, BlobRef]] = []
    released: set[str] = set()
    async with handle.connect_log() as log:
        async for recorded in read(log, after=0):
            position = recorded.position
            digest.advance(recorded.digest)
            match recorded.fact:
                case RunForked():
                    began, before, episodes, published = 0, updates, 0, []
                case EpisodeRequested() as fact:
                    began = began or recorded.envelope.occurred_ns
                    requested[fact.episode] = fact.origin
                case BatchPlanned():  # of demonstrations that a parent recorded: no episode is requested
                    began = began or recorded.envelope.occurred_ns
                case EpisodeEnded(episode=episode):
                    episodes += requested.get(episode) == "online"
                case UpdateApplied(model="policy", update=update):
                    updates = update
                case WeightsPublished(model="policy", version=version, weights=weights):
                    published.append((version, recorded.envelope.occurred_ns, weights))
                case BlobReleased(blob=blob):
                    released.add(blob.sha256)
    versions = [
        Version(version=version, minutes=max(0.0, (occurred_ns - began) / 60e9), weights=weights)
        for version, occurred_ns, weights in published
        if version > 0 and weights.sha256 not in released
    ]
    return Story(
        versions=versions,
        updates=updates - before,
        last_update=updates,
        training_episodes=episodes,
        events=position,
        log_digest=digest.value.hex(),
    )


def choose_points(versions: Sequence[Version], count: int) -> list[Version]:
    """`count` versions, the last among them, as evenly spread over time as those still kept allow."""
    if not versions:
        return []
    last = versions[-1].minutes
    wanted = [last * (index + 1) / count for index in range(count)]
    chosen = {min(versions, key=lambda one: abs(one.minutes - at)).version for at in wanted}
    return [one for one in versions if one.version in chosen]
