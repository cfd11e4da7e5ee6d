"""Recipes: named settings, one TOML file each, over which a user's own settings are laid."""

import tomllib
from importlib.resources import files
from typing import Any

from hindcast.core.errors import SettingsError
from hindcast.core.text.nearest import advice

DEFAULT = "mgrpo"


def recipe_names() -> list[str]:
    """Every recipe there is."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in files(__name__).iterdir()
        if entry.name.endswith(".toml")
    )


def load_recipe(name: str) -> dict[str, Any]:
    """A recipe's settings as plain values, sections as in the settings file; to be checked by the settings schema.

    Raises:
        SettingsError: there is no recipe of that name.

    """
    if name not in recipe_names():
        raise SettingsError(f"there is no recipe {name!r}; {advice(name, recipe_names())}")
    return tomllib.loads((files(__name__) / f"{name}.toml").read_text())
