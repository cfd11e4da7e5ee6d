"""Addresses of the benchmark's sites and accounts on them.

Addresses replace the placeholders in task files. For accounts, settings name environment variables, and only the
environment holds the secrets.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from hindcast.actors.environments.web.definition import origin_of
from hindcast.actors.environments.webarena.schema import SITES, Malformed, WebArenaTask
from hindcast.core.errors import EnvironmentFailed, SettingsError
from hindcast.core.structs import convert
from hindcast.core.text.addresses import split_address
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
    checked = {}
    for name, address in addresses.items():
        if name not in NAMES:
            raise SettingsError(f"sites.webarena_sites names {name!r}; {advice(name, NAMES)}")
        split = split_address(address)
        if split.scheme not in ("http", "https") or not split.hostname or split.username or split.password:
            raise SettingsError(
                f"sites.webarena_sites: {name} must be an address without a password, such as http://localhost:7770; log-ins "
                "are sites.webarena_accounts"
            )
        checked[name] = address.rstrip("/")
    return checked


def checked_origins(origins: Iterable[str]) -> tuple[str, ...]:
    """The setting `sites.webarena_origins`. Raises SettingsError if one is no origin."""
    for origin in origins:
        split = split_address(origin)
        if (
            split.scheme not in ("http", "https")
            or not split.hostname
            or origin_of(origin) != origin
            or "@" in origin
        ):
            raise SettingsError(
                f"sites.webarena_origins names {origin!r}, which is no origin such as http://localhost:8085"
            )
    return tuple(origins)


def needed(task: WebArenaTask) -> tuple[str, ...]:
    """Sites that must have an address for the task to be played: its own, and those that its texts mention.

    Raises:
        Malformed: a placeholder names no site.
    """
    sites = dict.fromkeys((*task.sites, *task.login))
    for text in _texts(msgspec.to_builtins(task)):
        for match in PLACEHOLDER.finditer(text):
            name = match[1].lower()
            if name not in NAMES:
                placeholders = ", ".join(f"__{name.upper()}__" for name in NAMES)
                raise Malformed("a text", text, f"{match[0]} stands for no site; there are: {placeholders}")
            sites[name] = None
    return tuple(sites)


def fill(value: Filled, addresses: Mapping[str, str]) -> Filled:
    """The same structure with every placeholder replaced."""
    return convert(_replaced(msgspec.to_builtins(value), addresses), type(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _replaced(value: Any, addresses: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return PLACEHOLDER.sub(lambda match: addresses[match[1].lower()], value)
    if isinstance(value, dict):
        return {key: _replaced(item, addresses) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(item, addresses) for item in value]
    return value


ADMIN_API = "shopping_site_admin"
"""The account for the shop's own interface, which helper functions ask for orders and reviews."""
ACCOUNT_NAMES = (*SITES, ADMIN_API)
VARIABLES = 2
"""Number of variables per account: one with the user's name, one with the password."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Name and password of a user; its repr shows neither."""

    user: str
    password: str

    def __repr__(self) -> str:
        return "Account(…)"


def check_accounts(accounts: Mapping[str, tuple[str, ...]], tasks: Iterable[WebArenaTask]) -> None:
    """Check that `sites.webarena_accounts` has an entry for every site that tasks log in to.

    Raises:
        SettingsError: it has not, or an entry does not name two variables.
    """
    for name, variables in accounts.items():
        if name not in ACCOUNT_NAMES:
            raise SettingsError(f"sites.webarena_accounts names {name!r}; {advice(name, NAMES)}")
        if len(variables) not in (0, VARIABLES):
            raise SettingsError(
                f"sites.webarena_accounts: {name} must name two environment variables, one that holds the user's name and "
                "one that holds the password; or none, to play without logging in"
            )
    wanting = dict.fromkeys(SITES, 0)
    for task in tasks:
        for site in task.login:
            wanting[site] += site not in accounts
    if any(wanting.values()):
        counts = ", ".join(f"{count} to {site}" for site, count in wanting.items() if count)
        raise SettingsError(
            f"sites.webarena_accounts has no entry for sites that tasks log in to: {counts}. For each name the environment "
            'variables that hold user and password, as {shopping = ["SHOPPING_USER", "SHOPPING_PASSWORD"]}, or [] to play '
            "without logging in"
        )


def account_for(
    name: str, accounts: Mapping[str, tuple[str, ...]], environment: Mapping[str, str] = os.environ
) -> Account | None:
    """The account of a site, from the environment; None: episodes do not log in there.

    Raises:
        EnvironmentFailed: a variable is not set; names it, never the value of another.
    """
    variables = accounts.get(name, ())
    if not variables:
        return None
    for variable in variables:
        if not environment.get(variable):
            raise EnvironmentFailed(
                f"the environment variable {variable}, which sites.webarena_accounts names for {name}, is not set where the "
                "actor runs"
            )
    user, password = (environment[variable] for variable in variables)
    return Account(user=user, password=password)
