"""What WebArena needs of a run and of this machine, beyond its settings."""

import os
from collections.abc import Mapping

from hindcast.actors.environments.webarena.tasks import ENVIRONMENT
from hindcast.core.errors import SettingsError
from hindcast.core.rl.algorithm import traits_of
from hindcast.core.settings.schema import Settings


def require_sound_shared_groups(settings: Settings) -> None:
    """Assert that no group would be played on sites that its members change for each other, unless that is asked for.

    Raises:
        SettingsError: it would; says why, and the ways out.

    """
    sites, curriculum = settings.sites, settings.curriculum
    if (
        ENVIRONMENT not in curriculum.environments
        or curriculum.group_size == 1
        or not traits_of(settings.learner.algorithm).plays_episodes
        or sites.webarena_resets == "per_episode"
        or sites.webarena_shared_groups
    ):
        return
    raise SettingsError(
        f"curriculum.group_size = {curriculum.group_size} compares episodes that must begin alike, and with "
        f"sites.webarena_resets = {sites.webarena_resets!r} every episode of webarena begins where others left the sites. Ways "
        "out: sites.webarena_resets = 'per_episode'; an algorithm that compares nothing, with curriculum.group_size = 1; or "
        "sites.webarena_shared_groups = true, if that is wanted all the same"
    )


def require_one_resetter(settings: Settings, actors: int) -> None:
    """Assert that no actor resets sites that another one plays on. Raises SettingsError, with the ways out."""
    if settings.sites.webarena_tasks and settings.sites.webarena_resets == "per_batch" and actors > 1:
        raise SettingsError(
            f"--actors {actors}: each resets the sites before its first episode (sites.webarena_resets = 'per_batch'), and would "
            "wipe what the others have begun. Use one actor, with actors.contexts for more episodes at once; or reset the "
            "sites by hand and say none"
        )


def require_accounts(settings: Settings, environment: Mapping[str, str] = os.environ) -> None:
    """Assert that every variable that `sites.webarena_accounts` names is set.

    Raises:
        SettingsError: names the first that is not.

    """
    sites = settings.sites
    if not sites.webarena_tasks:
        return
    for site, variables in sites.webarena_accounts.items():
        for variable in variables:
            if not environment.get(variable):
                raise SettingsError(
                    f"sites.webarena_accounts names {variable} for {site}, and there is no such environment variable. Set it: "
                    f"export {variable}=…"
                )
