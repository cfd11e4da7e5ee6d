"""The work queues of a run: made when it is opened, and watched as long as the system is up.

A queue whose consumer was changed or has vanished hands out nothing, and no role notices: there is just no work. So the
process `bus` looks every `log.queue_check_s`, makes such a consumer anew and appends `queue.repaired`.
"""

import asyncio
import threading

import structlog

from hindcast.app.runs.runs import RunHandle
from hindcast.events.catalogue import QueueRepaired
from hindcast.events.jetstream.accounts import QUEUES
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.jetstream.stream_queue import NOT_THERE
from hindcast.events.log.publisher import Publisher

PRODUCER = "queues.1"
STOP_S = 1.0
"""How long a stop waits for the look under way."""

_log = structlog.get_logger(__name__)


def queues_of(handle: RunHandle) -> dict[str, str]:
    """Work queue -> family, of the queues that a run has a role for."""
    idle = handle.idle_roles
    return {name: queue.family for name, queue in QUEUES.items() if queue.role not in idle}


async def make_queues(handle: RunHandle, stream: JetStreamLog) -> None:
    """Make the queues that are not there; repair and report those that are not as they should be. Role `admin`."""
    await stream.make_positions()
    for name, family in queues_of(handle).items():
        wrong = await stream.ensure_queue(name, family=family)
        if wrong and wrong != NOT_THERE:
            await _report(handle, stream, name, wrong)


async def check_queues(handle: RunHandle, stream: JetStreamLog) -> None:
    """Repair and report every queue that was changed or has vanished. Role `admin`."""
    for name, family in queues_of(handle).items():
        wrong = await stream.ensure_queue(name, family=family)
        if wrong:
            await _report(handle, stream, name, wrong)


async def _report(handle: RunHandle, stream: JetStreamLog, name: str, wrong: str) -> None:
    _log.warning("a work queue was repaired", queue=name, was=wrong)
    async with Publisher(
        stream, producer=PRODUCER, code_rev=handle.code_rev, settings=handle.settings.log
    ) as publisher:
        await publisher.publish(QueueRepaired(queue=name, wrong=wrong), entity=name)
        await publisher.commit()


class QueueWatch:
    """Checks the queues every `log.queue_check_s`, in a thread of its own: the supervisor's loop blocks."""

    def __init__(self, handle: RunHandle) -> None:
        self._handle = handle
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queue watch", daemon=True)

    def start(self) -> None:
        """Begin, once the run is open."""
        self._thread.start()

    def stop(self) -> None:
        """End; wait at most `STOP_S` for the look under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._stop.wait(self._handle.settings.log.queue_check_s):
            try:
                asyncio.run(self._look())
            except Exception as error:  # the thread's boundary: the watch outlives whatever one look meets
                _log.warning("work queues could not be checked", error=str(error) or type(error).__name__)

    async def _look(self) -> None:
        async with self._handle.connect("admin") as connection:
            stream = await JetStreamLog.open(connection, self._handle.name, self._handle.settings.log)
            await check_queues(self._handle, stream)
