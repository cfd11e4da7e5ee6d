"""Task files: TOML with `[defaults]` and `[[tasks]]`, or JSONL with a task per line after an optional `{"defaults": …}`."""

import json
import re
from pathlib import Path
from typing import Any

from hindcast.actors.environments.web.definition import DefinitionError, WebTask, task_of, to_plain_values
from hindcast.core.errors import SettingsError
from hindcast.core.text.plain_values import find_unkeepable, parse_json, parse_toml
from hindcast.core.text.toml import as_toml


def read_tasks(path: Path) -> tuple[dict[str, Any], ...]:
    """Read the tasks of a file, each complete: defaults filled in, checked, in plain values.

    Raises:
        SettingsError: names file, task, key and value.
    """
    defaults, entries = _read_file(path)
    if reason := find_unkeepable(defaults):
        raise SettingsError(f"{path}, defaults: the table {reason}")
    if not entries:
        raise SettingsError(f"the task file {path} has no task. In TOML a task is a table [[tasks]]")
    tasks: dict[str, dict[str, Any]] = {}
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            raise SettingsError(f"{path}, task {number}: {entry!r} is no table of keys and values")
        name = entry.get("name", f"number {number}")
        if reason := find_unkeepable(entry):
            raise SettingsError(f"{path}, task number {number} {reason}")
        try:
            task = task_of(filled(defaults, entry))
        except DefinitionError as wrong:
            raise SettingsError(f"{path}, task {name!r}: {wrong}") from wrong
        if task.name in tasks:
            raise SettingsError(f"{path}, task {name!r}: name: another task of the file has it")
        tasks[task.name] = to_plain_values(task)
    return tuple(tasks.values())


def read_defaults(path: Path) -> dict[str, Any]:
    """The defaults of a file's tasks. Raises SettingsError when it cannot be read."""
    return _read_file(path)[0]


def _read_file(path: Path) -> tuple[dict[str, Any], list[Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SettingsError(f"the task file {path} cannot be read: {error}") from error
    return _jsonl(path, text) if path.suffix == ".jsonl" else _toml(path, text)


def filled(defaults: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """An entry over the defaults. A way of judging replaces the other one."""
    inherited = dict(defaults)
    for present, replaced in (("judge", "checks"), ("checks", "judge")):
        if present in entry and present not in defaults:
            inherited.pop(replaced, None)
    return inherited | entry


def _toml(path: Path, text: str) -> tuple[dict[str, Any], list[Any]]:
    try:
        content = parse_toml(text)
    except ValueError as error:
        raise SettingsError(f"the task file {path} is not TOML: {error}") from error
    unknown = sorted(set(content) - {"defaults", "tasks"})
    if unknown:
        raise SettingsError(f"{path}: {unknown[0]} is unknown; a task file has [defaults] and [[tasks]]")
    defaults, entries = content.get("defaults", {}), content.get("tasks", [])
    if not isinstance(defaults, dict) or not isinstance(entries, list):
        raise SettingsError(f"{path}: a task file has [defaults], a table, and [[tasks]], a list of tables")
    return defaults, entries


def _jsonl(path: Path, text: str) -> tuple[dict[str, Any], list[Any]]:
    defaults: dict[str, Any] = {}
    entries: list[Any] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            entry = parse_json(line)
        except ValueError as error:
            raise SettingsError(f"{path}, line {number} is not JSON: {error}") from error
        if isinstance(entry, dict) and set(entry) == {"defaults"} and isinstance(entry["defaults"], dict):
            if entries:
                raise SettingsError(f"{path}, line {number}: defaults come before all tasks")
            defaults = entry["defaults"]
        else:
            entries.append(entry)
    return defaults, entries


def name_for(instruction: str) -> str:
    """Make a task's name from its first words.

    >>> name_for("What is Grace Hopper's number?")
    'what-is-grace-hopper-s'
    """
    words = re.findall(r"[a-z0-9]+", instruction.lower())
    return "-".join(words[:5])[:64] or "task"


def append_task(path: Path, task: WebTask) -> None:
    """Append a task to a file, without the values of the file's defaults; create the file if there is none.

    Raises:
        SettingsError: the file is invalid, or has a task of this name.
    """
    content_before = path.read_text() if path.exists() else ""
    defaults = read_defaults(path) if content_before else {}
    if content_before and task.name in {existing["name"] for existing in read_tasks(path)}:
        raise SettingsError(f"{path} has a task {task.name!r} already: choose another --name")
    content = {key: value for key, value in to_plain_values(task).items() if defaults.get(key) != value}
    if path.suffix == ".jsonl":
        entry = json.dumps(content, ensure_ascii=False)
    else:
        entry = "\n".join(["", "[[tasks]]", *(f"{key} = {as_toml(value)}" for key, value in content.items())])
    gap = "" if not content_before or content_before.endswith("\n") else "\n"
    path.write_text(f"{content_before}{gap}{entry}\n")
