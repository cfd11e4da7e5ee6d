"""Settings as the log records them: names of earlier versions, decoding, and the changes of `recipe.changed`."""

from collections.abc import Mapping
from typing import Any

from hindcast.core.errors import PluginError
from hindcast.core.rl.algorithm import fill_options, find_algorithm
from hindcast.core.settings.old_names import OPTIONS, translate
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.core.settings.section import RECORDED

TABLE = "learner.options"
"""The one table of settings whose entries have dotted keys of their own."""


def upcast(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded settings under today's names. Earlier versions recorded the options of all algorithms: the others' are left out."""
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
    """The recorded settings of a run, which may exceed today's upper bounds.

    Raises:
        ValidationError: a value is not what its setting allows.
        SettingsError: an option of the algorithm is not.

    """
    settings = Settings.model_validate(upcast(recorded), context=RECORDED)
    try:
        return fill_options(settings)
    except PluginError:
        return settings  # it can be shown; training asks for the plugin


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Apply changes to settings: sections are merged, values replaced."""
    merged = dict(base)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = merge(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


def changed(settings: Settings, changes: dict[str, Any]) -> Settings:
    """Apply a change, under whatever names it was recorded. Raises as `decode_settings`."""
    return decode_settings(merge(settings.model_dump(mode="json"), translate(changes)))


def dotted(settings: Settings) -> dict[str, Any]:
    """Every value by dotted key, as the log records values; the algorithm's options apart, as `learner.options.clip_low`."""
    found: dict[str, Any] = {}
    for section, values in settings.model_dump(mode="json").items():
        for name, value in values.items():
            one = f"{section}.{name}"
            found |= {f"{one}.{key}": each for key, each in value.items()} if one == TABLE else {one: value}
    return found


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of values by dotted key, as `run.started` has them."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        inner = nested
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return nested
