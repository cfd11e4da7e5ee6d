"""Allowed values of a setting in words, for the reference of settings and for messages about wrong values."""

from functools import cache
from typing import Any

from hindcast.core.settings.schema import Settings
from hindcast.core.text.toml import as_toml

_BOUNDS = (
    ("minimum", "≥ {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "≤ {}"),
    ("exclusiveMaximum", "< {}"),
)


@cache
def allowed_values(key: str) -> str:
    """Kind and bounds of a setting, or its values; empty where no setting has this dotted key.

    >>> allowed_values("learner.clip_low")
    'number > 0, < 1'
    """
    schema = Settings.model_json_schema()
    section, _, name = key.partition(".")
    if section not in schema["properties"]:
        return ""
    inner = schema["$defs"][schema["properties"][section]["$ref"].rpartition("/")[2]]["properties"]
    return describe_shape(inner[name], schema["$defs"]) if name in inner else ""


def describe_shape(shape: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A part of a JSON Schema in words and signs."""
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
    if kind == "list" and (inner := describe_shape(shape.get("items", {}), definitions)):
        kind = f"list of {inner}"
    bounds = [words.format(_number(shape[name])) for name, words in _BOUNDS if name in shape]
    return " ".join([kind, ", ".join(bounds)]).strip()


def _number(value: float) -> str:
    """A bound as one would write it: integers whole."""
    return str(value) if isinstance(value, int) else f"{value:g}"
