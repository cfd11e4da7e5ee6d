"""Decodes recorded settings: translates names of earlier versions and applies the changes of `recipe.changed` events."""

from collections.abc import Mapping
from typing import Any

from hindcast.core.errors import PluginError
from hindcast.core.rl.algorithm import fill_options, find_algorithm
from hindcast.core.settings.old_names import OPTIONS, translate
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.core.settings.section import RECORDED

TABLE = "learner.options"
"""The only table of which every entry is a setting with its own dotted key."""


def upcast(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Translate recorded settings to today's names.

    Earlier versions recorded the options of all algorithms; options that the run's algorithm does not declare are dropped.
    """
    sections = translate(recorded)
    learner = sections.get("learner")
    if not isinstance(learner, dict) or not OPTIONS & learner.get("options", {}).keys():
        return sections
    try:
        declared = find_algorithm(learner.get("algorithm", LearnerSettings().algorithm)).options
    except PluginError:
        return sections
    dropped = OPTIONS - set(declared.__struct_fields__)
    options = {name: value for name, value in learner["options"].items() if name not in dropped}
    return {**sections, "learner": {**learner, "options": options}}


def decode_settings(recorded: Mapping[str, Any]) -> Settings:
    """Decode the recorded settings of a run. They may exceed today's upper bounds.

    Raises:
        ValidationError: a setting has a value that it does not allow.
        SettingsError: an option of the algorithm has a value that it does not allow.

    """
    settings = Settings.model_validate(upcast(recorded), context=RECORDED)
    try:
        return fill_options(settings)
    except PluginError:
        return settings  # the settings can still be shown; training requires the plugin


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Apply changes to settings: sections are merged, values replaced."""
    merged = dict(base)
    for key, value in changes.items():
        section = merged.get(key)
        merged[key] = (
            merge(section, value) if isinstance(section, dict) and isinstance(value, dict) else value
        )
    return merged


def apply_change(settings: Settings, changes: dict[str, Any]) -> Settings:
    """Apply a recorded change, also one with names of earlier versions. Raises the errors of `decode_settings`."""
    return decode_settings(merge(settings.model_dump(mode="json"), translate(changes)))


def flatten_settings(settings: Settings) -> dict[str, Any]:
    """List all values by dotted key, as the log records them; an option has the key `learner.options.NAME`."""
    flat: dict[str, Any] = {}
    for section, values in settings.model_dump(mode="json").items():
        for name, value in values.items():
            setting = f"{section}.{name}"
            flat |= (
                {f"{setting}.{key}": item for key, item in value.items()}
                if setting == TABLE
                else {setting: value}
            )
    return flat


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn values by dotted key into nested sections, as in `run.started`. The inverse of `flatten_settings`."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        target = nested
        for section in sections:
            target = target.setdefault(section, {})
        target[name] = value
    return nested
