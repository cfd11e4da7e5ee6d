"""Settings of a recorded run with another endpoint: who is asked about it later need not be who was named when it began."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from app.configuration import from_override
from app.endpoint_conflicts import endpoint_conflicts
from core.errors import SettingsError
from core.settings import Settings

SECTION = "endpoint"
WAIT = "judge.timeout_s"
"""A model may need longer than rules do."""


def asked_settings(settings: Settings, overrides: Sequence[str]) -> Settings:
    """The run's settings with values of its `endpoint`, and of `judge.timeout_s`, replaced.

    Raises:
        SettingsError: it is another setting, or no value that it may have.

    """
    values: dict[str, Any] = settings.model_dump()
    for text in overrides:
        ((key, value),) = from_override(text).values.items()
        section, _, name = key.partition(".")
        if section != SECTION and key != WAIT:
            raise SettingsError(
                f"--set {key}: a recorded run keeps its settings; only {SECTION}.* and {WAIT} can be given"
            )
        values[section][name] = value
    try:
        changed = Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(
            "\n".join(f"--set {one['loc']}: {one['msg']}" for one in error.errors())
        ) from error
    wrong = endpoint_conflicts(changed) if overrides else []
    if wrong:
        raise SettingsError("\n".join(wrong))
    return changed
