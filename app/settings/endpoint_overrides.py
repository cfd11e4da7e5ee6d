"""Replaces the endpoint or a judge's model in a run's settings, to judge the run again or to evaluate another model."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from hindcast.app.settings.checks.endpoint import endpoint_conflicts
from hindcast.app.settings.configuration import from_override
from hindcast.core.errors import SettingsError
from hindcast.core.settings.endpoint import ENDPOINT
from hindcast.core.settings.schema import Settings

SECTION = "endpoint"
JUDGE_KEYS = (
    "judge.timeout_s",
    "judge.options",
    "judge.webrl_orm",
    "judge.webrl_orm_server",
    "judge.webrl_orm_tokens",
)
"""Settings of judges that may be replaced: their options, the model and its time limit."""


def override_endpoint(settings: Settings, overrides: Sequence[str]) -> Settings:
    """Replace values of the section `endpoint` and of `JUDGE_KEYS` in a run's settings. `overrides`: texts `KEY=VALUE`.

    Raises:
        SettingsError: an override names another setting, or has a value that the setting does not allow.

    """
    values: dict[str, Any] = settings.model_dump()
    for text in overrides:
        ((key, value),) = from_override(text).values.items()
        section, _, name = key.partition(".")
        if section != SECTION and key not in JUDGE_KEYS:
            raise SettingsError(
                f"--set {key}: a recorded run keeps its settings; only {SECTION}.* and {', '.join(JUDGE_KEYS)} can be replaced"
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


def concurrent_episodes(settings: Settings, *, usual: int) -> int:
    """Number of episodes to judge at the same time: as many as fit a batch if the endpoint uses its Batch API."""
    return settings.endpoint.batch_questions if settings.endpoint.batch else usual


def endpoint_policy(policy: str, settings: Settings) -> Settings | None:
    """Settings for an evaluation of the policy `endpoint` or `endpoint:MODEL`; None for any other policy.

    Raises:
        SettingsError: the server or the model is missing, or a scaffold would constrain the answers.

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
