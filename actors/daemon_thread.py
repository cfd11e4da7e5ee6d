"""Runs other people's blocking code in a thread that no process waits for when it ends.

A thread cannot be stopped. Python waits for those of its own executors at the end of a process, for ever if the code in one
hangs; it does not wait for daemon threads. All calls of one `DaemonThread` run in the same thread, in their order.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple


class _Call(NamedTuple):
    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"


class DaemonThread:
    """One thread, started by its first call. Cancelling a call abandons it: the thread finishes it before the next one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: Thread | None = None

    async def call(self, function: Callable[[], Any]) -> Any:
        """Run a function in the thread; returns what it returns, raises what it raises. The caller bounds the wait."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        call = _Call(function, loop, loop.create_future())
        self._calls.put(call)
        return await call.future

    def stop(self) -> None:
        """End the thread after its current call, without waiting."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            if call.future.cancelled():
                continue
            try:
                result, error = call.function(), None
            except BaseException as raised:  # the caller's to handle; this thread serves the next call
                result, error = None, raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                call.loop.call_soon_threadsafe(_settle, call.future, result, error)


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():  # cancelled
        return
    if isinstance(error, StopIteration):  # a future cannot hold it
        error = RuntimeError(f"StopIteration: {error}")
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
