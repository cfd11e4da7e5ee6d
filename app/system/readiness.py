"""Waiting until the bus has opened the run."""

import asyncio
import time
from pathlib import Path

from hindcast.app.system.processes import pid_alive, read_json
from hindcast.core.errors import BrokerUnreachable

POLL_S = 0.1
READY_WAIT_S = 150.0
"""How long a role waits for the bus to open the run."""


async def wait_for_bus(home: Path) -> None:
    """Return once the bus has opened the run.

    Raises:
        BrokerUnreachable: it has not within `READY_WAIT_S`.

    """
    began = time.monotonic()
    while time.monotonic() - began < READY_WAIT_S:
        ready = read_json(home / "ready.json")
        if ready is not None and pid_alive(int(ready["bus_pid"])):
            return
        await asyncio.sleep(POLL_S)
    raise BrokerUnreachable(
        f"the bus has not opened a run in {home} within {READY_WAIT_S:.0f} s. See the messages of bus.1 in the system's output."
    )
