"""Appends a task to a task file, in the form that a person would write."""

import json
import re
from pathlib import Path

from hindcast.actors.environments.web.definition import WebTask, plain
from hindcast.actors.environments.web.files import read_defaults, read_tasks
from hindcast.core.errors import SettingsError
from hindcast.core.text.toml import as_toml


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
    before = path.read_text() if path.exists() else ""
    defaults = read_defaults(path) if before else {}
    if before and task.name in {known["name"] for known in read_tasks(path)}:
        raise SettingsError(f"{path} has a task {task.name!r} already: choose another --name")
    content = {key: value for key, value in plain(task).items() if defaults.get(key) != value}
    if path.suffix == ".jsonl":
        entry = json.dumps(content, ensure_ascii=False)
    else:
        entry = "\n".join(["", "[[tasks]]", *(f"{key} = {as_toml(value)}" for key, value in content.items())])
    gap = "" if not before or before.endswith("\n") else "\n"
    path.write_text(f"{before}{gap}{entry}\n")
