"""The settings of a run: merged from their sources, checked, with the source of each value.

    defaults < recipe < hindcast.toml (or --config) < environment HINDCAST__SECTION__KEY < --set section.key=value

Whatever is wrong shows here, before anything starts: an unknown key, a bad value, two values that do not go together.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from hindcast.app.settings import web_tasks
from hindcast.app.settings.allowed_values import allowed_values
from hindcast.app.settings.checks.cross_checks import find_conflicts
from hindcast.app.settings.checks.names import name_conflicts
from hindcast.app.settings.checks.storage_places import size_conflicts
from hindcast.core.errors import PluginError, SettingsError
from hindcast.core.rl.algorithm import options_of
from hindcast.core.settings.schema import Settings
from hindcast.core.settings.section import RECORDED
from hindcast.core.text.nearest import nearest
from hindcast.core.text.plain_values import find_unkeepable, parse_toml
from hindcast.core.text.printable import one_line
from hindcast.core.text.toml import as_toml
from hindcast.learner.recipes import DEFAULT, load_recipe

USER_FILE = "hindcast.toml"
PREFIX = "HINDCAST__"
DEFAULT_SOURCE = "default"
FAMILIES = "curriculum.families"
ALGORITHM = "learner.algorithm"
ENVIRONMENTS = "curriculum.environments"
LONGEST_SHOWN = 200
"""Characters of a wrong value that a message repeats."""
RECIPE_KEY = "recipe"
"""At the top of a settings file: the recipe that it is laid over."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """Settings in force, with their sources."""

    settings: Settings
    recipe: str
    sources: dict[str, str]
    """Dotted key -> source of its value, in words."""


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """The values that one source gives, by dotted key."""

    source: str
    values: dict[str, Any]
    mistakes: tuple[str, ...] = ()
    """One sentence for each entry of the source that is no setting."""


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
    layers += [from_environment(found), *map(read_override, overrides)]
    return merge(layers, recipe=name)


def merge(layers: Sequence[Layer], *, recipe: str) -> Resolved:
    """Merge the layers in order and check the result.

    Raises:
        PluginError: the algorithm is not installed.
        SettingsError: every mistake, a line each.

    """
    return _merge(layers, recipe, _new_conflicts)


def _new_conflicts(settings: Settings) -> list[str]:
    return [*name_conflicts(settings), *size_conflicts(settings), *find_conflicts(settings)]


def merge_recorded(layers: Sequence[Layer], *, recipe: str) -> Resolved:
    """The same for a run that exists already: it may name a task family or a judge that there is no more."""
    return _merge(layers, recipe, find_conflicts, context=RECORDED)


def lay_over(layers: Sequence[Layer], *, recipe: str) -> Resolved:
    """Lay each source over those before it. Each value is checked by itself, and no plugin is asked."""
    return _merge(layers, recipe, None, context=RECORDED)


def _merge(
    layers: Sequence[Layer],
    recipe: str,
    check: Callable[[Settings], Iterable[str]] | None,
    *,
    context: Mapping[str, bool] | None = None,
) -> Resolved:
    values: dict[str, Any] = {}
    sources = dict.fromkeys(fields(), DEFAULT_SOURCE)
    mistakes: list[str] = []
    wrong = set[str]()
    for layer in layers:
        mistakes += layer.mistakes
        try:
            given = web_tasks.with_tasks(layer.values)
        except SettingsError as error:
            mistakes.append(str(error))
            wrong |= {web_tasks.FILE, web_tasks.TASKS}
            given = layer.values
        for key, value in given.items():
            values[key] = value
            sources[key] = layer.source
    for key, value in values.items():
        if why := find_unkeepable(value):
            wrong.add(key)
            mistakes.append(f"{sources[key]}: {key} {why}{_meaning(key)}")
    _leave_out(values, wrong)
    _narrow_families(values, sources)
    web_tasks.narrow_contexts(values, sources)
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(_nest(values), context=context)
    except ValidationError as error:
        mistakes += [_say(one, sources) for one in error.errors()]
        wrong |= {_key_of(one) for one in error.errors()}
        _leave_out(values, wrong)
    if mistakes and settings is None:
        settings = _remaining(values, context)
    if settings is not None and check is not None:
        try:
            options_of(settings.learner)
        except PluginError as error:
            said = f"{sources[ALGORITHM]}: {ALGORITHM}: {error}"
            if not mistakes:
                raise PluginError(said) from error
            mistakes.append(said)
        else:
            # what a wrong value contradicts may be right once the value is
            mistakes += [one for one in check(settings) if not any(key in one for key in wrong)]
    if mistakes or settings is None:
        raise SettingsError("\n".join(dict.fromkeys(mistakes)))
    return Resolved(settings=settings, recipe=recipe, sources=sources)


def _leave_out(values: dict[str, Any], keys: Iterable[str]) -> None:
    for key in keys:
        values.pop(key, None)


def _remaining(values: Mapping[str, Any], context: Mapping[str, bool] | None) -> Settings | None:
    """The settings without their wrong values, to compare the others; None if the rest is invalid, too."""
    try:
        return Settings.model_validate(_nest(values), context=context)
    except ValidationError:
        return None


def _narrow_families(values: dict[str, Any], sources: Mapping[str, str]) -> None:
    """Drop a recipe's families if the user chose the environments: `--set curriculum.environments=store`."""
    families, environments = values.get(FAMILIES), values.get(ENVIRONMENTS)
    by_hand = sources[ENVIRONMENTS] != DEFAULT_SOURCE and not sources[ENVIRONMENTS].startswith(RECIPE_KEY)
    if (
        families
        and by_hand
        and sources[FAMILIES].startswith(RECIPE_KEY)
        and isinstance(environments, list | tuple)
    ):
        values[FAMILIES] = [family for family in families if str(family).split("/")[0] in environments]


def read_file(path: Path) -> tuple[Layer, str | None]:
    """A settings file, and the recipe it names. Raises SettingsError where it is no TOML file at all."""
    try:
        content = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    recipe = content.pop(RECIPE_KEY, None)
    if recipe is not None and not isinstance(recipe, str):
        raise SettingsError(f"{path}: recipe = {as_toml(recipe)} must be the name of a recipe in quotes")
    return _layer(content, str(path)), recipe


def from_environment(environment: Mapping[str, str]) -> Layer:
    """`HINDCAST__LEARNER__LEARNING_RATE=1e-5` and the like."""
    values, mistakes = dict[str, Any](), list[str]()
    for name in sorted(environment):
        if name.startswith(PREFIX) and name != f"{PREFIX}RECIPE":
            key = name.removeprefix(PREFIX).lower().replace("__", ".")
            if mistake := _unknown(key, f"environment variable {name}"):
                mistakes.append(mistake)
            else:
                values[key] = _from_text(key, environment[name])
    return Layer(source="environment", values=values, mistakes=tuple(mistakes))


def read_override(text: str) -> Layer:
    """Parse one `--set section.key=value`, whether or not the setting exists."""
    key, equals, value = text.partition("=")
    key = key.strip()
    mistake = (
        _unknown(key, "--set")
        if equals
        else f"--set {_shown(text)} is not section.key=value, for instance --set learner.learning_rate=1e-5"
    )
    if mistake:
        return Layer(source="--set", values={}, mistakes=(mistake,))
    return Layer(source="--set", values={key: _from_text(key, value.strip())})


def from_override(text: str) -> Layer:
    """Parse one `--set section.key=value`. Raises SettingsError if it is malformed or no setting."""
    layer = read_override(text)
    if layer.mistakes:
        raise SettingsError("\n".join(layer.mistakes))
    return layer


def flatten(content: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Nested sections as dotted keys. Raises SettingsError naming every key that is unknown."""
    layer = _layer(content, source)
    if layer.mistakes:
        raise SettingsError("\n".join(layer.mistakes))
    return layer.values


def _layer(content: Mapping[str, Any], source: str) -> Layer:
    """Nested sections as dotted keys, and which of them are none."""
    values, mistakes = dict[str, Any](), list[str]()

    def walk(inner: Mapping[str, Any], prefix: str) -> None:
        for name, value in inner.items():
            key = prefix + name
            if isinstance(value, dict) and any(known.startswith(f"{key}.") for known in fields()):
                walk(value, f"{key}.")
            elif mistake := _unknown(key, source):
                mistakes.append(mistake)
            else:
                values[key] = value

    walk(content, "")
    return Layer(source=source, values=values, mistakes=tuple(mistakes))


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
    if annotation is str and not text.startswith(('"', "'")):
        return text
    try:
        content = parse_toml(f"value = {text}")
    except ValueError:
        content = {}
    if content.keys() == {"value"}:  # more than one key: the text holds a line end
        return content["value"]
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


def _unknown(key: str, source: str) -> str:
    """A message that there is no such setting, with the nearest one; empty if it exists."""
    known = fields()
    if key in known:
        return ""
    by_last = {name.rpartition(".")[2]: name for name in known}
    near = nearest(key, known) or [by_last[name] for name in nearest(key.rpartition(".")[2], by_last)]
    advice = f"the nearest is {near[0]}" if near else "`hindcast config schema` lists all"
    if any(name.startswith(f"{key}.") for name in known):
        advice = f"it is a section; its settings are written [{key}] and then one line each"
    return f"{source}: there is no setting {_shown(key)}; {advice}"


def _key_of(error: Any) -> str:
    """The setting that a finding of the schema is about."""
    return ".".join(str(part) for part in error["loc"][:2])


def _say(error: Any, sources: Mapping[str, str]) -> str:
    """One finding of the schema: which setting, from where, its value, what is allowed."""
    key = _key_of(error)
    source = sources.get(key, "the settings")
    message = str(error["msg"]).removeprefix("Input ").replace("should be", "must be")
    # of a choice, the schema's own words name the values already
    kinds = "" if error["type"] == "literal_error" else allowed_values(key)
    allowed = f"; allowed: {kinds}" if kinds else ""
    return f"{source}: {key} = {_shorten(as_toml(error['input']))} {message}{_nearest_choice(key, error)}{_meaning(key)}{allowed}"


def _nearest_choice(key: str, error: Any) -> str:
    """The choice of a setting that a wrong one is most like, as the end of a sentence."""
    field, value = fields().get(key), error["input"]
    if error["type"] != "literal_error" or field is None or not isinstance(value, str):
        return ""
    near = nearest(value, [choice for choice in get_args(field.annotation) if isinstance(choice, str)])
    return f"; the nearest is {near[0]!r}" if near else ""


def _meaning(key: str) -> str:
    """What a setting is, in brackets after a message about it."""
    field = fields().get(key)
    words = " ".join((field.description or "").split()) if field is not None else ""
    return f" ({words.rstrip('.')})" if words else ""


def _shown(text: str) -> str:
    """Text of a user's within a message."""
    return _shorten(repr(text))


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
