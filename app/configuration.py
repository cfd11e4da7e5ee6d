"""The settings of a run: merged from their sources, checked, and each value's source remembered.

    defaults < recipe < hindcast.toml (or --config) < environment HINDCAST__SECTION__KEY < --set section.key=value

Whatever is wrong shows here, before anything starts: an unknown key, a bad value, two values that do not go together.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, get_origin
from urllib.parse import urlsplit

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from actors.scaffold.files import check_states
from app import web_tasks
from app.computing_conflicts import computing_conflicts
from app.endpoint_conflicts import endpoint_conflicts
from app.learned_conflicts import learned_conflicts
from app.place_conflicts import place_conflicts
from app.prompt_conflicts import prompt_conflicts
from app.vllm_conflicts import vllm_conflicts
from app.webarena_conflicts import webarena_conflicts
from app.webshop_conflicts import webshop_conflicts
from core.errors import SettingsError
from core.phases import PHASED
from core.settings import Settings
from core.toml import as_toml
from learner.recipes import DEFAULT, load_recipe
from storage.readmodel.address import parse

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


def find_conflicts(settings: Settings) -> list[str]:
    """Values that are each allowed but do not go together, in words."""
    found = []
    curriculum, actors, learner = settings.curriculum, settings.actors, settings.learner
    if actors.episode_timeout_s >= curriculum.lease_s:
        found.append(
            f"actors.episode_timeout_s = {actors.episode_timeout_s:g} must be shorter than curriculum.lease_s = "
            f"{curriculum.lease_s:g}, else episodes that still run are given up"
        )
    if actors.demonstration_reasoning and actors.answer_format != "thinking":
        found.append(
            "actors.demonstration_reasoning needs actors.answer_format = 'thinking': a plain answer has no place for a thought"
        )
    found += prompt_conflicts(settings)
    found += _scaffold_conflicts(settings)
    found += web_tasks.conflicts(settings)
    if learner.algorithm == "grpo" and curriculum.group_size < 2:
        found.append(
            "curriculum.group_size = 1 leaves learner.algorithm = 'grpo' nothing to compare: it needs at least 2"
        )
    if (learner.cloning_updates or learner.algorithm in ("sft", "dpo")) and curriculum.demonstrations == 0:
        found.append(
            "curriculum.demonstrations = 0 leaves learner.cloning_updates and learner.algorithm = 'sft' nothing to imitate, "
            "and learner.algorithm = 'dpo' nothing to prefer"
        )
    if learner.loss_on == "answer" and actors.answer_format != "thinking":
        found.append(
            "learner.loss_on = 'answer' needs actors.answer_format = 'thinking': a plain answer has no thought to leave out"
        )
    if learner.algorithm in PHASED and not learner.phase_episodes:
        found.append(
            f"learner.phase_episodes = 0 leaves learner.algorithm = {learner.algorithm!r} without a phase to train on: say how "
            "many episodes fill one"
        )
    if learner.algorithm == "hsl" and not settings.relabeler.kind:
        found.append(
            "relabeler.kind is empty, and learner.algorithm = 'hsl' learns from nothing but relabelled episodes: set it to rules, endpoint or learned"
        )
    if learner.phase_window[0] > learner.phase_window[1]:
        found.append(
            f"learner.phase_window = {list(learner.phase_window)} holds nothing: its lower bound comes first"
        )
    if 0 < learner.dual_clip <= 1:
        found.append(
            f"learner.dual_clip = {learner.dual_clip:g} must be above 1, or 0 for none: below, every failure would be cut"
        )
    if learner.algorithm != "grpo" and (learner.success_replay != "off" or learner.format_penalty):
        found.append(
            f"learner.success_replay and learner.format_penalty shape what groups are compared by, and learner.algorithm = "
            f"{learner.algorithm!r} compares none: leave them off"
        )
    evolution = settings.evolution
    if evolution.generator and not learner.phase_episodes:
        found.append(
            f"evolution.generator = {evolution.generator!r} makes tasks for every phase after the first, and "
            "learner.phase_episodes = 0 leaves the run one phase: say how many episodes fill a phase"
        )
    if evolution.generator and learner.algorithm in ("dpo", "sft"):
        found.append(
            f"learner.algorithm = {learner.algorithm!r} learns from demonstrated tasks, and nobody demonstrates those of "
            f"evolution.generator = {evolution.generator!r}: leave it empty"
        )
    if evolution.value_low > evolution.value_high:
        found.append(
            f"evolution.value_low = {evolution.value_low:g} is above evolution.value_high = {evolution.value_high:g}: no "
            "task would be admitted"
        )
    found += learned_conflicts(settings)
    if settings.storage.database:
        try:
            parse(settings.storage.database)
        except SettingsError as error:
            found.append(str(error))
    if settings.telemetry.otlp_endpoint:
        found += _endpoint_conflicts(settings.telemetry.otlp_endpoint)
    found += place_conflicts(settings)
    found += endpoint_conflicts(settings)
    found += vllm_conflicts(settings)
    found += webarena_conflicts(settings)
    found += webshop_conflicts(settings)
    found += computing_conflicts(learner)
    for task in curriculum.tasks:
        family, _, seed = task.rpartition(":")
        if family.partition("/")[0] not in curriculum.environments or not seed.isdecimal():
            found.append(
                f"curriculum.tasks names {task!r}: a task is written environment/family:seed, with an environment of "
                f"curriculum.environments ({', '.join(curriculum.environments)})"
            )
    for family in curriculum.families:
        environment, slash, name = family.partition("/")
        if not (slash and name and environment in curriculum.environments):
            found.append(
                f"curriculum.families names {family!r}: a family is written environment/name, with an environment of "
                f"curriculum.environments ({', '.join(curriculum.environments)})"
            )
    return found


def _scaffold_conflicts(settings: Settings) -> list[str]:
    scaffold = settings.scaffold
    found = []
    try:
        check_states(scaffold.states)
    except SettingsError as error:
        found.append(str(error))
    if scaffold.states and scaffold.constrained and settings.actors.answer_format != "plain":
        found.append(
            f"scaffold.constrained knows answers of the form 'plain' alone, and actors.answer_format = "
            f"{settings.actors.answer_format!r}: its own form of thinking first is scaffold.stages = 2"
        )
    if scaffold.states and scaffold.shown != "nothing" and settings.learner.algorithm == "hsl":
        found.append(
            f"scaffold.shown = {scaffold.shown!r} puts a heading over pages, and learner.algorithm = 'hsl' learns from prompts "
            "that are written anew without one: nothing would be relabelled. Set scaffold.shown to nothing"
        )
    return found


def _endpoint_conflicts(endpoint: str) -> list[str]:
    parts = urlsplit(endpoint)
    if parts.password is not None or parts.username is not None:
        return [
            "telemetry.otlp_endpoint holds a password or a token, which settings do not: they are recorded. Give it to the "
            "processes in their environment instead: OTEL_EXPORTER_OTLP_HEADERS=authorization=…"
        ]
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        return [
            f"telemetry.otlp_endpoint = {endpoint!r} must be the address of a collector that takes OTLP over HTTP, such as "
            "http://127.0.0.1:4318"
        ]
    return []


def to_toml(resolved: Resolved) -> str:
    """The settings as a file that `read_file` reads back to the same values; sources as comments."""
    values = resolved.settings.model_dump(mode="json")
    lines = [f"{RECIPE_KEY} = {as_toml(resolved.recipe)}"]
    for section, content in values.items():
        lines += ["", f"[{section}]"]
        for name, value in content.items():
            source = resolved.sources.get(f"{section}.{name}", DEFAULT_SOURCE)
            comment = "" if source == DEFAULT_SOURCE else f"  # {source}"
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
    near = get_close_matches(key, known, n=1, cutoff=0.6)
    if not near:
        by_last = {name.rpartition(".")[2]: name for name in known}
        near = [by_last[name] for name in get_close_matches(key.rpartition(".")[2], by_last, n=1, cutoff=0.7)]
    advice = f"the nearest is {near[0]}" if near else "`hindcast config schema` lists all"
    if any(name.startswith(f"{key}.") for name in known):
        advice = f"it is a section; its settings are written [{key}] and then one line each"
    raise SettingsError(f"{source}: there is no setting {key!r}; {advice}")


def _say(error: Any, sources: Mapping[str, str]) -> str:
    """One finding of the schema: which setting, from where, its value, what is allowed."""
    key = ".".join(str(part) for part in error["loc"] if not isinstance(part, int))
    source = sources.get(key, "the settings")
    allowed = str(error["msg"]).removeprefix("Input ").replace("should be", "must be")
    field = fields().get(key)
    meaning = f" ({field.description.rstrip('.')})" if field is not None and field.description else ""
    return f"{source}: {key} = {as_toml(error['input'])} {allowed}{meaning}"
