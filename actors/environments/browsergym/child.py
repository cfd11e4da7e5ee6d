"""The process that plays BrowserGym's tasks: one line per order and per reply, each with a time limit, killed by group.

It consumes orders and waits for each reply as long as the caller says. It returns the observation, or raises
EnvironmentFailed.
"""

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from hindcast.core.errors import EnvironmentFailed
from hindcast.core.scratch import scratch_folder
from hindcast.core.structs import convert

DRIVER = Path(__file__).parent / "driver.py"
MAX_LINE_BYTES = 8 * 2**20
CLOSE_S = 5.0
"""How long it may take to close its browsers before it is killed."""
WORDS_CHARS = 600
"""Characters from the end of its standard error in a message."""


class SeenNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of BrowserGym's accessibility tree, as driver.py sends it."""

    role: str
    name: str
    value: Any
    checked: Any
    disabled: bool
    bid: str | None
    acts: bool
    depth: int


class DriverReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply of the process."""

    goal: str
    url: str
    tabs: tuple[str, ...]
    active: int
    error: str
    nodes: tuple[SeenNode, ...]
    reward: float
    """Reward earned by the calls of this order."""
    ended: bool


class DriverProcess:
    """One process of BrowserGym. `start` makes it, `close` ends it."""

    def __init__(self, process: asyncio.subprocess.Process, resources: ExitStack, stderr: IO[bytes]) -> None:
        self._process = process
        self._resources = resources
        self._stderr = stderr

    @classmethod
    async def start(cls, python: str, *, driver: Path, variables: Mapping[str, str]) -> "DriverProcess":
        """Start it, with the variables `variables` unless our own environment has them. Raises EnvironmentFailed."""
        resources = ExitStack()  # closed with the process
        stderr = resources.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  (it is one)
        folder = resources.enter_context(scratch_folder())
        try:
            process = await asyncio.create_subprocess_exec(
                python,
                str(driver),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                limit=MAX_LINE_BYTES,
                env={**variables, **os.environ, "TMPDIR": str(folder)},
                start_new_session=True,
            )
        except OSError as error:
            resources.close()
            raise EnvironmentFailed(
                f"sites.browsergym_python is {python!r}, which does not start: {error.strerror}"
            ) from error
        return cls(process, resources, stderr)

    async def ask(self, order: dict[str, Any], *, limit_s: float) -> DriverReply:
        """Return the reply to an order. Raises EnvironmentFailed; the process is unusable afterwards."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(limit_s):
                self._process.stdin.write(json.dumps(order).encode() + b"\n")
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise EnvironmentFailed(f"BrowserGym did not answer {order['do']} within {limit_s:g} s") from None
        except (OSError, ValueError) as error:
            raise EnvironmentFailed(f"BrowserGym could not be asked for {order['do']}: {error}") from error
        if not line.endswith(b"\n"):
            raise EnvironmentFailed(f"BrowserGym's process ended: {self._last_words()}")
        try:
            answer = msgspec.json.decode(line)
            if isinstance(answer, dict) and "failed" in answer:
                raise EnvironmentFailed(f"BrowserGym could not {order['do']}: {answer['failed']}")
            return convert(answer, DriverReply)
        except msgspec.MsgspecError as error:
            raise EnvironmentFailed(
                f"BrowserGym answered {order['do']} with something else: {error}"
            ) from error

    async def close(self) -> None:
        """Let it end, or kill its process group. Never raises, bounded."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._process.wait()
        finally:  # the caller may be cancelled; the group ends all the same
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._resources.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._process.wait()

    def _last_words(self) -> str:
        self._stderr.seek(0)
        return str(self._stderr.read().decode(errors="replace").strip()[-WORDS_CHARS:]) or "it said nothing"
