"""Reads a task file in its released form: a JSON list of tasks."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from hindcast.actors.environments.webarena.addresses import NAMES, needed
from hindcast.actors.environments.webarena.schema import Malformed, WebArenaTask, read_task
from hindcast.core.errors import SettingsError
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
        whole = len(self.tasks) + self.missing
        if not self.missing:
            return f"all {whole} tasks"
        lacking = ", ".join(f"{count} need {site}" for site, count in self.left_out.items())
        return (
            f"{len(self.tasks)} of {whole} tasks; {self.missing} are left out without an address in "
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
    if why := find_unkeepable(entries):
        raise SettingsError(f"sites.webarena_tasks: {path} {why}")
    played, missing, left_out = [], 0, Counter[str]()
    seen: set[int] = set()
    for place, entry in enumerate(entries):
        try:
            task = read_task(entry)
            lacking = [name for name in needed(task) if name not in addresses]
            if task.number in seen:
                raise Malformed("task_id", task.number, "an earlier task has it already")
        except Malformed as error:
            raise SettingsError(f"{path}: {_which(entry, place)}: {error}") from error
        seen.add(task.number)
        left_out.update(lacking)
        missing += bool(lacking)
        if not lacking:
            played.append(task)
    ordered = {name: left_out[name] for name in NAMES if left_out[name]}
    return TaskFile(tuple(played), ordered, missing)


def _which(entry: object, place: int) -> str:
    if isinstance(entry, dict) and "task_id" in entry:
        return f"task_id {entry['task_id']!r}"
    return f"entry {place}"
