"""One fault done to one process of a running system, and how long its role took to work again."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from urllib.error import HTTPError
from urllib.request import urlopen

from hindcast.app.runs.runs import open_run
from hindcast.app.system.processes import read_json
from processes.fault_schedule import Fault
from processes.run_witness import Witness
from processes.system import Home

BACK_S = 300.0
"""Longest time a role may take, on a slow machine: its own waits, a back-off, a start, and then something to do."""


class Trial:
    """Begins at once, in a thread of its own; `join` waits for the role's sign of life."""

    def __init__(self, home: Home, witness: Witness, fault: Fault, *, run: str) -> None:
        self.fault = fault
        self.ready_s: float | None = None
        """From signal 9 until the process says that it is ready."""
        self.work_s: float | None = None
        """From signal 9, or from the end of a stop, to the next thing the role does that others can see."""
        self._home = home
        self._witness = witness
        self._run = run
        home.wait_for(f"{fault.victim} at work", lambda: home.is_ready(fault.victim))
        self._pid, self._restarts = home.pid(fault.victim), home.restarts(fault.victim)
        self._thread = Thread(target=self._try, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until it is over."""
        self._thread.join()

    def line(self) -> str:
        """For a table."""
        held = f"{self.fault.held_s:5.1f} s" if self.fault.kind == "stop" else "       "
        return (
            f"{self.fault.role:11} {self.fault.kind} {held}   {_shown(self.ready_s)}   {_shown(self.work_s)}"
        )

    def _try(self) -> None:
        fault = self.fault
        before = self._projected()
        if fault.kind == "kill":
            os.kill(self._pid, signal.SIGKILL)
            began = time.monotonic()
        else:
            os.kill(self._pid, signal.SIGSTOP)
            time.sleep(fault.held_s)
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGCONT)
            began = time.monotonic()
        works = self._sign_of_work(began, before)
        while time.monotonic() - began < BACK_S and (self.ready_s is None or self.work_s is None):
            if self.ready_s is None and self._is_back():
                self.ready_s = time.monotonic() - began
            if self.ready_s is not None and self.work_s is None and works():
                self.work_s = time.monotonic() - began
            time.sleep(0.05)
        print(self.line(), flush=True)

    def _is_back(self) -> bool:
        if not self._home.is_ready(self.fault.victim):
            return False
        return self.fault.kind == "stop" or self._home.restarts(self.fault.victim) > self._restarts

    def _sign_of_work(self, began: float, before: int) -> Callable[[], bool]:
        if self.fault.role == "site":
            return self._answers
        if self.fault.role == "projector":
            return lambda: self._projected() > before
        known = len(self._witness.sights)
        incarnations = {sight.incarnation for sight in self._witness.sights}
        producer = "" if self.fault.role == "bus" else self.fault.victim

        def said() -> bool:
            new = [s for s in self._witness.sights[known:] if s.at_s > began and producer in ("", s.producer)]
            if self.fault.kind == "kill" and producer:
                new = [sight for sight in new if sight.incarnation not in incarnations]
            return bool(new)

        return said

    def _answers(self) -> bool:
        site = read_json(self._home.folder / "site.json")
        try:
            urlopen(site["base_url"], timeout=2).close()  # type: ignore[index]
        except HTTPError:  # an answer, too: the front page belongs to a session
            return True
        except OSError:
            return False
        return True

    def _projected(self) -> int:
        if self.fault.role != "projector":
            return 0
        model = open_run(self._run, home=self._home.folder).read_model()
        try:
            return model.position()
        finally:
            model.close()


def _shown(seconds: float | None) -> str:
    return "      -" if seconds is None else f"{seconds:5.1f} s"
