"""The embedded store as actors find it: its control token and address, and a check whether it has moved."""

import asyncio
import time
from pathlib import Path

from hindcast.app.system.listen_addresses import SITE_FILE, base_url_in
from hindcast.app.system.private_home import lasting_token
from hindcast.core.errors import EnvironmentFailed

SITE_WAIT_S = 60.0
"""How long an actor waits for the store's first answer."""
STORE_CHECK_S = 2.0
"""Seconds between two checks whether the store has moved to another port."""
POLL_S = 0.1


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
