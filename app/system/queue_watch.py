"""Creates a run's work queues and watches them while the system is up.

A queue whose consumer was changed or has vanished hands out nothing, and no role notices: it only sees no work. So the
bus process checks every `log.queue_check_s`, creates such a consumer again and appends `queue.repaired`.
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
"""How long a stop waits for the running check."""

_log = structlog.get_logger(__name__)


def queues_of(handle: RunHandle) -> dict[str, str]:
    """Work queue -> event family, for the queues that a role of this run works on."""
    idle = handle.idle_roles
    return {name: queue.family for name, queue in QUEUES.items() if queue.role not in idle}


async def make_queues(handle: RunHandle, stream: JetStreamLog) -> None:
    """Create missing queues; repair and report changed ones. Needs the role `admin`."""
    await stream.make_positions()
    for name, family in queues_of(handle).items():
        wrong = await stream.ensure_queue(name, family=family)
        if wrong and wrong != NOT_THERE:
            await _report(handle, stream, name, wrong)


async def check_queues(handle: RunHandle, stream: JetStreamLog) -> None:
    """Repair and report every queue that was changed or has vanished. Needs the role `admin`."""
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
    """Checks the queues every `log.queue_check_s` in its own thread, because the supervisor's loop blocks."""

    def __init__(self, handle: RunHandle) -> None:
        self._handle = handle
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queue watch", daemon=True)

    def start(self) -> None:
        """Begin to check, once the run is open."""
        self._thread.start()

    def stop(self) -> None:
        """Stop checking; waits at most `STOP_S` for the running check."""
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
