"""Allowed values of settings and of algorithm options: as text for messages and the reference, and as JSON Schema."""

import ast
import inspect
from copy import deepcopy
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Any, get_type_hints

import msgspec
from pydantic.fields import FieldInfo

from hindcast.core.errors import PluginError
from hindcast.core.plugins import plugin_names
from hindcast.core.rl.algorithm import ALGORITHMS, find_algorithm
from hindcast.core.settings.changes import TABLE
from hindcast.core.settings.schema import Settings
from hindcast.core.text.toml import as_toml

_BOUNDS = (
    ("minimum", "≥ {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "≤ {}"),
    ("exclusiveMaximum", "< {}"),
)


class AlgorithmOption(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `learner.options`."""

    name: str
    field: FieldInfo
    """Type, default and description; type and default are those of the first algorithm that declares the option."""
    shape: dict[str, Any]
    """JSON Schema of the option's values."""


@cache
def algorithm_options() -> dict[str, AlgorithmOption]:
    """Collect the options of all installed algorithms, by name."""
    found: dict[str, AlgorithmOption] = {}
    algorithms: dict[tuple[str, str, Any], list[str]] = {}
    for algorithm, schema in _option_schemas().items():
        declared = find_algorithm(algorithm).options
        kinds, meanings = get_type_hints(declared), _attribute_docstrings(declared)
        for one in msgspec.structs.fields(declared):
            same = (one.name, meanings.get(one.name, ""), one.default)
            algorithms.setdefault(same, []).append(f"`{algorithm}`")
            field = FieldInfo(annotation=kinds[one.name], default=one.default)
            shape = schema["properties"][one.name] | {"$defs": schema["$defs"]}
            found.setdefault(one.name, AlgorithmOption(name=one.name, field=field, shape=shape))
    for (name, meaning, default), having in algorithms.items():
        field = found[name].field
        other = "" if default == field.default else f"; default {as_toml(default)}"
        field.description = " ".join(
            filter(None, [field.description, meaning, f"Option of {', '.join(having)}{other}."])
        )
    return found


def option_of(algorithm: str, name: str) -> tuple[str, str]:
    """Allowed values and meaning of an option as one algorithm declares it. Raises as `find_algorithm`."""
    declared = find_algorithm(algorithm).options
    schema = msgspec.json.schema(declared)["$defs"]
    shape = schema[declared.__name__]["properties"][name]
    return describe_shape(shape, schema), _attribute_docstrings(declared).get(name, "")


@cache
def settings_schema() -> dict[str, Any]:
    """Build the JSON Schema of all settings, with one schema of `learner.options` for each algorithm."""
    schema = deepcopy(_schema_of_settings())
    options = schema["$defs"]["LearnerSettings"]["properties"]["options"]
    options["anyOf"] = [one | {"title": algorithm} for algorithm, one in _option_schemas().items()]
    return schema


@cache
def _schema_of_settings() -> dict[str, Any]:
    """Build the JSON Schema of all settings, which takes 0.1 s; without the options of algorithms."""
    return Settings.model_json_schema()


def _option_schemas() -> dict[str, dict[str, Any]]:
    """Build the JSON Schema of each algorithm's options, by algorithm; skips algorithms that cannot be loaded."""
    found = {}
    for algorithm in plugin_names(ALGORITHMS):
        try:
            declared = find_algorithm(algorithm).options
        except PluginError:
            continue
        schema = msgspec.json.schema(declared)
        found[algorithm] = schema["$defs"].pop(declared.__name__) | {"$defs": schema["$defs"]}
    return found


def _attribute_docstrings(declared: type[msgspec.Struct]) -> dict[str, str]:
    """Read the docstrings below the fields of a struct and of its base classes, by field."""
    found: dict[str, str] = {}
    for one in declared.__mro__[-3::-1]:  # without object and msgspec's own
        try:
            body = ast.parse(dedent(inspect.getsource(one))).body[0]
        except (OSError, TypeError):
            continue
        assert isinstance(body, ast.ClassDef)
        for field, below in pairwise(body.body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                match below:
                    case ast.Expr(value=ast.Constant(value=str(words))):
                        found[field.target.id] = " ".join(words.split())
    return found


@cache
def allowed_values(key: str) -> str:
    """Describe the type and bounds of a setting, or its choices; empty if no setting has this dotted key.

    >>> allowed_values("learner.options.clip_low")
    'number > 0, < 1'
    """
    if key.startswith(f"{TABLE}."):
        option = algorithm_options().get(key.removeprefix(f"{TABLE}."))
        return describe_shape(option.shape, option.shape["$defs"]) if option else ""
    schema = _schema_of_settings()
    section, _, name = key.partition(".")
    if section not in schema["properties"]:
        return ""
    inner = schema["$defs"][schema["properties"][section]["$ref"].rpartition("/")[2]]["properties"]
    return describe_shape(inner[name], schema["$defs"]) if name in inner else ""


def describe_shape(shape: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Describe a part of a JSON Schema in one line of text."""
    if "$ref" in shape:
        return describe_shape(definitions[shape["$ref"].rpartition("/")[2]], definitions)
    if "enum" in shape:
        return " · ".join(f"`{as_toml(value)}`" for value in shape["enum"])
    if "const" in shape:
        return f"`{as_toml(shape['const'])}`"
    if "anyOf" in shape:
        return " or ".join(dict.fromkeys(describe_shape(one, definitions) for one in shape["anyOf"]))
    kind = {"array": "list", "object": "table", "null": "nothing"}.get(
        shape.get("type", ""), shape.get("type", "")
    )
    if kind == "list" and (inner := describe_shape(shape.get("items") or {}, definitions)):
        kind = f"list of {inner}"
    bounds = [words.format(_format_bound(shape[name])) for name, words in _BOUNDS if name in shape]
    return " ".join([kind, ", ".join(bounds)]).strip()


def _format_bound(value: float) -> str:
    """Format a bound; an integer has no decimal point."""
    return str(value) if isinstance(value, int) else f"{value:g}"
