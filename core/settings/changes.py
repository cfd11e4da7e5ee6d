"""Settings as the log records them: decoding, and the changes of `recipe.changed`."""

from collections.abc import Mapping
from typing import Any

from hindcast.core.settings.schema import Settings
from hindcast.core.settings.section import RECORDED


def decode_settings(recorded: Mapping[str, Any]) -> Settings:
    """The recorded settings of a run, which may exceed today's upper bounds. Raises ValidationError."""
    return Settings.model_validate(recorded, context=RECORDED)


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Apply changes to settings: sections are merged, values replaced."""
    merged = dict(base)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = merge(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


def changed(settings: Settings, changes: dict[str, Any]) -> Settings:
    """Apply a change and validate the result. Raises ValidationError."""
    return decode_settings(merge(settings.model_dump(mode="json"), changes))
