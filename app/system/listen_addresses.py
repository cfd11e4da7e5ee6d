"""Files that record where a home's servers listen, and serving at the same address after a restart."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from hindcast.app.system.private_home import lasting_token
from hindcast.app.system.processes import read_json, write_json
from hindcast.core.errors import EnvironmentFailed

SITE_FILE = "site.json"
"""Address of the embedded store."""
PAGE_FILE = "page.json"
"""Address of the page."""
POLICY_FILE = "policy-server.json"
"""Address of the vLLM server that runs here."""

Ready = Callable[[str], None]
Serve = Callable[[int, Ready], Awaitable[None]]
"""Serves at a port (0: any free one) and reports the base address; returns when it is stopped."""

logger = structlog.get_logger(__name__)


def base_url_in(file: Path) -> str | None:
    """The last address; None if there is none yet."""
    told = read_json(file)
    return None if told is None else str(told["base_url"])


def page_token(home: Path) -> str:
    """The token that visitors of this home's page need; the same after every restart."""
    return lasting_token(home, "page")


def page_address(home: Path) -> str | None:
    """The address with the token of a running page; None while the page has not reported where it listens."""
    base = base_url_in(home / PAGE_FILE)
    return None if base is None else with_token(base, page_token(home))


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
