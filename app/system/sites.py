"""Opens the sites that episodes take place on, and the tasks of every environment; also the store, for a command without a run."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from hindcast.actors.environments.base import Browserless, TaskSource, Venue
from hindcast.actors.environments.plugin import SitePlaces, environments_of
from hindcast.app.system.home import home_folder
from hindcast.core.settings.schema import Settings

SERVER_S = 20.0
"""How long the store may take to answer."""
TOKEN = secrets.token_urlsafe(16)
"""Control token of a store that lives as long as this process, on a port that only this process knows."""


def login_states(home: Path) -> Path:
    """Folder of saved logins of the user's sites."""
    return home / "secrets" / "logins"


def sites_with(
    store_url: str, store_token: str, settings: Settings, *, trusted: bool = True
) -> dict[str, Venue]:
    """Every site by the name of its environment; the store is already served at `store_url`.

    `trusted`: whether the tasks are the user's own, so that their secrets and resets may be used.
    """
    places = SitePlaces(
        store_url=store_url,
        store_token=store_token,
        logins=login_states(home_folder()),
        trusted=trusted,
    )
    sites = {name: one.open_site(name, settings, places) for name, one in environments_of(settings).items()}
    opened = {name: site for name, site in sites.items() if site is not None}
    if not settings.actors.agent:
        return opened
    # a web server and a browser's types, which most processes never need
    from hindcast.actors.agents.proxy import AgentProxy
    from hindcast.actors.agents.world import AgentVenue

    proxy = AgentProxy()
    return {name: AgentVenue(site, proxy, settings.actors) for name, site in opened.items()}


@asynccontextmanager
async def sites_running(settings: Settings, *, trusted: bool = True) -> AsyncIterator[dict[str, Venue]]:
    """Every site by name, with the store served by this process during the block; see `sites_with`."""
    from hindcast.actors.environments.store.server import serve

    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(
            serve(settings.sites, host="127.0.0.1", port=0, control_token=TOKEN, ready=address.set_result)
        )
        async with asyncio.timeout(SERVER_S):
            base_url = await address
        yield sites_with(base_url, TOKEN, settings, trusted=trusted)
        serving.cancel()


def needs_browser(sites: Mapping[str, Venue], settings: Settings) -> bool:
    """Whether an environment of the curriculum is played in our browser."""
    return not all(isinstance(sites.get(name), Browserless) for name in settings.curriculum.environments)


def task_sources(settings: Settings) -> dict[str, TaskSource]:
    """Environment name -> its tasks, for every environment that the settings open."""
    sources = {name: one.tasks(name, settings) for name, one in environments_of(settings).items()}
    return {name: source for name, source in sources.items() if source is not None}
