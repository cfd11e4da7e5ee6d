"""The process of an agent of the user's own: started for one episode, its latest output kept, ended with all that it started."""

import asyncio
import os
import shlex
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress

from hindcast.core.errors import EnvironmentFailed, SettingsError
from hindcast.core.settings.schema import ActorSettings

OUTPUT_BYTES = 4000
"""Latest output of an agent that is kept."""
LAST_LINES = 6
"""Lines of it that a message shows."""
END_S = 2.0
"""How long a process may take to end after it was asked to, before it is killed."""


def require_agent(settings: ActorSettings) -> None:
    """Raises SettingsError if the agent's command has no program that can be started here."""
    if not settings.agent:
        return
    try:
        words = shlex.split(settings.agent)
    except ValueError as error:
        raise SettingsError(f"actors.agent = {settings.agent!r} is no command: {error}") from error
    folder = settings.agent_folder or os.curdir
    program = words[0] if words else ""
    near = shutil.which(program, path=folder) if os.sep in program else None
    if near is None and shutil.which(program) is None:
        raise SettingsError(
            f"the program {program!r} of actors.agent = {settings.agent!r} is neither on the path nor in {folder}"
        )


class AgentProcess:
    """A running agent."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._output = bytearray()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, settings: ActorSettings, own: Mapping[str, str]) -> "AgentProcess":
        """Start the agent with variables of its own. It gets none of Hindcast's, which may hold passwords.

        Raises:
            EnvironmentFailed: the program cannot be started.
        """
        passed_on = {name: value for name, value in os.environ.items() if not name.startswith("HINDCAST")}
        try:
            return cls(
                await asyncio.create_subprocess_exec(
                    *shlex.split(settings.agent),
                    env=passed_on | dict(own),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,
                    cwd=settings.agent_folder or None,
                )
            )
        except OSError as error:
            raise EnvironmentFailed(
                f"the agent {settings.agent!r} (actors.agent) cannot be started in {settings.agent_folder or os.getcwd()} "
                f"(actors.agent_folder): {error}"
            ) from error

    async def wait(self) -> int:
        """Wait for its end; returns its exit status."""
        status = await self._process.wait()
        with suppress(TimeoutError):  # what it started may hold its output open
            async with asyncio.timeout(END_S):
                await asyncio.shield(self._reading)
        return status

    def last_lines(self) -> str:
        """What it wrote last, as the end of a message."""
        lines = self._output.decode(errors="replace").strip().splitlines()[-LAST_LINES:]
        return f". It wrote: {' | '.join(lines)}" if lines else ", and wrote nothing"

    async def end(self) -> None:
        """End it, and every process that it started. Never raises, bounded in time."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, sign)
            with suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await self._process.wait()
                    break
        with suppress(ProcessLookupError):  # its children, if they did not end with it
            os.killpg(self._process.pid, signal.SIGKILL)
        self._reading.cancel()

    async def _read(self) -> None:
        """Keep the latest output, so that a full pipe never stops the agent."""
        assert self._process.stdout is not None
        while content := await self._process.stdout.read(OUTPUT_BYTES):
            self._output += content
            del self._output[:-OUTPUT_BYTES]
