"""A vLLM server as a child process: started, waited for, ended with its own children.

It stays in this process's group. So a process that kills that group after a crash of ours (`app.system.supervisor`) also
ends the server and the engine that it starts.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import structlog

from hindcast.actors.engines.vllm.server import VllmServer
from hindcast.core.errors import EngineFailed

POLL_S = 0.25
LOOK_S = 2.0
STOP_S = 2.5
"""Time limit for stopping the server; shorter than a worker's own limit."""
SHOWN_LINES = 15

logger = structlog.get_logger(__name__)


class ServerProcess:
    """A running server."""

    def __init__(self, process: asyncio.subprocess.Process, output: Path) -> None:
        self._process = process
        self._output = output

    @property
    def pid(self) -> int:
        """Process id of the HTTP server; the engine is its child."""
        return self._process.pid

    async def wait_until_healthy(self, server: VllmServer, *, timeout_s: float) -> None:
        """Return once it accepts requests. Raises EngineFailed when it ended, or does not in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not await server.is_healthy(timeout_s=LOOK_S):
                    if self._process.returncode is not None:
                        raise self._end_failure()
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise EngineFailed(
                f"the vLLM server does not answer after {timeout_s:g} s (vllm.start_timeout_s). The end of {self._output}:\n"
                f"{self._last_words()}"
            ) from None

    async def wait_for_end(self) -> EngineFailed:
        """Wait for its end, and return the reason."""
        await self._process.wait()
        return self._end_failure()

    async def stop(self) -> None:
        """End it; kill it when it does not end in time."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), STOP_S)
            except TimeoutError:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()

    def _end_failure(self) -> EngineFailed:
        return EngineFailed(
            f"the vLLM server ended with status {self._process.returncode}. The end of {self._output}:\n{self._last_words()}"
        )

    def _last_words(self) -> str:
        with suppress(OSError):
            return "\n".join(self._output.read_text(errors="replace").splitlines()[-SHOWN_LINES:])
        return "(nothing)"


@asynccontextmanager
async def running(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    output: Path,
    before: Callable[[], None] | None = None,
) -> AsyncIterator[ServerProcess]:
    """Run a server within the context; its output goes into `output`. `before` is called in the child before the program."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as output_file:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output_file,
            stderr=asyncio.subprocess.STDOUT,
            preexec_fn=before,
        )
    logger.info("vLLM server started", pid=process.pid, output=str(output))
    server = ServerProcess(process, output)
    try:
        yield server
    finally:
        await server.stop()
