"""The references of commands, settings, events and the read model, each from the code that it describes, as Markdown."""

import ast
import inspect
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import typer
from sqlalchemy import Column, Table

import hindcast.events.catalogue  # noqa: F401  # fills the registry
from hindcast.app.cli import app
from hindcast.app.settings.allowed_values import allowed_values
from hindcast.app.settings.configuration import fields
from hindcast.core.settings.schema import Settings
from hindcast.core.text.toml import as_toml
from hindcast.events.envelope import Envelope, Fact
from hindcast.events.registry import BY_NAME, FactType
from hindcast.storage.readmodel.database import VIEWS, columns_of, comment_of
from hindcast.storage.readmodel.tables import TABLES, cursor

_CODE = re.compile(r"(`+.*?`+)")
_LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)\s]+)\)")
_FIELDS = ("field", "type", "default", "meaning")
_HEADS = ("column", "type", "key", "meaning")
_TYPES = {"BIGINT": "integer", "INTEGER": "integer", "TEXT": "text", "DOUBLE": "real", "BOOLEAN": "boolean"}


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; what is in its cells stays one line and splits no column."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def code(text: str) -> str:
    """As code, whatever it contains."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text else ""


def _cell(text: str) -> str:
    # what stands in code is no separator to the builder, and would keep the backslash
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if part.startswith("`") else part.replace("|", "\\|") for part in parts)


def relink(text: str, places: dict[str, str]) -> str:
    """Links of a repository's page as links of a site's page.

    places: target as the page writes it, without what follows `#` -> target on the site. What has no place on the site
    (a source file) becomes its name alone, a picture nothing.
    """

    def place(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        path, mark, part = target.partition("#")
        if "://" in target or not path:
            return found.group()
        if path in places:
            return f"{picture}[{words}]({places[path]}{mark}{part})"
        return "" if picture else words

    return _LINK.sub(place, text)


class Attribute(NamedTuple):
    """One annotated attribute of a class."""

    type: str
    """As it is written."""
    default: str
    """As it is written; empty: it has to be given."""
    text: str
    """Its docstring."""


def attributes_of(cls: type) -> dict[str, Attribute]:
    """The attributes that the class declares itself, in their order."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, Attribute] = {}
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = Attribute(
                type=ast.unparse(node.annotation),
                default=ast.unparse(node.value) if node.value is not None else "",
                text=_text(after),
            )
    return found


def _text(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
        case _:
            return ""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, with the words that call it: `hindcast run show`."""
    yield from _below("hindcast", typer.main.get_command(app))


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    if getattr(command, "invoke_without_command", False):
        yield words, command
    for name in inner:
        yield from _below(f"{words} {name}", inner[name])


def commands_page() -> str:
    """Every command with its arguments and options."""
    parts = [
        "# Commands\n\nEvery command takes `--json` and `--help`. Exit codes: 0 done, 1 failed, 2 usage, 3 replay diverged, "
        "4 a judge or a relabeler does not answer.\n"
    ]
    for words, command in commands():
        if words == "hindcast":
            continue
        rows = [
            _row(one) for one in command.params if not getattr(one, "hidden", False) and one.name != "help"
        ]
        text = inspect.cleandoc(command.help or "")
        said, _, example = text.partition("Example: ")
        parts.append(f"## {words}\n\n{said.strip()}\n")
        if example:
            parts.append(f"```sh\n{example.strip()}\n```\n")
        if rows:
            parts.append(table(("", "default", "meaning"), rows))
    return "\n".join(parts)


def _row(parameter: Any) -> tuple[str, str, str]:
    if parameter.param_type_name == "argument":
        name = code(parameter.metavar or parameter.name.upper())
    else:
        name = " ".join(code(one) for one in (*parameter.opts, *parameter.secondary_opts))
    given = parameter.default
    shown = "" if given is None or given is False or given == () or callable(given) else str(given)
    return name, code(shown), getattr(parameter, "help", "") or ""


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


def events_page() -> str:
    """Every fact with its fields, by the module that declares it, and the envelope round each."""
    by_module: dict[str, list[FactType]] = defaultdict(list)
    for entry in BY_NAME.values():
        by_module[entry.cls.__module__].append(entry)
    parts = [
        "# Events\n\nEvery fact that a log can hold, as it is written today; older versions are raised to these when they "
        "are read. A fact is appended under the subject of its family; its version is that of its schema.\n",
        f"## Envelope\n\n{_words(Envelope)}\n\n{_fields(Envelope)}",
    ]
    for module, entries in by_module.items():
        parts.append(
            f"## {module.rpartition('.')[2].capitalize()}\n\n{inspect.getdoc(sys.modules[module])}\n"
        )
        parts += [
            f"### {one.name}\n\n{_declaration(one)} {_words(one.cls)}\n\n{_fields(one.cls)}"
            for one in entries
        ]
    parts.append("## What facts are made of\n")
    parts += [f"### {one.__name__}\n\n{_words(one)}\n\n{_fields(one)}" for one in _made_of(by_module)]
    return "\n".join(parts)


def _made_of(modules: Iterable[str]) -> list[type]:
    """The structs that stand in the catalogue's modules and are no facts, by name."""
    found = {
        one
        for module in modules
        for one in vars(sys.modules[module]).values()
        if isinstance(one, type) and issubclass(one, msgspec.Struct) and not issubclass(one, Fact)
    }
    return sorted(found, key=lambda one: one.__name__)


def _declaration(one: FactType) -> str:
    """Version, family, roles and references of a fact, as sentences."""
    declared = f"Version {one.version}, family `{one.family}`, appended by {', '.join(one.roles)}."
    refs = [f"`{path}` ({kind})" for path, kind in one.refs]
    return f"{declared} It refers to others by {', '.join(refs)}." if refs else declared


def _words(cls: type) -> str:
    return inspect.getdoc(cls) or ""


def _fields(cls: type) -> str:
    found = attributes_of(cls)
    if not found:
        return "No fields.\n"
    rows = [(f"`{name}`", code(one.type), code(one.default), one.text) for name, one in found.items()]
    return table(_FIELDS, rows)


def readmodel_page() -> str:
    """Every table with its columns and its view, if it has one."""
    views = {name: view for view, name in VIEWS.items()}
    parts = [
        "# Read model\n\nTables and views of a run's SQL read model, as this Hindcast creates them. A versioned table has "
        "`valid_from` and `valid_to` and a view of what holds now; a recorded table has `position`. How to open and ask it: "
        "[Ask a run in SQL](../read-model.md). In PostgreSQL the descriptions are comments of the schema: `\\d+ episodes`.\n"
    ]
    for name, one in (*TABLES.items(), (cursor.name, cursor)):
        kind = _kind(one)
        parts.append(f"## {name}\n\n{kind} {one.comment}\n\n{table(_HEADS, map(_column_row, one.c))}")
        if name in views:
            columns = ", ".join(code(column) for column in columns_of(views[name]))
            parts.append(f"### {views[name]}\n\nView. {comment_of(views[name])} Columns: {columns}.\n")
    return "\n".join(parts)


def _kind(one: Table) -> str:
    if "versioned" not in one.info:
        return ""
    return "Versioned." if one.info["versioned"] else "Recorded."


def _column_row(column: Column[object]) -> tuple[str, str, str, str]:
    kind = _TYPES[str(column.type).partition(" ")[0]]
    return code(column.name), kind, "yes" if column.primary_key else "", column.comment or ""
