"""Rewrites settings files of earlier versions: moves settings of `[learner]` that are now options of the algorithm."""

import re
from pathlib import Path

from hindcast.core.errors import SettingsError
from hindcast.core.settings.old_names import OPTIONS, translate
from hindcast.core.text.plain_values import parse_toml

_HEADER = re.compile(r"\s*\[\s*(.+?)\s*\]")
_KEY = re.compile(r"\s*(?:learner\s*\.\s*)?(\w+)\s*=")


def migrate_toml(path: Path) -> tuple[str, dict[str, str]]:
    """Rewrite a settings file to today's names. Returns the new content and the changed keys: old -> new.

    Comments stay; those above a setting move with it.

    Raises:
        SettingsError: the file cannot be read, is not TOML, or does not have each moved setting on its own line.

    """
    try:
        text = path.read_text(encoding="utf-8")
        before = parse_toml(text)
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    learner = before.get("learner", {})
    moved = [name for name in learner if name in OPTIONS] if isinstance(learner, dict) else []
    if not moved:
        return text, {}
    after = _move(text)
    try:
        same = parse_toml(after) == translate(before)
    except ValueError:
        same = False
    if not same:
        raise SettingsError(
            f"{path} cannot be rewritten: write each of {', '.join(moved)} on its own line below [learner], and run this "
            "command again"
        )
    return after, {f"learner.{name}": f"learner.options.{name}" for name in moved}


def _move(text: str) -> str:
    kept: list[str] = []
    options: list[str] = []
    comments: list[str] = []
    section, end, table = "", None, None
    for line in text.splitlines():
        if header := _HEADER.match(line):
            section = header[1]
        in_learner = section == "learner" or (not section and line.lstrip().startswith("learner"))
        key = _KEY.match(line)
        if in_learner and line.lstrip().startswith("#"):
            comments.append(line)
            continue
        if in_learner and key and key[1] in OPTIONS:
            options += [*comments, f"{key[1]} ={line.partition('=')[2]}"]
            comments = []
            continue
        kept += [*comments, line]
        comments = []
        if section == "learner.options" and header:
            table = len(kept)
        elif section == "learner" and line.strip():
            end = len(kept)
    kept += comments
    if table is not None:
        return "\n".join([*kept[:table], *options, *kept[table:]]) + "\n"
    place = len(kept) if end is None else end
    return "\n".join([*kept[:place], "", "[learner.options]", *options, *kept[place:]]) + "\n"
