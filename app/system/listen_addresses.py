"""Where something of a home listens: a file that says so, and listening there again after a restart."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from hindcast.app.system.private_home import lasting_token
from hindcast.app.system.processes import read_json, write_json
from hindcast.core.errors import EnvironmentFailed

SITE_FILE = "site.json"
"""Of the embedded store."""
PAGE_FILE = "page.json"
"""Of the page."""
POLICY_FILE = "policy-server.json"
"""Of the vLLM server that is started here."""

Ready = Callable[[str], None]
Serve = Callable[[int, Ready], Awaitable[None]]
"""Port (0: any free one) and whom to tell the base address; returns when it is told to stop."""

logger = structlog.get_logger(__name__)


def base_url_in(file: Path) -> str | None:
    """Where it listened last; None: nowhere yet."""
    told = read_json(file)
    return None if told is None else str(told["base_url"])


def page_token(home: Path) -> str:
    """What the page of this home asks its visitors for; the same after every restart."""
    return lasting_token(home, "page")


def page_address(home: Path) -> str | None:
    """The address that lets a visitor in to the page of a running system; None: it has not said yet where it listens."""
    base = base_url_in(home / PAGE_FILE)
    return None if base is None else with_token(base, page_token(home))


def with_token(base: str, token: str) -> str:
    """The address that shows a page its token once."""
    return f"{base}/?token={token}"


async def serve_again(file: Path, serve: Serve, *, ready: Ready, port: int = 0) -> None:
    """Serve at `port`, or where it listened last so that whoever has it open finds it again, or at any free port.

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
