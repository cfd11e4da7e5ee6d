"""Merges the settings of a run from their sources, checks them, and records the source of each value.

    defaults < recipe < hindcast.toml (or --config) < environment HINDCAST__SECTION__KEY < --set section.key=value

Every mistake is reported here, before anything starts: unknown keys, invalid values, values that contradict each other.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from hindcast.app.settings import web_tasks
from hindcast.app.settings.allowed_values import algorithm_options, allowed_values, option_of
from hindcast.app.settings.checks.cross_checks import find_conflicts
from hindcast.app.settings.checks.gpu_placement import gpu_conflicts
from hindcast.app.settings.checks.names import name_conflicts
from hindcast.app.settings.checks.storage_places import size_conflicts
from hindcast.core.errors import PluginError, SettingsError
from hindcast.core.rl.algorithm import fill_options, find_algorithm
from hindcast.core.settings.changes import TABLE, flatten_settings, nest, upcast
from hindcast.core.settings.old_names import renamed
from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.core.settings.section import RECORDED
from hindcast.core.structs import convert
from hindcast.core.text.nearest import advice, nearest
from hindcast.core.text.plain_values import find_unkeepable, parse_toml
from hindcast.core.text.printable import one_line
from hindcast.core.text.toml import as_toml
from hindcast.learner.recipes import DEFAULT, load_recipe

USER_FILE = "hindcast.toml"
PREFIX = "HINDCAST__"
OVERRIDE = "--set"
"""Source of a value that an option of the command sets."""
DEFAULT_SOURCE = "default"
FAMILIES = "curriculum.families"
ALGORITHM = "learner.algorithm"
GRPO = LearnerSettings().algorithm
ENVIRONMENTS = "curriculum.environments"
LONGEST_SHOWN = 200
"""Maximum number of characters of a wrong value in a message."""
RECIPE_KEY = "recipe"
"""Key at the top of a settings file: name of the recipe whose values the file overrides."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """Merged settings with their sources."""

    settings: Settings
    recipe: str
    sources: dict[str, str]
    """Dotted key -> source of its value, as text for people."""


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """The values that one source gives, by dotted key."""

    source: str
    values: dict[str, Any]
    mistakes: tuple[str, ...] = ()
    """One sentence for each unknown key of the source."""


@cache
def fields() -> dict[str, FieldInfo]:
    """All settings by dotted key in the order of the schema, including the options of all installed algorithms."""
    found: dict[str, FieldInfo] = {}

    def walk(section: type[BaseModel], prefix: str) -> None:
        for name, field in section.model_fields.items():
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                walk(field.annotation, f"{prefix}{name}.")
            elif prefix + name == TABLE:
                found.update({f"{TABLE}.{one.name}": one.field for one in algorithm_options().values()})
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
    """Merge all sources. `file` replaces `hindcast.toml` of `folder`, which is by default the current folder.

    Raises:
        SettingsError: names the source, the key, and the allowed values.

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
    return [
        *name_conflicts(settings),
        *size_conflicts(settings),
        *find_conflicts(settings),
        *gpu_conflicts(settings),
    ]


def merge_recorded(layers: Sequence[Layer], *, recipe: str) -> Resolved:
    """Merge the layers of an existing run, which may name a task family or a judge that no longer exists."""
    return _merge(layers, recipe, find_conflicts, context=RECORDED)


def merge_partial(layers: Sequence[Layer], *, recipe: str) -> Resolved:
    """Merge layers of a new run to which others will be added. Each value is checked alone."""
    return _merge(layers, recipe, None)


def merge_unchecked(layers: Sequence[Layer], *, recipe: str) -> Resolved:
    """Merge the layers of an existing run. Each value is checked alone, without cross-checks and without plugins."""
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
    algorithm: Any = next((one.values[ALGORITHM] for one in layers if ALGORITHM in one.values), GRPO)
    others: list[Any] = []
    for layer in layers:
        mistakes += layer.mistakes
        try:
            given = web_tasks.load_tasks(layer.values)
        except SettingsError as error:
            mistakes.append(str(error))
            wrong |= {web_tasks.FILE, web_tasks.TASKS}
            given = layer.values
        if layer.values.get(ALGORITHM, algorithm) != algorithm:
            others.append(algorithm)
            algorithm = layer.values[ALGORITHM]
        for key, value in given.items():
            values[key] = value
            sources[key] = layer.source
    for key, value in values.items():
        if why := find_unkeepable(value):
            wrong.add(key)
            mistakes.append(f"{sources[key]}: {key} {why}{_meaning(key)}")
    _leave_out(values, wrong)
    mistaken = _wrong_options(values, sources, algorithm, others)
    mistakes += mistaken.values()
    wrong |= mistaken.keys()
    _leave_out(values, wrong)
    _narrow_families(values, sources)
    web_tasks.narrow_contexts(values, sources)
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(nest(values), context=context)
    except ValidationError as error:
        mistakes += [_describe(one, sources) for one in error.errors()]
        wrong |= {_key_of(one) for one in error.errors()}
        _leave_out(values, wrong)
    if mistakes and settings is None:
        settings = _remaining(values, context)
    if settings is not None and check is not None:
        try:
            settings = fill_options(settings)
        except PluginError as error:
            said = f"{sources[ALGORITHM]}: {ALGORITHM}: {error}"
            if not mistakes:
                raise PluginError(said) from error
            mistakes.append(said)
        else:
            # a contradiction with an invalid value may disappear once that value is corrected
            mistakes += [one for one in check(settings) if not any(key in one for key in wrong)]
    if mistakes or settings is None:
        raise SettingsError("\n".join(dict.fromkeys(mistakes)))
    if check is None:
        with suppress(PluginError):
            settings = fill_options(settings)
    own = {key: sources.get(key, DEFAULT_SOURCE) for key in flatten_settings(settings)}
    return Resolved(settings=settings, recipe=recipe, sources=own)


def _wrong_options(
    values: dict[str, Any], sources: Mapping[str, str], algorithm: Any, others: Iterable[Any]
) -> dict[str, str]:
    """Describe the mistakes in the algorithm's options, by dotted key.

    Removes options that only the algorithms of earlier sources declare: the recipe `mgrpo` sets options of `grpo`, which
    `--set learner.algorithm=dpo` does not use. An option that `--set` itself names is meant for the algorithm in use.
    """
    declared, mistakes = _declared(algorithm), dict[str, str]()
    if declared is None:
        return {}
    before = {name for one in others if (kind := _declared(one)) for name in kind.__struct_fields__}
    for key in [one for one in values if one.startswith(f"{TABLE}.")]:
        name = key.removeprefix(f"{TABLE}.")
        if name not in declared.__struct_fields__:
            if name in before and sources[key] != OVERRIDE:
                del values[key]
                continue
            known = declared.__struct_fields__
            mistakes[key] = (
                f"{sources[key]}: {ALGORITHM} = {algorithm!r} has no option {_shown(name)}; {advice(name, known)}"
            )
            continue
        try:
            given = convert({name: values[key]}, declared, strict=False)
            values[key] = msgspec.json.decode(msgspec.json.encode(getattr(given, name)))
        except msgspec.ValidationError as error:
            choice = _nearest_choice(key, values[key])
            allowed, meaning = option_of(str(algorithm), name)
            mistakes[key] = (
                f"{sources[key]}: {key} = {_shorten(as_toml(values[key]))} is not allowed{choice}{_in_brackets(meaning)}; "
                f"allowed: {allowed or error}"
            )
    return mistakes


def _declared(algorithm: Any) -> type[msgspec.Struct] | None:
    """Options that an algorithm declares; None if it is not installed."""
    try:
        return find_algorithm(str(algorithm)).options
    except PluginError:
        return None


def _leave_out(values: dict[str, Any], keys: Iterable[str]) -> None:
    for key in keys:
        values.pop(key, None)


def _remaining(values: Mapping[str, Any], context: Mapping[str, bool] | None) -> Settings | None:
    """Settings without the invalid values, to check the others; None if the rest is invalid, too."""
    try:
        return Settings.model_validate(nest(values), context=context)
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


def read_file(path: Path, *, recorded: bool = False) -> tuple[Layer, str | None]:
    """Read a settings file. Returns its values and the recipe that it names.

    `recorded`: the file belongs to an existing run and may have names of earlier versions.

    Raises:
        SettingsError: the file cannot be read, is not TOML, or names a recipe that is no text.

    """
    try:
        content = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    recipe = content.pop(RECIPE_KEY, None)
    if recipe is not None and not isinstance(recipe, str):
        raise SettingsError(f"{path}: recipe = {as_toml(recipe)} must be the name of a recipe in quotes")
    return _layer(upcast(content) if recorded else content, str(path)), recipe


def from_environment(environment: Mapping[str, str]) -> Layer:
    """Read settings from environment variables such as `HINDCAST__LEARNER__LEARNING_RATE=1e-5`."""
    values, mistakes = dict[str, Any](), list[str]()
    for name in sorted(environment):
        if name.startswith(PREFIX) and name != f"{PREFIX}RECIPE":
            key = name.removeprefix(PREFIX).lower().replace("__", ".")
            if mistake := _unknown(key, f"environment variable {name}"):
                mistakes.append(mistake)
            else:
                values |= _given(key, environment[name])
    return Layer(source="environment", values=values, mistakes=tuple(mistakes))


def read_override(text: str) -> Layer:
    """Parse one `--set section.key=value`. A malformed text or an unknown setting becomes a mistake of the layer."""
    key, equals, value = text.partition("=")
    key = key.strip()
    mistake = (
        _unknown(key, OVERRIDE)
        if equals
        else f"--set {_shown(text)} is not section.key=value, for instance --set learner.learning_rate=1e-5"
    )
    if mistake:
        return Layer(source=OVERRIDE, values={}, mistakes=(mistake,))
    return Layer(source=OVERRIDE, values=_given(key, value.strip()))


def from_override(text: str) -> Layer:
    """Parse one `--set section.key=value`. Raises SettingsError if it is malformed or the setting is unknown."""
    layer = read_override(text)
    if layer.mistakes:
        raise SettingsError("\n".join(layer.mistakes))
    return layer


def flatten(content: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Flatten nested sections to dotted keys. Raises SettingsError naming every unknown key."""
    layer = _layer(content, source)
    if layer.mistakes:
        raise SettingsError("\n".join(layer.mistakes))
    return layer.values


def flatten_recorded(content: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Flatten the settings of an existing run, which may have names of earlier versions."""
    return flatten(upcast(content), source)


def _layer(content: Mapping[str, Any], source: str) -> Layer:
    """Flatten nested sections to dotted keys, with a mistake for each unknown key."""
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
    """Write settings as TOML that `read_file` reads back to the same values, with sources as comments."""
    values = resolved.settings.model_dump(mode="json")
    lines = [f"{RECIPE_KEY} = {as_toml(resolved.recipe)}"]
    for section, content in values.items():
        lines += ["", f"[{section}]"]
        table = content.pop("options") if section == "learner" else {}
        lines += [
            _line(name, value, resolved.sources.get(f"{section}.{name}", DEFAULT_SOURCE))
            for name, value in content.items()
        ]
        if table:
            lines += ["", f"[{TABLE}]"]
            lines += [
                _line(name, value, resolved.sources.get(f"{TABLE}.{name}", DEFAULT_SOURCE))
                for name, value in table.items()
            ]
    return "\n".join(lines) + "\n"


def _line(name: str, value: Any, source: str) -> str:
    comment = "" if source == DEFAULT_SOURCE else f"  # {one_line(source)}"
    return f"{name} = {as_toml(value)}{comment}"


def _given(key: str, text: str) -> dict[str, Any]:
    """Parse a setting given as text. Returns its value by key; a whole table becomes one value for each entry."""
    value = _from_text(key, text)
    return (
        {f"{key}.{name}": one for name, one in value.items()}
        if key == TABLE and isinstance(value, dict)
        else {key: value}
    )


def _from_text(key: str, text: str) -> Any:
    """Parse a value written as in TOML; text needs no quotes, and a list may be written with commas."""
    field = fields().get(key)
    annotation = field.annotation if field is not None else None
    if annotation is str and not text.startswith(('"', "'")):
        return text
    try:
        content = parse_toml(f"value = {text}")
    except ValueError:
        content = {}
    if content.keys() == {"value"}:  # other keys: the text contained a line end
        return content["value"]
    if get_origin(annotation) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _unknown(key: str, source: str) -> str:
    """Describe an unknown setting, with the nearest one; empty if the setting exists."""
    known = fields()
    if key in known or key == TABLE or (key.startswith(f"{TABLE}.") and key.count(".") == 2):
        return ""
    if (now := renamed(key)) != key:
        return f"{source}: {key} is now {now}. To rewrite a settings file: hindcast config migrate FILE"
    by_last = {name.rpartition(".")[2]: name for name in known}
    near = nearest(key, known) or [by_last[name] for name in nearest(key.rpartition(".")[2], by_last)]
    advice = f"the nearest is {near[0]}" if near else "`hindcast config schema` lists all"
    if any(name.startswith(f"{key}.") for name in known):
        advice = f"it is a section: write [{key}] and below it one line for each setting"
    return f"{source}: there is no setting {_shown(key)}; {advice}"


def _key_of(error: Any) -> str:
    """Dotted key of the setting that a validation error is about."""
    return ".".join(str(part) for part in error["loc"][:2])


def _describe(error: Any, sources: Mapping[str, str]) -> str:
    """Describe a validation error: source, setting, value, and what is allowed."""
    key = _key_of(error)
    source = sources.get(key, "the settings")
    message = str(error["msg"]).removeprefix("Input ").replace("should be", "must be")
    # the message of a literal error already lists the choices
    kinds = "" if error["type"] == "literal_error" else allowed_values(key)
    allowed = f"; allowed: {kinds}" if kinds else ""
    return f"{source}: {key} = {_shorten(as_toml(error['input']))} {message}{_nearest_choice(key, error['input']) if error['type'] == 'literal_error' else ''}{_meaning(key)}{allowed}"


def _nearest_choice(key: str, value: Any) -> str:
    """Name the choice of a setting that is nearest to a wrong value, as the end of a sentence; empty if none is near."""
    field = fields().get(key)
    if field is None or not isinstance(value, str):
        return ""
    near = nearest(value, [choice for choice in get_args(field.annotation) if isinstance(choice, str)])
    return f"; the nearest is {near[0]!r}" if near else ""


def _meaning(key: str) -> str:
    """Description of a setting in brackets, to follow a message about it."""
    field = fields().get(key)
    return _in_brackets(" ".join((field.description or "").split()) if field is not None else "")


def _in_brackets(meaning: str) -> str:
    return f" ({meaning.rstrip('.')})" if meaning else ""


def _shown(text: str) -> str:
    """Quote a user's text in a message."""
    return _shorten(repr(text))


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
