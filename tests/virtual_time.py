"""An event loop whose clock jumps: hours of timeouts, leases and pauses pass in milliseconds, always in the same order.

When nothing can run now, time moves on to the next thing that was scheduled. If nothing is scheduled either, everybody
waits for ever, and that is an error here instead of a hang. Blocking calls run at once, in place of a thread.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class EverybodyWaits(BaseException):
    """Nothing is ready and nothing is scheduled: the simulated system hangs."""


class _JumpingSelector(selectors.SelectSelector):
    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise EverybodyWaits
        self.loop.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def clock_s() -> float:
    """The virtual time of the loop that runs now."""
    return asyncio.get_running_loop().time()


def clock_ns() -> int:
    """The same as a wall clock."""
    return round(clock_s() * 1e9)
