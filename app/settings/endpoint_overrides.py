"""Settings with another endpoint or judge's model: what judges a run later, or acts instead of its policy, need not be what
the run names."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from hindcast.app.settings.checks.endpoint import endpoint_conflicts
from hindcast.app.settings.configuration import from_override
from hindcast.core.errors import SettingsError
from hindcast.core.settings.endpoint import ENDPOINT
from hindcast.core.settings.schema import Settings

SECTION = "endpoint"
JUDGE = ("judge.timeout_s", "judge.webrl_orm", "judge.webrl_orm_server", "judge.webrl_orm_tokens")
"""Settings of a judge that reads with a model: where it is, and how long it may take."""


def asked_settings(settings: Settings, overrides: Sequence[str]) -> Settings:
    """The run's settings with values of its `endpoint`, and of `JUDGE`, replaced.

    Raises:
        SettingsError: it is another setting, or no value that it may have.

    """
    values: dict[str, Any] = settings.model_dump()
    for text in overrides:
        ((key, value),) = from_override(text).values.items()
        section, _, name = key.partition(".")
        if section != SECTION and key not in JUDGE:
            raise SettingsError(
                f"--set {key}: a recorded run keeps its settings; only {SECTION}.* and {', '.join(JUDGE)} can be given"
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


def asked_at_once(settings: Settings, *, usual: int) -> int:
    """How many episodes to ask about at the same time: as many as fit a batch where the endpoint is asked in batches."""
    return settings.endpoint.batch_questions if settings.endpoint.batch else usual


def policy_asked(policy: str, settings: Settings) -> Settings | None:
    """The settings under which `endpoint` or `endpoint:MODEL` acts; None: the policy is another.

    Raises:
        SettingsError: they name no server or no model, or a scaffold that would constrain it.

    """
    name, _, model = policy.partition(":")
    if name != ENDPOINT:
        return None
    endpoint = settings.endpoint.model_copy(update={"model": model or settings.endpoint.model})
    if not (endpoint.base_url and endpoint.model):
        raise SettingsError(
            "--policy endpoint:MODEL needs a model and a server: --set endpoint.base_url=http://127.0.0.1:8000/v1"
        )
    if settings.scaffold.states and settings.scaffold.constrained:
        raise SettingsError(
            "a model behind an endpoint cannot be constrained to a scaffold's actions: --set scaffold.constrained=false"
        )
    return settings.model_copy(update={"endpoint": endpoint})
