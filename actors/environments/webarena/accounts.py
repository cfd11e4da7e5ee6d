"""Accounts on the sites: settings name environment variables, and only the environment holds the secrets."""

import os
from collections.abc import Iterable, Mapping

import msgspec

from hindcast.actors.environments.webarena.schema import SITES, WebArenaTask
from hindcast.core.errors import EnvironmentFailed, SettingsError
from hindcast.core.text.nearest import advice

ADMIN_API = "shopping_site_admin"
"""The account for the shop's own interface, which helper functions ask for orders and reviews."""
NAMES = (*SITES, ADMIN_API)
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
        if name not in NAMES:
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
        told = ", ".join(f"{count} to {site}" for site, count in wanting.items() if count)
        raise SettingsError(
            f"sites.webarena_accounts has no entry for sites that tasks log in to: {told}. For each name the environment "
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
