"""The Python of the separate environment that a vLLM server runs in."""

from pathlib import Path

from hindcast.core.errors import SettingsError
from hindcast.core.models.folders import policy_folder, require_folder
from hindcast.core.settings.schema import Settings
from hindcast.core.settings.vllm import VLLM
from hindcast.core.text.plain_values import parse_json

OWN_PYTHON = Path(__file__).resolve().parents[2] / ".venv-vllm" / "bin" / "python"
"""The Python that `make vllm` installs."""


def server_python(settings: Settings) -> Path:
    """The Python that starts the server.

    Raises:
        SettingsError: it does not exist.

    """
    chosen = settings.vllm.python
    python = Path(chosen).expanduser() if chosen else OWN_PYTHON
    if not python.is_file():
        where = f"vllm.python = {chosen!r} is" if chosen else f"{OWN_PYTHON} is"
        raise SettingsError(
            f"policy.engine = 'vllm' starts a vLLM server, and {where} not there. Run: make vllm    On a machine with a GPU, "
            "install vllm into an environment of its own and name it: vllm.python=DIR/bin/python"
        )
    return python


def require_policy_servers(settings: Settings) -> None:
    """Assert that a run's policy servers can be started here. Raises SettingsError."""
    if settings.policy.engine != VLLM or settings.vllm.servers:
        return
    server_python(settings)
    if settings.vllm.python or settings.learner.lora_rank:  # with adapters the weights below never change
        return
    require_folder(policy_folder(settings.policy.base))
    path = policy_folder(settings.policy.base) / "config.json"
    try:
        tied = bool(parse_json(path.read_text(encoding="utf-8")).get("tie_word_embeddings", False))
    except (OSError, ValueError, AttributeError) as error:
        raise SettingsError(
            f"policy.base = {settings.policy.base!r}: {path} cannot be read: {error}"
        ) from error
    if tied:
        raise SettingsError(
            f"policy.base = {settings.policy.base!r} shares its embedding with its head (tie_word_embeddings in {path}), and "
            "vLLM's build for CPUs keeps the old head when weights change: its answers would not come from the version that they name. "
            "Use a model with untied embeddings, train an adapter (learner.lora_rank), or set policy.engine to in_process"
        )
