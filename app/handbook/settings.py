"""The reference of settings, from the schema that reads them."""

from collections import defaultdict
from typing import Any

from app.configuration import fields
from app.handbook.markdown import code, table
from core.settings import Settings
from core.toml import as_toml

_BOUNDS = (
    ("minimum", "≥ {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "≤ {}"),
    ("exclusiveMaximum", "< {}"),
)


def settings_page() -> str:
    """Every setting: what it may be, its default, what it means; by section."""
    schema = Settings.model_json_schema()
    sections: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for key, field in fields().items():
        section, _, name = key.partition(".")
        shape = schema["$defs"][schema["properties"][section]["$ref"].rpartition("/")[2]]["properties"][name]
        allowed = _allowed(shape, schema["$defs"])
        sections[section].append((f"`{key}`", allowed, code(as_toml(field.default)), field.description or ""))
    parts = [
        "# Settings\n\nEvery setting of a run. How they are given, and what overrides what: `hindcast config show --sources`; "
        "`hindcast config schema --json` has this page as JSON Schema. A recipe gives other defaults than these to some: "
        "`hindcast config show --recipe webrl --sources`.\n"
    ]
    for section, rows in sections.items():
        words = schema["$defs"][schema["properties"][section]["$ref"].rpartition("/")[2]].get(
            "description", ""
        )
        parts.append(
            f"## {section}\n\n{words}\n\n{table(('setting', 'allowed', 'default', 'meaning'), rows)}"
        )
    return "\n".join(parts)


def _allowed(shape: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in shape:
        return _allowed(definitions[shape["$ref"].rpartition("/")[2]], definitions)
    if "enum" in shape:
        return " · ".join(code(as_toml(value)) for value in shape["enum"])
    if "const" in shape:
        return code(as_toml(shape["const"]))
    if "anyOf" in shape:
        return " or ".join(dict.fromkeys(_allowed(one, definitions) for one in shape["anyOf"]))
    kind = {"array": "list", "object": "table", "null": "nothing"}.get(
        shape.get("type", ""), shape.get("type", "")
    )
    if kind == "list" and (inner := _allowed(shape.get("items", {}), definitions)):
        kind = f"list of {inner}"
    bounds = [words.format(f"{shape[name]:g}") for name, words in _BOUNDS if name in shape]
    return " ".join([kind, ", ".join(bounds)]).strip()
