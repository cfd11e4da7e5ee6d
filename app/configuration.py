"""The settings of a run: merged from their sources, checked, and each value's source remembered.

    defaults < recipe < hindcast.toml (or --config) < environment HINDCAST__SECTION__KEY < --set section.key=value

Whatever is wrong shows here, before anything starts: an unknown key, a bad value, two values that do not go together.
"""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_origin

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from app import web_tasks
from app.conflicts import find_conflicts
from core.errors import SettingsError
from core.nearest import nearest
from core.printable import one_line
from core.settings import Settings
from core.toml import as_toml
from learner.recipes import DEFAULT, load_recipe

USER_FILE = "hindcast.toml"
PREFIX = "HINDCAST__"
DEFAULT_SOURCE = "default"
FAMILIES = "curriculum.families"
ENVIRONMENTS = "curriculum.environments"
RECIPE_KEY = "recipe"
"""At the top of a settings file: the recipe that it is laid over."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that hold, and why."""

    settings: Settings
    recipe: str
    sources: dict[str, str]
    """Dotted key -> where its value came from, in words."""


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """The values that one source gives, by dotted key."""

    source: str
    values: dict[str, Any]


@cache
def fields() -> dict[str, FieldInfo]:
    """Every setting there is, by dotted key, in the order of the schema."""
    found: dict[str, FieldInfo] = {}

    def walk(section: type[BaseModel], prefix: str) -> None:
        for name, field in section.model_fields.items():
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                walk(field.annotation, f"{prefix}{name}.")
            else:
                found[prefix + name] = field

    walk(Settings, "")
    return found


def resolve(
    *,
    recipe: str | None = None,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    folder: Path | None = None,
) -> Resolved:
    """Merge all sources. `file`: instead of `hindcast.toml` in `folder`, which is the current one by default.

    Raises:
        SettingsError: names the source, the key, and what is allowed.

    """
    found = environment if environment is not None else os.environ
    own = (folder or Path.cwd()) / USER_FILE
    from_file, named_recipe = read_file(file) if file else read_file(own) if own.exists() else (None, None)
    name = recipe or found.get(f"{PREFIX}RECIPE") or named_recipe or DEFAULT
    layers = [Layer(source=f"recipe {name}", values=flatten(load_recipe(name), f"recipe {name}"))]
    layers += [from_file] if from_file else []
    layers += [from_environment(found), *map(from_override, overrides)]
    return merge(layers, recipe=name)


def merge(layers: Sequence[Layer], *, recipe: str) -> Resolved:
    """Lay each source over those before it and check what comes out."""
    values: dict[str, Any] = {}
    sources = dict.fromkeys(fields(), DEFAULT_SOURCE)
    for layer in layers:
        for key, value in web_tasks.with_tasks(layer.values).items():
            values[key] = value
            sources[key] = layer.source
    _narrow_families(values, sources)
    web_tasks.narrow_contexts(values, sources)
    try:
        settings = Settings.model_validate(_nest(values))
    except ValidationError as error:
        raise SettingsError("\n".join(_say(one, sources) for one in error.errors())) from error
    found = find_conflicts(settings)
    if found:
        raise SettingsError("\n".join(found))
    return Resolved(settings=settings, recipe=recipe, sources=sources)


def _narrow_families(values: dict[str, Any], sources: Mapping[str, str]) -> None:
    """A recipe's families give way to environments that somebody chose by hand: `--set curriculum.environments=store`."""
    families, environments = values.get(FAMILIES), values.get(ENVIRONMENTS)
    by_hand = sources[ENVIRONMENTS] != DEFAULT_SOURCE and not sources[ENVIRONMENTS].startswith(RECIPE_KEY)
    if (
        families
        and by_hand
        and sources[FAMILIES].startswith(RECIPE_KEY)
        and isinstance(environments, list | tuple)
    ):
        values[FAMILIES] = [family for family in families if family.split("/")[0] in environments]


def read_file(path: Path) -> tuple[Layer, str | None]:
    """A settings file, and the recipe it names."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    recipe = content.pop(RECIPE_KEY, None)
    if recipe is not None and not isinstance(recipe, str):
        raise SettingsError(f"{path}: recipe = {recipe!r} must be the name of a recipe in quotes")
    return Layer(source=str(path), values=flatten(content, str(path))), recipe


def from_environment(environment: Mapping[str, str]) -> Layer:
    """`HINDCAST__LEARNER__LEARNING_RATE=1e-5` and the like."""
    values = {}
    for name in sorted(environment):
        if name.startswith(PREFIX) and name != f"{PREFIX}RECIPE":
            key = name.removeprefix(PREFIX).lower().replace("__", ".")
            _require_known(key, f"environment variable {name}")
            values[key] = _from_text(key, environment[name])
    return Layer(source="environment", values=values)


def from_override(text: str) -> Layer:
    """One `--set section.key=value`."""
    key, equals, value = text.partition("=")
    if not equals:
        raise SettingsError(
            f"--set {text!r} is not section.key=value, for instance --set learner.learning_rate=1e-5"
        )
    key = key.strip()
    _require_known(key, "--set")
    return Layer(source="--set", values={key: _from_text(key, value.strip())})


def flatten(content: Mapping[str, Any], source: str, prefix: str = "") -> dict[str, Any]:
    """Nested sections as dotted keys, all of them known."""
    values: dict[str, Any] = {}
    for name, value in content.items():
        key = prefix + name
        if isinstance(value, dict) and any(known.startswith(f"{key}.") for known in fields()):
            values.update(flatten(value, source, f"{key}."))
        else:
            _require_known(key, source)
            values[key] = value
    return values


def to_toml(resolved: Resolved) -> str:
    """The settings as a file that `read_file` reads back to the same values; sources as comments."""
    values = resolved.settings.model_dump(mode="json")
    lines = [f"{RECIPE_KEY} = {as_toml(resolved.recipe)}"]
    for section, content in values.items():
        lines += ["", f"[{section}]"]
        for name, value in content.items():
            source = resolved.sources.get(f"{section}.{name}", DEFAULT_SOURCE)
            comment = "" if source == DEFAULT_SOURCE else f"  # {one_line(source)}"
            lines.append(f"{name} = {as_toml(value)}{comment}")
    return "\n".join(lines) + "\n"


def _from_text(key: str, text: str) -> Any:
    """A value given as text: as it would stand in TOML; words need no quotes, lists may be separated by commas."""
    annotation = fields()[key].annotation
    if annotation is str:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        if get_origin(annotation) is tuple:
            return [part.strip() for part in text.split(",") if part.strip()]
        return text


def _nest(values: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        inner = nested
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return nested


def _require_known(key: str, source: str) -> None:
    known = fields()
    if key in known:
        return
    by_last = {name.rpartition(".")[2]: name for name in known}
    near = nearest(key, known) or [by_last[name] for name in nearest(key.rpartition(".")[2], by_last)]
    advice = f"the nearest is {near[0]}" if near else "`hindcast config schema` lists all"
    if any(name.startswith(f"{key}.") for name in known):
        advice = f"it is a section; its settings are written [{key}] and then one line each"
    raise SettingsError(f"{source}: there is no setting {key!r}; {advice}")


def _say(error: Any, sources: Mapping[str, str]) -> str:
    """One finding of the schema: which setting, from where, its value, what is allowed."""
    key = ".".join(str(part) for part in error["loc"] if not isinstance(part, int))
    source = sources.get(key, "the settings")
    allowed = str(error["msg"]).removeprefix("Input ").replace("should be", "must be")
    if error["type"] == "literal_error" and isinstance(error["input"], str):
        near = nearest(error["input"], re.findall(r"'([^']+)'", error["ctx"]["expected"]))
        allowed += f"; the nearest is {near[0]!r}" if near else ""
    field = fields().get(key)
    meaning = f" ({field.description.rstrip('.')})" if field is not None and field.description else ""
    return f"{source}: {key} = {as_toml(error['input'])} {allowed}{meaning}"
