"""BrowserGym in `hindcast bench actor`: its own environment, driven by its own interpreter.

It gets what it can be given without changing it: the same browser, no delay before observations, no slow motion, one
environment per family. What it does besides is its own: a browser for the task and a second one for its chat at every
reset, and an observation of five parts of which a setting can only leave out all at once (`use_raw_page_output`).
"""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

import miniwob
import msgspec

from bench.actor_plays import Play, Tally
from bench.peers import PeerUnavailable
from hindcast.actors.environments.browsergym.child import DRIVER as BRIDGE
from hindcast.actors.environments.chromium import find_browser

NAME = "browsergym"
VERSION = "0.14.3"
REQUIREMENTS = (f"browsergym-core=={VERSION}", f"browsergym-miniwob=={VERSION}")
DRIVER = Path(__file__).parent / "browsergym_driver.py"
PAGES = Path(miniwob.__file__).parent / "html" / "miniwob"


async def play_browsergym(
    python: Path,
    plays: Sequence[Play],
    *,
    processes: int,
    raw: bool = False,
    browser_path: str = "",
    limit_s: float = 900.0,
) -> Tally:
    """Play everything in so many processes; `raw` leaves dom, axtree and screenshot out.

    The time is that of the slowest process, from its first reset to its last observation; starting Python is not in it.

    Raises PeerUnavailable when a process fails.
    """
    shares = [plays[number::processes] for number in range(processes)]
    found = await asyncio.gather(
        *(
            _drive(python, share, raw=raw, browser_path=browser_path, limit_s=limit_s)
            for share in shares
            if share
        )
    )
    return Tally(
        episodes=len(plays),
        steps=sum(one.steps for one in found),
        won=sum(one.won for one in found),
        wall_s=max(one.wall_s for one in found),
        contents=found[0].contents,
    )


async def _drive(
    python: Path, plays: Sequence[Play], *, raw: bool, browser_path: str, limit_s: float
) -> Tally:
    orders = {
        "plays": [
            {
                "family": play.task.family,
                "seed": play.gym_seed,
                "clicks": [(click.x, click.y) for click in play.clicks],
            }
            for play in plays
        ],
        "pages": PAGES.as_uri() + "/",
        "browser": find_browser(browser_path),
        "raw": raw,
    }
    process = await asyncio.create_subprocess_exec(
        str(python),
        str(DRIVER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(BRIDGE.parent)},
    )
    try:
        async with asyncio.timeout(limit_s):
            output, errors = await process.communicate(json.dumps(orders).encode())
    except TimeoutError:
        process.kill()
        await process.wait()
        raise PeerUnavailable(f"BrowserGym did not play {len(plays)} episodes within {limit_s:g} s") from None
    if process.returncode:
        raise PeerUnavailable(f"BrowserGym failed: {errors.decode(errors='replace').strip()[-800:]}")
    return msgspec.json.decode(output.splitlines()[-1], type=Tally)
