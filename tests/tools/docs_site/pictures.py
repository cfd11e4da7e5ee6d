"""Pictures of the pages of a real run, for the documentation to show."""

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from playwright.async_api import Page, async_playwright

from hindcast.actors.environments.chromium import FLAGS, find_browser
from hindcast.app.page.application import serve_page
from hindcast.app.runs.runs import open_run
from hindcast.app.system.listen_addresses import with_token
from hindcast.core.errors import HindcastError

RUN = "first"
UPDATES = 6
MADE_S = 900.0
"""How long making the run may take; two cores need about a minute."""
SERVED_S = 60.0
WIDTH, HEIGHT = 1280, 860
VIEWS = ("", "episodes", "timeline", "curriculum", "policies", "consumers", "settings")
"""Pages with an address of their own; the first is the overview."""


class NoPictures(HindcastError):
    """The run to take pictures of failed."""


def make_run(home: Path) -> None:
    """Train for a few updates, as a new user would.

    Raises:
        NoPictures: it did not end as it should.

    """
    command = [
        sys.executable,
        "-P",
        "-c",
        "from hindcast.app.cli import main; main()",
        "start",
        "--run",
        RUN,
        "--until",
        f"updates={UPDATES}",
    ]
    environment = {**os.environ, "HINDCAST_HOME": str(home)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=MADE_S)
    if done.returncode:
        raise NoPictures(f"the run to take pictures of ended with {done.returncode}:\n{done.stderr[-2000:]}")


async def take_pictures(home: Path, folder: Path) -> dict[str, Path]:
    """Each page of the home's newest run as a PNG in the folder, by the page's name."""
    folder.mkdir(parents=True, exist_ok=True)
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    token = secrets.token_urlsafe(32)
    serving = asyncio.create_task(
        serve_page(home, host="127.0.0.1", port=0, token=token, ready=address.set_result)
    )
    try:
        server = await asyncio.wait_for(address, SERVED_S)
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=find_browser(""), args=list(FLAGS), chromium_sandbox=os.geteuid() != 0
            )
            tab = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            await tab.goto(with_token(server, token))
            found = {"runs": folder / "runs.png"}
            await tab.screenshot(path=found["runs"])
            base = f"{server}/{open_run(home=home).name}"
            for name, path in (await _addresses(tab, base)).items():
                await tab.goto(f"{base}/{path}")
                found[name] = folder / f"{name}.png"
                await tab.screenshot(path=found[name])
            await browser.close()
            return found
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def _addresses(tab: Page, base: str) -> Mapping[str, str]:
    """Page's name -> its path below the run; the episode is a late success of many steps, the update the last one."""
    answer = await tab.request.get(f"{base}/episodes.json?outcome=success&origin=online")
    episodes = (await answer.json())["episodes"]
    if not episodes:
        raise NoPictures("the run has no success to show: take a home whose newest run has one")
    overview = await (await tab.request.get(f"{base}/overview.json")).json()
    longest = max(episodes, key=lambda one: one["steps"])
    return {
        **{path or "overview": path for path in VIEWS},
        "episode": f"episodes/{longest['episode']}",
        "lineage": f"lineage/update/{overview['summary']['updates']}",
    }
