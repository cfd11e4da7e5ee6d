"""The reference of settings, from the schema that reads them."""

from collections import defaultdict

from hindcast.app.docs_site.markdown import code, table
from hindcast.app.settings.allowed_values import allowed_values
from hindcast.app.settings.configuration import fields
from hindcast.core.settings.schema import Settings
from hindcast.core.text.toml import as_toml


def settings_page() -> str:
    """Every setting: what it may be, its default, what it means; by section."""
    schema = Settings.model_json_schema()
    sections: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for key, field in fields().items():
        section = key.partition(".")[0]
        default = code(as_toml(field.default))
        sections[section].append((f"`{key}`", allowed_values(key), default, field.description or ""))
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
