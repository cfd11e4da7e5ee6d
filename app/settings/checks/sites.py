"""Checks what WebArena and WebShop require of a run and of this machine."""

import os
from collections.abc import Mapping

from hindcast.actors.environments.plugin import environments_of
from hindcast.actors.environments.webarena.tasks import ENVIRONMENT as WEBARENA
from hindcast.actors.environments.webshop.shop import shop_of
from hindcast.actors.environments.webshop.tasks import ENVIRONMENT as WEBSHOP
from hindcast.core.errors import SettingsError
from hindcast.core.rl.algorithm import traits_of
from hindcast.core.settings.schema import Settings


def require_sound_shared_groups(settings: Settings) -> None:
    """Require that the episodes of a group do not change the sites for each other, or that the settings accept it.

    Raises:
        SettingsError: they do; the message lists the ways out.

    """
    sites, curriculum = settings.sites, settings.curriculum
    if (
        WEBARENA not in curriculum.environments
        or curriculum.group_size == 1
        or not traits_of(settings.learner.algorithm).plays_episodes
        or sites.webarena_resets == "per_episode"
        or sites.webarena_shared_groups
    ):
        return
    raise SettingsError(
        f"curriculum.group_size = {curriculum.group_size} compares episodes, which must begin in the same state. With "
        f"sites.webarena_resets = {sites.webarena_resets!r} every episode of webarena begins in the state in which others left "
        "the sites. Ways out: sites.webarena_resets = 'per_episode'; an algorithm that does not compare episodes, with "
        "curriculum.group_size = 1; or sites.webarena_shared_groups = true, if you accept this"
    )


def why_not_continued(environment: str, settings: Settings) -> str:
    """Explain why episodes of an environment cannot be played again up to a step and continued; empty if they can."""
    if environment == "agent" or settings.actors.agent:
        return "its agent is a program of its own, whose memory is not recorded"
    plugin = environments_of(settings).get(environment)
    source = None if plugin is None else plugin.tasks(environment, settings)
    if source is None or source.resets != "per_episode":
        return (
            "playing its actions again would do again what they did, such as buying twice, since the site does not begin anew for "
            "each episode"
        )
    return ""


def require_continuable(settings: Settings) -> None:
    """Require that continuations (`curriculum.branches`) are learned from, and that every environment allows them.

    Raises:
        SettingsError: names the first setting in the way.

    """
    curriculum, algorithm = settings.curriculum, settings.learner.algorithm
    if not curriculum.branches:
        return
    if not traits_of(algorithm).learns_from_branches:
        raise SettingsError(
            f"curriculum.branches = {curriculum.branches} requests continuations, which learner.algorithm = {algorithm!r} would "
            "compare with whole episodes: set curriculum.branches = 0, or learner.algorithm = 'branching'"
        )
    for environment in curriculum.environments:
        if why := why_not_continued(environment, settings):
            raise SettingsError(
                f"curriculum.branches = {curriculum.branches} continues episodes, and those of {environment} cannot be: {why}. Set "
                f"curriculum.branches = 0 with another learner.algorithm, or take {environment} out of curriculum.environments"
            )


def require_one_resetter(settings: Settings, actors: int) -> None:
    """Require that no actor resets sites that another actor uses. Raises SettingsError with the ways out."""
    if settings.sites.webarena_tasks and settings.sites.webarena_resets == "per_batch" and actors > 1:
        raise SettingsError(
            f"--actors {actors}: each actor resets the sites before its first episode (sites.webarena_resets = 'per_batch'), and "
            "would clear the state of running episodes. Use one actor, with actors.contexts for more episodes at once; or "
            "reset the sites by hand and set sites.webarena_resets = 'none'"
        )


def require_accounts(settings: Settings, environment: Mapping[str, str] = os.environ) -> None:
    """Require that every environment variable that `sites.webarena_accounts` names is set.

    Raises:
        SettingsError: names the first missing variable.

    """
    sites = settings.sites
    if not sites.webarena_tasks:
        return
    for site, variables in sites.webarena_accounts.items():
        for variable in variables:
            if not environment.get(variable):
                raise SettingsError(
                    f"sites.webarena_accounts names {variable} for {site}, and this environment variable is not set: "
                    f"export {variable}=…"
                )


def require_webshop_data(settings: Settings) -> None:
    """Read the data files that the settings name. Raises SettingsError naming file, item and field."""
    if WEBSHOP in settings.curriculum.environments and settings.sites.webshop_items:
        shop_of(settings.sites)
