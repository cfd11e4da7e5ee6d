"""Paths of model folders, without importing torch."""

import re
from pathlib import Path

from hindcast.core.errors import ModelFileError

SHIPPED = "base"
"""Value of `policy.base` for the small policy that ships with Hindcast."""


def base_policy_folder() -> Path:
    """Return the folder of the policy that ships with Hindcast."""
    return Path(__file__).parent / "base"


def policy_folder(name: str) -> Path:
    """Return the folder that `policy.base` names: `base`, or a path."""
    return base_policy_folder() if name == SHIPPED else Path(name)


_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""Owner and name of a model on the Hugging Face Hub; a relative path of two parts looks the same."""


def require_folder(folder: Path) -> None:
    """Require that a folder exists. Models are never downloaded automatically: a run would depend on the state of a hub.

    Raises:
        ModelFileError: says how to download the model, if the path may be its id on the Hugging Face Hub.
    """
    if not folder.is_dir():
        raise ModelFileError(f"there is no model folder {folder}: {folder_advice(folder)}")


def folder_advice(folder: Path) -> str:
    """Say what to do about a missing model folder, as the end of a sentence."""
    name = str(folder)
    if not _HUB_ID.fullmatch(name):
        return "give the path of a Hugging Face causal model's folder, or `base`"
    local = f"models/{folder.name}"
    return (
        "models are read from folders and never fetched from a hub. To download it: "
        f"hf download {name} --local-dir {local}    Then give {local} instead"
    )
