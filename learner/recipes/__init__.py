"""Recipes: named settings, one TOML file each. A user's own settings override them."""

import tomllib
from importlib.resources import files
from typing import Any

from hindcast.core.errors import SettingsError
from hindcast.core.text.nearest import advice

DEFAULT = "mgrpo"


def recipe_names() -> list[str]:
    """Names of all recipes."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in files(__name__).iterdir()
        if entry.name.endswith(".toml")
    )


def load_recipe(name: str) -> dict[str, Any]:
    """Load a recipe's settings as plain values by section, as in a settings file; not validated.

    Raises:
        SettingsError: no recipe has that name.
    """
    if name not in recipe_names():
        raise SettingsError(f"there is no recipe {name!r}; {advice(name, recipe_names())}")
    return tomllib.loads((files(__name__) / f"{name}.toml").read_text())
