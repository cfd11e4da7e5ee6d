"""Addresses of the servers of a home: files that record them, serving again at the same one, and waiting for the store."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from hindcast.app.system.home import lasting_token
from hindcast.app.system.processes import read_json, write_json
from hindcast.core.errors import EnvironmentFailed

SITE_FILE = "site.json"
"""Address of the embedded store."""
PAGE_FILE = "page.json"
"""Address of the page."""
POLICY_FILE = "policy-server.json"
"""Addresses of the vLLM servers that run here."""

Ready = Callable[[str], None]
Serve = Callable[[int, Ready], Awaitable[None]]
"""Serves at a port (0: any free one) and reports the base address; returns when it is stopped."""

logger = structlog.get_logger(__name__)
SITE_WAIT_S = 60.0
"""How long an actor waits for the store's first answer."""
STORE_CHECK_S = 2.0
"""Seconds between two checks whether the store has moved to another port."""
POLL_S = 0.1


def base_url_in(file: Path) -> str | None:
    """The last address; None if there is none yet."""
    told = read_json(file)
    return None if told is None else str(told["base_url"])


def page_token(home: Path) -> str:
    """The token that visitors of this home's page need; the same after every restart."""
    return lasting_token(home, "page")


def page_address(home: Path, *, run: str = "") -> str | None:
    """The address with the token of a running page; None while the page has not reported where it listens.

    `run`: the page of this run; empty: that of all runs.
    """
    base = base_url_in(home / PAGE_FILE)
    return None if base is None else with_token(f"{base}/{run}" if run else base, page_token(home))


def with_token(base: str, token: str) -> str:
    """The page's address with the token, which the page stores as a cookie."""
    return f"{base}/?token={token}"


async def serve_again(file: Path, serve: Serve, *, ready: Ready, port: int = 0) -> None:
    """Serve at `port`, else at the last port so that open clients find the server again, else at any free port.

    Raises:
        EnvironmentFailed: `port` is taken.

    """

    def listening(base_url: str) -> None:
        write_json(file, {"base_url": base_url, "port": int(base_url.rsplit(":", 1)[1])})
        ready(base_url)

    last = read_json(file)
    if port or last is None:
        await serve(port, listening)
        return
    try:
        await serve(int(last["port"]), listening)
    except EnvironmentFailed:
        logger.warning("the last port is taken, using another", port=last["port"], file=file.name)
        await serve(0, listening)


def control_token(home: Path) -> str:
    """The store's control token."""
    return lasting_token(home, "store-control")


async def store_address(home: Path) -> str:
    """Wait for the store's address.

    Raises:
        EnvironmentFailed: the store has not reported it for `SITE_WAIT_S`.

    """
    until = time.monotonic() + SITE_WAIT_S
    while time.monotonic() < until:
        base_url = base_url_in(home / SITE_FILE)
        if base_url is not None:
            return base_url
        await asyncio.sleep(POLL_S)
    raise EnvironmentFailed(
        f"the store has not reported where it listens ({home / SITE_FILE}) for {SITE_WAIT_S:.0f} s. See the messages of site.1."
    )


async def watch_store(home: Path, base_url: str) -> None:
    """Raise EnvironmentFailed when the store has moved; the actor then starts again with the new address."""
    while True:
        await asyncio.sleep(STORE_CHECK_S)
        now = await store_address(home)
        if now != base_url:
            raise EnvironmentFailed(
                f"the store moved from {base_url} to {now}; this actor starts again there"
            )
