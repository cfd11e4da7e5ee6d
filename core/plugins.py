"""Plugins: objects that a setting names and that any package may bring. Pure `importlib.metadata`, and nothing is imported
before it is asked for.

A name is that of an entry point in the group `hindcast.<kind>`, or `module:object` for what no package declares. Built-ins
stand in Hindcast's own entry points and are looked up there first: no package can replace one. A module that only the
working folder has is imported from there. `module:object` may be a plain Python object where the kind has an adapter, such as a
function as a judge.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import Distribution, EntryPoint, distribution, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from hindcast.core.errors import PluginError, SettingsError
from hindcast.core.structs import convert
from hindcast.core.text.nearest import advice

T = TypeVar("T")

OWN = "hindcast"
"""The distribution that brings the built-ins."""
ADAPTERS = "adapters"
"""Hindcast's own functions by kind, from name and object to a plugin: they accept plain Python objects as plugins."""


class PluginIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which code a name stands for."""

    kind: str
    """Such as `algorithms`."""
    name: str
    distribution: str
    """Empty: no installed package declares it (`module:object`)."""
    version: str
    """Of the distribution."""
    module: str
    state_version: int
    """Declared by the plugin. It rises when recorded runs can no longer be recomputed."""
    source: str
    """SHA-256 of its source: of a built-in its module, else every Python file of its package."""


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a plugin that has none."""


class PluginTable(Mapping[str, T], Generic[T]):
    """One part of every plugin of a kind, by the plugin's name or `module:object`. A plugin is imported when it is looked up.

    A look-up raises PluginError, in place of KeyError, where there is no plugin of this name. Iteration yields declared names.
    """

    def __init__(self, kind: str, part: Callable[[Any], T]) -> None:
        self._kind = kind
        self._part = part

    def __getitem__(self, name: str) -> T:
        return self._part(load_plugin(self._kind, name))

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and bool(load_plugin(self._kind, name))
        except PluginError:
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(plugin_names(self._kind))

    def __len__(self) -> int:
        return len(plugin_names(self._kind))


def plugin_names(kind: str) -> list[str]:
    """Every name that an installed package declares."""
    return sorted({entry.name for entry in entry_points(group=_group(kind))})


@cache
def load_plugin(kind: str, name: str) -> Any:
    """The object that a name stands for. Raises PluginError where there is none or it cannot be imported."""
    entry = _entry(kind, name)
    if ":" in name:
        _find_in_working_folder(entry.module.partition(".")[0])
    try:
        plugin = entry.load()
    except Exception as error:  # other people's code, which may raise anything when it is imported
        raise PluginError(
            f"the plugin {name!r} of {kind} cannot be loaded from {entry.value}: {type(error).__name__}: {error}. "
            f"Run: hindcast plugin check {name}"
        ) from error
    adapters = distribution(OWN).entry_points.select(group=_group(ADAPTERS), name=kind)
    return next(iter(adapters)).load()(name, plugin) if ":" in name and adapters else plugin


def _find_in_working_folder(module: str) -> None:
    """Make a module that only the working folder has importable, here and in the processes that this one starts."""
    folder = Path.cwd()
    files = (folder / f"{module}.py", folder / module / "__init__.py")
    spec = find_spec(module)
    if not any(file.is_file() for file in files) or (spec and Path(spec.origin or "") not in files):
        return
    if spec is None:
        sys.path.append(str(folder))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, str(folder)])


def find_plugin(kind: str, name: str, plugin_type: type[T]) -> T:
    """The plugin that a name stands for, of the type that its kind wants. Raises PluginError where there is none."""
    plugin = load_plugin(kind, name)
    if not isinstance(plugin, plugin_type):
        raise PluginError(
            f"the plugin {name!r} is a {type(plugin).__name__}, no {plugin_type.__module__}.{plugin_type.__name__}"
        )
    return plugin


def read_options(
    options_type: type[msgspec.Struct], values: Mapping[str, Any], *, of: str, strict: bool = True
) -> Any:
    """Options as the struct that a plugin declares.

    Args:
        options_type: The plugin's `options`.
        values: Names and values; values are texts where `strict` is False.
        of: The setting and the plugin, in words.

    Raises:
        SettingsError: an option is unknown, or has another type.

    """
    try:
        return convert(values, options_type, strict=strict)
    except msgspec.ValidationError as error:
        names = ", ".join(options_type.__struct_fields__) or "none"
        raise SettingsError(f"{of}: {error}. Its options: {names}") from error


@cache
def identify_plugin(kind: str, name: str) -> PluginIdentity:
    """The identity of a plugin. Raises PluginError as `load_plugin`."""
    plugin, entry = load_plugin(kind, name), _entry(kind, name)
    owner: Distribution | None = entry.dist
    is_built_in = owner is not None and owner.name == OWN
    return PluginIdentity(
        kind=kind,
        name=name,
        distribution=owner.name if owner else "",
        version=owner.version if owner else "",
        module=entry.module,
        state_version=plugin.state_version,
        source=_source_digest(entry.module if is_built_in else entry.module.partition(".")[0]),
    )


def own_names(kind: str) -> list[str]:
    """The names of the built-in plugins of a kind, in the order of their declaration."""
    return [entry.name for entry in distribution(OWN).entry_points.select(group=_group(kind))]


def own_modules(kind: str) -> list[str]:
    """The modules of the built-in plugins of a kind."""
    return sorted({entry.module for entry in distribution(OWN).entry_points.select(group=_group(kind))})


def require_plugins(recorded: Iterable[PluginIdentity], kind: str) -> None:
    """Assert that the plugins of a kind that a run was recorded with are here and can compute it again.

    Raises:
        PluginError: one is missing, or has another state version; another source alone is no reason.

    """
    for identity in recorded:
        if identity.kind != kind:
            continue
        installed = identify_plugin(identity.kind, identity.name)
        if installed.state_version != identity.state_version:
            raise PluginError(
                f"the run was recorded with state version {identity.state_version} of the plugin {identity.name!r} of {identity.kind} "
                f"({_origin(identity)}), and state version {installed.state_version} is installed ({_origin(installed)}): it would compute "
                "something else. Install the version that the run was recorded with"
            )


def changed_plugins(recorded: Sequence[PluginIdentity], kind: str) -> list[str]:
    """In words, the plugins of a kind whose source is not what a run was recorded with."""
    pairs = [
        (identity, identify_plugin(kind, identity.name)) for identity in recorded if identity.kind == kind
    ]
    return [
        f"{identity.name} ({_origin(identity)}, now {_origin(installed)})"
        for identity, installed in pairs
        if identity.source != installed.source
    ]


def _group(kind: str) -> str:
    return f"hindcast.{kind}"


def _entry(kind: str, name: str) -> EntryPoint:
    group = _group(kind)
    if ":" in name:
        if not all(part.isidentifier() for part in name.replace(":", ".", 1).split(".")):
            raise PluginError(f"{name!r} is no module:object, such as my_package.my_module:ALGORITHM")
        return EntryPoint(name=name, value=name, group=group)
    entries = list(distribution(OWN).entry_points.select(group=group, name=name))
    entries = entries or list(entry_points(group=group, name=name))
    if not entries:
        raise PluginError(
            f"no installed package has a plugin {name!r} of {kind}; {advice(name, plugin_names(kind))}. "
            "One that is not installed is named as module:object"
        )
    if len({entry.value for entry in entries}) > 1:
        owners = ", ".join(sorted(entry.dist.name for entry in entries if entry.dist))
        raise PluginError(
            f"several packages have a plugin {name!r} of {kind}: {owners}. Uninstall all but one"
        )
    return entries[0]


def _origin(plugin: PluginIdentity) -> str:
    return f"{plugin.distribution or plugin.module} {plugin.version}".rstrip()


def _source_digest(module: str) -> str:
    """Of a module's file, or of all Python files of a package."""
    file = import_module(module).__file__
    if file is None:
        return ""
    path = Path(file)
    digest = sha256()
    for source_file in sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]:
        digest.update(
            source_file.relative_to(path.parent).as_posix().encode()
            + b"\0"
            + source_file.read_bytes()
            + b"\0"
        )
    return digest.hexdigest()
