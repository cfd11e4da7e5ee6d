"""The page of a home, served, and a browser's tab on it that reports every error."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright
from typer.testing import CliRunner

from hindcast.actors.environments.chromium import find_browser
from hindcast.app.cli import app
from hindcast.app.page.application import serve_page
from hindcast.app.system.listen_addresses import with_token
from hindcast.core.ids import digest_hex
from hindcast.events.catalogue.episode import Screenshot
from hindcast.events.envelope import BlobRef

WAIT_MS = 60_000
TOKEN = "sesame"
IMAGE = b"not quite a picture"
PICTURE = Screenshot(
    image=BlobRef(digest_hex(IMAGE), len(IMAGE)),
    missing="",
    when="before",
    width=640,
    height=400,
    scale=0.5,
    marks=(),
)
"""A step's picture, whose blob is `IMAGE`."""


def fold(home: Path) -> None:
    """Bring the read model of the home's newest run to the end of its log."""
    done = CliRunner().invoke(app, ["rebuild", "--json"], env={"HINDCAST_HOME": str(home)})
    assert done.exit_code == 0, done.output


@asynccontextmanager
async def served(home: Path) -> AsyncIterator[str]:
    """The page's base address."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve_page(home, host="127.0.0.1", port=0, token=TOKEN, ready=address.set_result)
    )
    try:
        yield await asyncio.wait_for(address, 60)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """A browser."""
    async with async_playwright() as playwright:
        yield await playwright.chromium.launch(executable_path=find_browser(""), args=["--no-sandbox"])


@asynccontextmanager
async def opened(browser: Browser, base: str, **context_options: Any) -> AsyncIterator[Page]:
    """A tab that has shown the token; an error of a page fails the test."""
    context = await browser.new_context(**context_options)
    tab = await context.new_page()
    tab.set_default_timeout(WAIT_MS)
    await tab.goto(with_token(base, TOKEN))
    assert tab.url == f"{base}/", "nothing of it stays in the address"
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
    yield tab
    await context.close()
    assert errors == []
