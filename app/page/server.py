"""Serves the page of a home."""

import gc
from collections.abc import Callable
from pathlib import Path

from hindcast.actors.web_server import serve_app
from hindcast.app.page.application import create_app
from hindcast.app.page.runs import OpenRuns


async def serve_page(
    home: Path, *, host: str, port: int, token: str, ready: Callable[[str], None] | None = None
) -> None:
    """Serve until cancellation, to visitors who have shown the token. `ready` gets the base address; port 0 takes a free one.

    Raises:
        EnvironmentFailed: the port is taken.

    """
    spare_what_is_loaded()
    runs = OpenRuns(home)
    try:
        app = create_app(runs, host=host, token=token)
        await serve_app(app, who="the page", host=host, port=port, ready=ready)
    finally:
        runs.close()


def spare_what_is_loaded() -> None:
    """Exclude all loaded objects from garbage collection, because they live as long as the process.

    A large answer creates thousands of rows and triggers collections: traversing all modules each time took 50 ms of the 190
    of an overview of a million events.
    """
    gc.collect()
    gc.freeze()
