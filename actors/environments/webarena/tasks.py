"""WebArena's tasks as a `TaskSource`: families are sites, as the columns of the papers' tables."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from hindcast.actors.environments.base import ResetSemantics, TaskSource
from hindcast.actors.environments.web.definition import origin_of
from hindcast.actors.environments.webarena.addresses import (
    HOMEPAGE,
    NAMES,
    check_accounts,
    checked_addresses,
    checked_origins,
    fill,
    needed,
)
from hindcast.actors.environments.webarena.schema import SITES, Evaluation, Malformed, WebArenaTask, read_task
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import SiteSettings
from hindcast.core.structs import convert
from hindcast.core.text.plain_values import find_unkeepable


class TaskFile(NamedTuple):
    """The tasks of a file, in its order."""

    tasks: tuple[WebArenaTask, ...]
    """Tasks whose sites all have an address."""
    left_out: Mapping[str, int]
    """Site without an address -> number of tasks that need it."""
    missing: int
    """Number of tasks left out."""

    def describe(self) -> str:
        """How many tasks there are, how many were left out, and why, in words."""
        total = len(self.tasks) + self.missing
        if not self.missing:
            return f"all {total} tasks"
        lacking = ", ".join(f"{count} need {site}" for site, count in self.left_out.items())
        return (
            f"{len(self.tasks)} of {total} tasks; {self.missing} are left out without an address in "
            f"sites.webarena_sites: {lacking}"
        )


def read_file(path: Path, addresses: Mapping[str, str]) -> TaskFile:
    """Read and check a whole file, tasks without an address included.

    Raises:
        SettingsError: the file cannot be read, or an entry is not in the format: names file, task, key and value.
    """
    try:
        entries = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"sites.webarena_tasks: {path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"sites.webarena_tasks: {path} is no JSON: {error}") from error
    if not isinstance(entries, list):
        raise SettingsError(
            f"sites.webarena_tasks: {path} must hold a list of tasks, as WebArena's test.raw.json"
        )
    if reason := find_unkeepable(entries):
        raise SettingsError(f"sites.webarena_tasks: {path} {reason}")
    played, left_out_count, left_out = [], 0, Counter[str]()
    numbers: set[int] = set()
    for index, entry in enumerate(entries):
        try:
            task = read_task(entry)
            lacking = [name for name in needed(task) if name not in addresses]
            if task.number in numbers:
                raise Malformed("task_id", task.number, "an earlier task has it already")
        except Malformed as error:
            raise SettingsError(f"{path}: {_entry_name(entry, index)}: {error}") from error
        numbers.add(task.number)
        left_out.update(lacking)
        left_out_count += bool(lacking)
        if not lacking:
            played.append(task)
    ordered = {name: left_out[name] for name in NAMES if left_out[name]}
    return TaskFile(tuple(played), ordered, left_out_count)


def _entry_name(entry: object, index: int) -> str:
    if isinstance(entry, dict) and "task_id" in entry:
        return f"task_id {entry['task_id']!r}"
    return f"entry {index}"


ENVIRONMENT = "webarena"
SEVERAL = "multi"
"""The family of tasks on more than one site."""


class WebArenaGoal(msgspec.Struct, frozen=True, kw_only=True):
    """A task's `goal`: what sites and evaluators read, with addresses filled in."""

    number: int
    """`task_id` in the file."""
    sites: tuple[str, ...]
    origins: tuple[str, ...]
    start: tuple[str, ...]
    login: tuple[str, ...]
    evaluation: Evaluation


def goal_of(task: Task) -> WebArenaGoal:
    """The goal of one of this environment's tasks."""
    return convert(task.goal, WebArenaGoal)


def family_of(task: WebArenaTask) -> str:
    """The column that a task counts in.

    Both releases call a task on several sites `multi`. WebArena-Lite's results, however, count tasks on the map that also
    look something up in Wikipedia under the map.
    """
    sites = set(task.sites)
    if task.evaluation.rules == "lite" and "map" in sites:
        sites.discard("wikipedia")
    return sites.pop() if len(sites) == 1 else SEVERAL


class WebArenaTasks(TaskSource):
    """The `TaskSource` of a WebArena task file; needs no browser and no site."""

    name = ENVIRONMENT

    def __init__(self, settings: SiteSettings) -> None:
        self._settings = settings

    @property
    def resets(self) -> ResetSemantics:
        """The reset that `sites.webarena_resets` declares: all episodes share the sites' databases."""
        return self._settings.webarena_resets

    def families(self) -> tuple[str, ...]:
        """Sites with tasks, then `multi`."""
        return tuple(name for name in (*SITES, SEVERAL) if name in self._tasks)

    def task(self, family: str, seed: int) -> Task:
        """The task with this number in its family, in the file's order, starting over after the last.

        Raises SettingsError for a family without tasks.
        """
        tasks = self._tasks.get(family)
        if not tasks:
            raise SettingsError(
                f"webarena has no tasks of the family {family!r}; it has: {', '.join(self.families())} ({self.describe()})"
            )
        return tasks[seed % len(tasks)]

    def tasks(self) -> Sequence[Task]:
        """Every task once, family by family."""
        return [task for family in self.families() for task in self._tasks[family]]

    def describe(self) -> str:
        """How many tasks of the file can be played, and why not all, in words."""
        return self._file.describe()

    @cached_property
    def _addresses(self) -> dict[str, str]:
        return checked_addresses(self._settings.webarena_sites)

    @cached_property
    def _further(self) -> tuple[str, ...]:
        return checked_origins(self._settings.webarena_origins)

    @cached_property
    def _file(self) -> TaskFile:
        task_file = read_file(Path(self._settings.webarena_tasks).expanduser(), self._addresses)
        if not task_file.tasks:
            raise SettingsError(f"sites.webarena_tasks: nothing can be played. {task_file.describe()}")
        check_accounts(self._settings.webarena_accounts, task_file.tasks)
        return task_file

    @cached_property
    def _tasks(self) -> dict[str, list[Task]]:
        by_family: dict[str, list[Task]] = {}
        for task in self._file.tasks:
            of_family = by_family.setdefault(family_of(task), [])
            of_family.append(self._make(task, seed=len(of_family)))
        return by_family

    def _make(self, task: WebArenaTask, *, seed: int) -> Task:
        site_names = dict.fromkeys((*task.sites, *task.login))
        if HOMEPAGE in self._addresses:
            site_names[HOMEPAGE] = None
        goal = WebArenaGoal(
            number=task.number,
            sites=task.sites,
            origins=tuple(
                dict.fromkeys([*(origin_of(self._addresses[name]) for name in site_names), *self._further])
            ),
            start=task.start,
            login=task.login,
            evaluation=task.evaluation,
        )
        return Task(
            environment=ENVIRONMENT,
            family=family_of(task),
            seed=seed,
            instruction=task.intent,
            goal=msgspec.json.decode(msgspec.json.encode(fill(goal, self._addresses))),
            max_steps=self._settings.webarena_steps,
        )
