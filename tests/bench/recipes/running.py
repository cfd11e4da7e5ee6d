"""One row under one seed: train as a user would start it, then measure its versions on tasks that nobody trained on.

Resumable: a training that was cut off goes on in its home, a row whose result is kept is not run again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench.loop import LoopFailed, Point, choose_points, read_story, requests_for, train
from bench.recipes.config import Row, Table, identity
from bench.recipes.failures import KINDS, failure_kind
from bench.recipes.results import Result, Results
from hindcast.actors.environments.base import TaskSource
from hindcast.app.evaluation.evaluation import OutcomeTally, play
from hindcast.app.revision import code_revision
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.sites import task_sources
from hindcast.core.ids import digest_hex
from hindcast.core.models.folders import policy_folder
from hindcast.core.rl.statistics import wilson
from hindcast.core.settings.schema import Settings

Say = Callable[[str], None]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one row."""

    successes: int
    episodes: int
    lost: int
    mean_steps: float
    by_family: dict[str, tuple[int, int]]
    failures: dict[str, int]


def settings_of(table: Table, row: Row, *, seed: int) -> Settings:
    """What a row acts and trains under."""
    return resolve(recipe=row.recipe, overrides=[*table.settings_of(row), f"run.seed={seed}"]).settings


def identity_of(table: Table, row: Row) -> str:
    """Of a row as its recipe stands now: a changed recipe, or base policy, is another row."""
    settings = settings_of(table, row, seed=0)
    set_otherwise = settings.model_dump(mode="json", exclude_defaults=True)
    weights = sorted(policy_folder(settings.policy.base).glob("*.safetensors"))
    decides = (set_otherwise, [digest_hex(path.read_bytes()) for path in weights])
    return identity(table, row, msgspec.json.encode(decides, order="sorted"))


async def run_row(
    table: Table, row: Row, *, seed: int, folder: Path, results: Results, say: Say = lambda _line: None
) -> Result:
    """The row's result: kept from before, or trained, measured and kept.

    Raises:
        LoopFailed: the training did not end as it should.

    """
    settings, known = settings_of(table, row, seed=seed), identity_of(table, row)
    found = results.find(row.name, seed, known)
    if found is not None:
        return found
    home = folder / "runs" / f"{row.name}-{seed}-{known}"
    curve: list[Point] = []
    minutes, updates, played, events, digest = 0.0, 0, 0, 0, ""
    if row.updates == 0:
        measured = await measure(None, settings, families=table.families, episodes=table.episodes, seed=seed)
    else:
        say(f"{row.name}, seed {seed}: training for {row.updates} updates in {home}")
        handle = await asyncio.to_thread(
            train,
            row.name,
            [*table.settings_of(row), f"run.seed={seed}"],
            recipe=row.recipe,
            minutes=table.minutes,
            updates=row.updates,
            home=home,
        )
        story = await read_story(handle)
        if story.updates < row.updates:
            raise LoopFailed(
                f"{row.name} came to {story.updates} of {row.updates} updates within {table.minutes:g} minutes; see {home}. "
                "Run the same command again: it goes on there."
            )
        if not story.versions:
            raise LoopFailed(
                f"{row.name} published no version within its {row.updates} updates: give the row whole batches of them"
            )
        for version in choose_points(story.versions, table.points):
            measured = await measure(
                handle.blobs.path(version.weights),
                settings,
                families=table.families,
                episodes=table.episodes,
                seed=seed,
            )
            curve.append(_point(version.version, version.minutes, measured))
            say(
                f"{row.name}, seed {seed}, version {version.version}: {measured.successes} of {measured.episodes}"
            )
        minutes, updates, played = story.versions[-1].minutes, story.updates, story.training_episodes
        events, digest = story.events, story.log_digest
    result = Result(
        row=row.name,
        seed=seed,
        identity=known,
        **msgspec.structs.asdict(measured),
        curve=tuple(curve),
        updates=updates,
        minutes=round(minutes, 2),
        training_episodes=played,
        events=events,
        log_digest=digest,
        home="" if row.updates == 0 else str(home.relative_to(folder)),
        revision=code_revision(),
    )
    results.keep(result)
    return result


def _point(version: int, minutes: float, measured: Measured) -> Point:
    band = wilson(measured.successes, measured.episodes)
    return Point(
        version=version,
        minutes=round(minutes, 2),
        success=band.rate,
        low=band.low,
        high=band.high,
        episodes=measured.episodes,
    )


async def measure(
    weights: Path | None, settings: Settings, *, families: Sequence[str], episodes: int, seed: int
) -> Measured:
    """Greedy success of the base policy (None) or of a weights file, under the row's own way of acting."""
    sources: dict[str, TaskSource] = task_sources(settings)
    requests = requests_for(
        families, sources, settings=settings, seed=seed, episodes=episodes, temperature=0.0
    )
    tally = await play(
        requests, folder=policy_folder(settings.policy.base), weights=weights, settings=settings
    )
    tally.require_verdicts(", ".join(families))
    return summary_of(tally)


def summary_of(tally: OutcomeTally) -> Measured:
    """Counts by family, and failed episodes by kind."""
    by_family: dict[str, list[bool]] = defaultdict(list)
    failures: dict[str, int] = dict.fromkeys(KINDS, 0)
    for story in tally.decided:
        by_family[story.family].append(story.succeeded)
        if not story.succeeded:
            failures[failure_kind(story)] += 1
    return Measured(
        successes=tally.successes,
        episodes=sum(map(len, by_family.values())),
        lost=tally.lost,
        mean_steps=round(sum(len(s.steps) for s in tally.decided) / max(1, len(tally.decided)), 2),
        by_family={name: (sum(won), len(won)) for name, won in sorted(by_family.items())},
        failures=failures,
    )
