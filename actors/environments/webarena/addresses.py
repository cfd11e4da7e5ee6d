"""Addresses of the benchmark's sites: the placeholders in its task files and what replaces them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from hindcast.actors.environments.webarena.schema import SITES, Malformed, WebArenaTask
from hindcast.core.errors import SettingsError
from hindcast.core.text.nearest import advice

HOMEPAGE = "homepage"
"""The page that links to all sites: a placeholder, no site of a task."""
NAMES = (*SITES, HOMEPAGE)
PLACEHOLDER = re.compile(r"__([A-Z][A-Z_]*[A-Z])__")

Filled = TypeVar("Filled")


def checked_addresses(addresses: Mapping[str, str]) -> dict[str, str]:
    """The setting `sites.webarena_sites`, without slashes at the end.

    Raises:
        SettingsError: a name is no site, or an address is not HTTP, or holds a password.
    """
    found = {}
    for name, address in addresses.items():
        if name not in NAMES:
            raise SettingsError(f"sites.webarena_sites names {name!r}; {advice(name, NAMES)}")
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
            raise SettingsError(
                f"sites.webarena_sites: {name} must be an address without a password, such as http://localhost:7770; log-ins "
                "are sites.webarena_accounts"
            )
        found[name] = address.rstrip("/")
    return found


def checked_origins(origins: Iterable[str]) -> tuple[str, ...]:
    """The setting `sites.webarena_origins`. Raises SettingsError if one is no origin."""
    for origin in origins:
        parts = urlsplit(origin)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or origin_of(origin) != origin
            or "@" in origin
        ):
            raise SettingsError(
                f"sites.webarena_origins names {origin!r}, which is no origin such as http://localhost:8085"
            )
    return tuple(origins)


def origin_of(address: str) -> str:
    """`http://host:port` of an address."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def needed(task: WebArenaTask) -> tuple[str, ...]:
    """Sites that must have an address for the task to be played: its own, and those that its texts mention.

    Raises:
        Malformed: a placeholder names no site.
    """
    found = dict.fromkeys((*task.sites, *task.login))
    for text in _texts(msgspec.to_builtins(task)):
        for match in PLACEHOLDER.finditer(text):
            name = match[1].lower()
            if name not in NAMES:
                known = ", ".join(f"__{name.upper()}__" for name in NAMES)
                raise Malformed("a text", text, f"{match[0]} stands for no site; there are: {known}")
            found[name] = None
    return tuple(found)


def fill(value: Filled, addresses: Mapping[str, str]) -> Filled:
    """The same structure with every placeholder replaced."""
    return msgspec.convert(_replaced(msgspec.to_builtins(value), addresses), type(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def _replaced(value: Any, addresses: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return PLACEHOLDER.sub(lambda match: addresses[match[1].lower()], value)
    if isinstance(value, dict):
        return {key: _replaced(one, addresses) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(one, addresses) for one in value]
    return value
