"""One row under one seed: train as a user would start it, then measure its versions on tasks that nobody trained on.

    parent's row ──hindcast fork──> run ──hindcast start──> versions ──played on unseen tasks──> result

Resumable: a training that was cut off goes on in its home, a row whose result is kept is not run again.
"""

import asyncio
import os
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.cli.printing import machine
from bench.command import hindcast
from bench.recipes.config import Row, Table, identity
from bench.recipes.diagnostics import diagnose
from bench.recipes.failures import KINDS, failure_kind
from bench.recipes.results import LOST, UNDECIDED, WON, Measurement, Result, Results
from bench.recipes.training_run import Story, TrainingFailed, choose_points, read_story, requests_for, train
from hindcast.app.evaluation.evaluation import OutcomeTally, play
from hindcast.app.revision import code_revision
from hindcast.app.runs.fork import FIXED
from hindcast.app.runs.runs import list_runs, open_run
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.sites import task_sources
from hindcast.core.ids import digest_hex
from hindcast.core.models.folders import policy_folder
from hindcast.core.settings.changes import flatten_settings
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import EpisodeRequested

Say = Callable[[str], None]
FORK_S = 300.0
"""Time limit of a fork."""


def settings_of(table: Table, row: Row, *, seed: int) -> Settings:
    """What a row acts and trains under."""
    return resolve(recipe=row.recipe, overrides=[*table.settings_of(row), f"run.seed={seed}"]).settings


def identity_of(table: Table, row: Row) -> str:
    """Of a row as its recipe, and its parents', stand now: a changed recipe, or base policy, is another row."""
    line = [settings_of(table, one, seed=0) for one in table.line_of(row)]
    set_otherwise = [settings.model_dump(mode="json", exclude_defaults=True) for settings in line]
    weights = sorted(policy_folder(line[0].policy.base).glob("*.safetensors"))
    decides = (set_otherwise, [digest_hex(path.read_bytes()) for path in weights])
    return identity(table, row, msgspec.json.encode(decides, order="sorted"))


class Runner:
    """Runs rows of a table and keeps their results."""

    def __init__(
        self, table: Table, *, folder: Path, results: Results, say: Say = lambda _line: None
    ) -> None:
        """`folder`: of the runs."""
        self._table, self._folder, self._results, self._say = table, folder, results, say

    def kept(self, row: Row, seed: int) -> Result | None:
        """The result that is kept of a row, whichever run of its parent it began with."""
        return self._results.find(row.name, seed, identity_of(self._table, row))

    def _usable(self, row: Row, seed: int) -> Result | None:
        """The result that is kept of a row, unless its parent was trained anew since."""
        parent = self._usable(self._table.row(row.parent), seed) if row.parent else None
        if row.parent and parent is None:
            return None
        above = parent.log_digest if parent is not None else ""
        return self._results.find(row.name, seed, identity_of(self._table, row), parent_log=above)

    async def run(self, row: Row, *, seed: int) -> Result:
        """The row's result: kept from before, or trained, measured and kept. Its parent must have been run.

        Raises:
            TrainingFailed: the training did not end as it should.

        """
        found = self._usable(row, seed)
        if found is not None and (not self._is_parent(row) or self._home(found).is_dir()):
            return found
        parent = await self.run(self._table.row(row.parent), seed=seed) if row.parent else None
        result = await (
            self._trained(row, seed, parent) if row.trained else self._untrained(row, seed, parent)
        )
        self._results.keep(result)
        return result

    def _is_parent(self, row: Row) -> bool:
        """Whether a row has rows that begin with it, which need its run and not only its result."""
        return row.trained and any(other.parent == row.name for other in self._table.rows)

    def _home(self, result: Result) -> Path:
        return self._folder / result.home

    async def _untrained(self, row: Row, seed: int, parent: Result | None) -> Result:
        """The base policy, or the parent's last version, under this row's way of acting."""
        weights = None
        if parent is not None:
            handle = open_run(run_name(parent), home=self._home(parent))
            weights = handle.blobs.path((await read_story(handle)).versions[-1].weights)
        measured = await self._measured(row, [(0, 0.0, weights)], seed=seed)
        return self._result(row, seed, measured, parent)

    async def _trained(self, row: Row, seed: int, parent: Result | None) -> Result:
        name = f"{row.name}-{seed}-{identity_of(self._table, row)}"
        home = self._home(parent) if parent is not None else self._folder / "runs" / name
        if parent is not None and name not in list_runs(home):
            self._fork(name, row, seed, parent)
        length = f"{row.minutes:g} minutes" if row.minutes else f"{row.updates} updates"
        self._say(f"{row.name}, seed {seed}: training for {length} in {home}")
        handle = await asyncio.to_thread(
            train,
            name,
            [*self._table.settings_of(row), f"run.seed={seed}"],
            recipe=row.recipe,
            minutes=row.minutes or self._table.minutes,
            updates=None if row.minutes else row.updates + (parent.last_update if parent is not None else 0),
            home=home,
        )
        story = await read_story(handle)
        self._require_whole(row, story, home)
        versions = [
            (one.version, one.minutes, handle.blobs.path(one.weights))
            for one in choose_points(story.versions, self._table.points)
        ]
        measured = await self._measured(row, versions, seed=seed)
        return msgspec.structs.replace(
            self._result(row, seed, measured, parent),
            updates=story.updates,
            last_update=story.last_update,
            minutes=round(story.versions[-1].minutes, 2),
            training_episodes=story.training_episodes,
            events=story.events,
            log_digest=story.log_digest,
            home=str(home.relative_to(self._folder)),
            diagnostics=await diagnose(handle),
        )

    def _result(
        self, row: Row, seed: int, measured: tuple[Measurement, ...], parent: Result | None
    ) -> Result:
        return Result(
            row=row.name,
            seed=seed,
            identity=identity_of(self._table, row),
            measurements=measured,
            parent_log="" if parent is None else parent.log_digest,
            revision=code_revision(),
            machine=machine(),
        )

    def _fork(self, name: str, row: Row, seed: int, parent: Result) -> None:
        """Make the run as a fork of the parent's end. Raises TrainingFailed."""
        above = settings_of(self._table, self._table.row(parent.row), seed=seed)
        changed = differing(above, settings_of(self._table, row, seed=seed))
        command = hindcast("fork", run_name(parent), "--at", "end", "--name", name)
        for key, value in changed.items():
            command += ["--set", f"{key}={msgspec.json.encode(value).decode()}"]
        home = self._home(parent)
        done = subprocess.run(
            command,
            env={**os.environ, "HINDCAST_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=FORK_S,
            check=False,
        )
        if done.returncode:
            raise TrainingFailed(
                f"{row.name} cannot begin with {parent.row} in {home}: {done.stderr.strip()[-500:]}"
            )

    def _require_whole(self, row: Row, story: Story, home: Path) -> None:
        if story.updates < row.updates:
            raise TrainingFailed(
                f"{row.name} came to {story.updates} of {row.updates} updates within {self._table.minutes:g} minutes; see "
                f"{home}. Run the same command again: it goes on there."
            )
        if not story.versions:
            raise TrainingFailed(
                f"{row.name} published no version within its {row.updates} updates: give the row whole batches of them"
            )

    async def _measured(
        self, row: Row, versions: Sequence[tuple[int, float, Path | None]], *, seed: int
    ) -> tuple[Measurement, ...]:
        """Every version (number, minutes, weights) at every temperature, under the row's own way of acting."""
        settings, found = settings_of(self._table, row, seed=seed), []
        families = self._table.families_of(row)
        sources = task_sources(settings)
        for version, minutes, weights in versions:
            for temperature in self._table.temperatures:
                requests = requests_for(
                    families,
                    sources,
                    settings=settings,
                    seed=seed,
                    episodes=self._table.episodes,
                    temperature=temperature,
                )
                tally = await play(
                    requests, folder=policy_folder(settings.policy.base), weights=weights, settings=settings
                )
                tally.require_verdicts(", ".join(families))
                one = measurement(tally, requests, version=version, minutes=minutes, temperature=temperature)
                self._say(
                    f"{row.name}, seed {seed}, version {version}, temperature {temperature:g}: {one.successes} of {one.episodes}"
                )
                found.append(one)
        return tuple(found)


def run_name(result: Result) -> str:
    """The name of a result's run in its home."""
    return f"{result.row}-{result.seed}-{result.identity}"


def differing(above: Settings, own: Settings) -> dict[str, Any]:
    """What a fork must set, so that a run under `above` goes on under `own`: the options of its algorithm without those that it has not."""
    then, now = flatten_settings(above), flatten_settings(own)
    return {
        key: value
        for key, value in now.items()
        if key not in FIXED and (key not in then or then[key] != value)
    }


def measurement(
    tally: OutcomeTally,
    requests: Sequence[EpisodeRequested],
    *,
    version: int,
    minutes: float,
    temperature: float,
) -> Measurement:
    """Outcomes by family in the tasks' order, and failed episodes by kind."""
    outcomes: dict[str, str] = defaultdict(str)
    for request in requests:
        found = tally.by_task.get(request.task.id, [])
        family = f"{request.task.environment}/{request.task.family}"
        outcomes[family] += UNDECIDED if not found else WON if found[0] else LOST
    failures: dict[str, int] = dict.fromkeys(KINDS, 0)
    for episode in tally.decided:
        if not episode.succeeded:
            failures[failure_kind(episode)] += 1
    return Measurement(
        temperature=temperature,
        version=version,
        minutes=round(minutes, 2),
        outcomes=dict(outcomes),
        mean_steps=round(sum(len(one.steps) for one in tally.decided) / max(1, len(tally.decided)), 2),
        failures=failures,
    )
