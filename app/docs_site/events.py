"""The reference of events, from the catalogue that encodes them."""

import inspect
import sys
from collections import defaultdict
from collections.abc import Iterable

import msgspec

import hindcast.events.catalogue  # noqa: F401  # fills the registry
from hindcast.app.docs_site.references import attributes_of, code, table
from hindcast.events.envelope import Envelope, Fact
from hindcast.events.registry import BY_NAME, FactType

_FIELDS = ("field", "type", "default", "meaning")


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
