"""Changes of settings during a run, as `recipe.changed` records them."""

from typing import Any

from hindcast.core.settings.schema import Settings


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Apply changes to settings: sections are merged, values replaced."""
    merged = dict(base)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = merge(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


def changed(settings: Settings, changes: dict[str, Any]) -> Settings:
    """Apply a change and validate the result. Raises ValidationError."""
    return Settings.model_validate(merge(settings.model_dump(mode="json"), changes))
