"""An event loop whose clock jumps: hours of timeouts, leases and pauses pass in milliseconds, always in the same order.

When nothing can run now, time moves on to the next thing that was scheduled. If nothing is scheduled either, everybody
waits for ever, and that is an error here instead of a hang. Blocking calls run at once, in place of a thread.

With a generator the loop also schedules: what runs belongs to a `Lane` (one simulated process), each lane runs in order,
and which lane goes next is drawn. A lane can be frozen (SIGSTOP) and never thawed (SIGKILL): nothing of it runs then,
not even a `finally`, while everybody else goes on.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class EverybodyWaits(BaseException):
    """Nothing is ready and nothing is scheduled: the simulated system hangs."""


class TakesTime(BaseException):
    """Raised by blocking work: its result is there after `seconds` of virtual time."""

    def __init__(self, seconds: float, result: Any = None) -> None:
        super().__init__(seconds)
        self.seconds = seconds
        self.result = result


class Lane:
    """What one simulated process has to run, in order."""

    __slots__ = ("at_fuse_end", "frozen", "fuse", "name", "ready")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[asyncio.Handle] = deque()
        self.frozen = False
        self.fuse = 0
        """Turns until `at_fuse_end` is called; 0: never."""
        self.at_fuse_end: Callable[[], None] | None = None


LANE: ContextVar[Lane] = ContextVar("lane")
"""Whose code runs now; inherited by every task, callback and timer made by it."""


class _NumberedTask(asyncio.Task[Any]):
    """Sets of tasks come in the same order in every process: tasks hash by number, not by address."""

    number: int

    def __new__(cls, *args: Any, **kwargs: Any) -> "_NumberedTask":
        task = super().__new__(cls)
        task.number = next(kwargs["loop"].numbers)
        return task

    def __hash__(self) -> int:
        return self.number


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module."""

    _stopping: bool
    """The library's."""

    def __init__(self, random: Random | None = None) -> None:
        """`random`: draws which lane goes next; None: there is one lane."""
        super().__init__()
        self.now_s = 1_000.0
        self.numbers = itertools.count()
        self.turns = 0
        """Callbacks run so far."""
        self.complaints: list[dict[str, Any]] = []
        """What the loop would have logged: failures nobody looked at."""
        self._random = random
        self._own = Lane("")
        self._runnable: list[Lane] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.set_task_factory(lambda loop, coro, **kwargs: _NumberedTask(coro, loop=loop, **kwargs))
        if random is not None:
            self.set_exception_handler(lambda _, complaint: self.complaints.append(complaint))

    # ---- lanes ------------------------------------------------------------------------------------------------------

    def start(self, lane: Lane, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something as a process of its own."""
        context = copy_context()
        context.run(LANE.set, lane)
        return self.create_task(work, context=context)

    def freeze(self, lane: Lane) -> None:
        """SIGSTOP, or SIGKILL where it is never thawed."""
        if not lane.frozen:
            lane.frozen = True
            if lane.ready and lane in self._runnable:
                self._runnable.remove(lane)

    def thaw(self, lane: Lane) -> None:
        """SIGCONT: what came meanwhile runs now, overdue timers included."""
        if lane.frozen:
            lane.frozen = False
            if lane.ready:
                self._runnable.append(lane)

    def _enqueue(self, handle: asyncio.Handle, lane: Lane) -> None:
        if not lane.ready and not lane.frozen:
            self._runnable.append(lane)
        lane.ready.append(handle)

    # ---- what asyncio asks for --------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now_s

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        lane = LANE.get(self._own) if context is None else context.get(LANE, self._own)
        self._enqueue(handle, lane)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context or copy_context())
        heapq.heappush(self._timers, (when, next(self.numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    def _write_to_self(self) -> None:
        """There is no selector to wake."""

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except TakesTime as slow:
            self.call_later(slow.seconds, _settle, future, slow.result)
        except Exception as error:
            future.set_exception(error)
        return future

    def _run_once(self) -> None:
        runnable = self._runnable
        while not self._stopping:
            if not runnable:
                self._advance()
                continue
            index = 0
            if self._random is not None and len(runnable) > 1:
                index = int(self._random.random() * len(runnable))
            lane = runnable[index]
            handle = lane.ready.popleft()
            if not lane.ready:
                runnable[index] = runnable[-1]
                runnable.pop()
            if handle._cancelled:
                continue
            if lane.fuse:
                lane.fuse -= 1
                if not lane.fuse and lane.at_fuse_end is not None:
                    lane.at_fuse_end()
                    lane.ready.appendleft(handle)
                    continue
            self.turns += 1
            handle._run()

    def _advance(self) -> None:
        """Time moves to the next timer, and everything due then becomes ready."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise EverybodyWaits
        self.now_s = max(self.now_s, timers[0][0])
        while timers and timers[0][0] <= self.now_s:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                self._enqueue(handle, handle._context.get(LANE, self._own))  # type: ignore[attr-defined]


def run_virtually(main: Coroutine[Any, Any, T], *, random: Random | None = None) -> T:
    """Run to the end on a loop of its own."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(random)) as runner:
        return runner.run(main)


def clock_s() -> float:
    """The virtual time of the loop that runs now."""
    return asyncio.get_running_loop().time()


def clock_ns() -> int:
    """The same as a wall clock."""
    return round(clock_s() * 1e9)
