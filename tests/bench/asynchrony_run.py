"""A finite run of the whole system, by the real command under the real honcho, in a home of its own."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from bench.command import hindcast
from hindcast.core.errors import HindcastError

RUN_S = 1800.0
"""After so long without its updates a run is given up."""
STOP_S = 60.0
BATCHES = {
    "evaluation.every": "0",
    "curriculum.environments": '["store"]',
    "learner.options.group_batch": "2",
    "learner.minibatches": "1",
    "learner.epochs": "1",
}
"""Over the recipe: the site whose every step loads a page, and small batches, so that a run has many within minutes. No
evaluations, so that its time is that of training."""


class SystemEnded(HindcastError):
    """The system did not come to its end."""


async def run_system(home: Path, *, updates: int, overrides: Sequence[str]) -> None:
    """Start, wait for the updates, stop. Raises SystemEnded with the end of what was said."""
    settings = [*(f"{key}={value}" for key, value in BATCHES.items()), *overrides]
    chosen = [part for one in settings for part in ("--set", one)]
    process = await asyncio.create_subprocess_exec(
        *hindcast("start", "--json", "--until", f"updates={updates}", *chosen),
        cwd=home,  # no settings file of whoever measures
        env={**os.environ, "HINDCAST_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(RUN_S):
            output, errors = await process.communicate()
    except TimeoutError:
        raise SystemEnded(f"the run did not come to {updates} updates within {RUN_S:g} s") from None
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(STOP_S):
                await process.communicate()
    if process.returncode:
        said = (errors or output).decode(errors="replace").strip()
        raise SystemEnded(f"the system ended with status {process.returncode}: {said[-1500:]}")
