"""The embedded store as this home's actors find it: its control token, where it listens, whether it has moved."""

import asyncio
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from app.places import SITE_FILE, base_url_in
from core.errors import EnvironmentFailed

SITE_WAIT_S = 60.0
"""How long an actor waits for the store's first answer."""
STORE_CHECK_S = 2.0
"""How often an actor looks whether the store has moved to another port."""
POLL_S = 0.1


def control_token(home: Path) -> str:
    """The store's control token: made once, readable by the owner alone."""
    path = home / "secrets" / "store-control"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    mine = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(32))
    # a link appears whole, and the first one stays: nobody reads half a token
    with suppress(FileExistsError):
        path.hardlink_to(mine)
    mine.unlink()
    return path.read_text().strip()


async def store_address(home: Path) -> str:
    """Where the store listens, once it does.

    Raises:
        EnvironmentFailed: it has not said so for `SITE_WAIT_S`.

    """
    until = time.monotonic() + SITE_WAIT_S
    while time.monotonic() < until:
        base_url = base_url_in(home / SITE_FILE)
        if base_url is not None:
            return base_url
        await asyncio.sleep(POLL_S)
    raise EnvironmentFailed(
        f"the store has not said where it listens ({home / SITE_FILE}) for {SITE_WAIT_S:.0f} s. See what site.1 says."
    )


async def watch_store(home: Path, base_url: str) -> None:
    """Raise EnvironmentFailed when the store has moved: the actor starts again with the new address."""
    while True:
        await asyncio.sleep(STORE_CHECK_S)
        now = await store_address(home)
        if now != base_url:
            raise EnvironmentFailed(
                f"the store moved from {base_url} to {now}; this actor starts again there"
            )
