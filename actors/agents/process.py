"""The processes of an agent of the user's own: each plays one episode at a time, and is ended with all that it started.

    actors.agent_episodes = 1     an episode's variables are in the environment of a process of its own
    more                          they are a line of JSON on the process's standard input, a line for each episode

A process is kept for the next episode only if its agent ended the last one itself (`POST …/end`). If the actor dies, its
agents find their standard input closed.
"""

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from hindcast.actors.environments.plugin import AgentProgram, program_of
from hindcast.core.errors import EnvironmentFailed, SettingsError
from hindcast.core.settings.schema import ActorSettings

OUTPUT_BYTES = 4000
"""Latest output of an agent that is kept."""
LAST_LINES = 6
"""Lines of it that a message shows."""
END_S = 2.0
"""How long a process may take to end after it was asked to, before it is killed."""
IMPORT_S = 10.0
"""How long an interpreter may take to look for modules; it takes about 0.05 s, because it imports none."""
MISSING = """
import sys
from importlib.util import find_spec
del sys.path[0]  # the working folder, which a program's own path does not have
print("missing:", *(name for name in sys.argv[1:] if find_spec(name) is None))
"""
"""Prints, after a first word, those of the given top-level modules that an interpreter does not find."""


def require_agent(settings: ActorSettings) -> None:
    """Raises SettingsError if the agent's command has no program that can be started here, or its interpreter no package."""
    if not settings.agent:
        return
    try:
        command = agent_command(settings)
    except ValueError as error:
        raise SettingsError(f"actors.agent = {settings.agent!r} is no command: {error}") from error
    folder = settings.agent_folder or os.curdir
    program = command[0] if command else ""
    local_program = shutil.which(program, path=folder) if os.sep in program else None
    if local_program is None and shutil.which(program) is None:
        raise SettingsError(
            f"the program {program!r} of actors.agent = {settings.agent!r} is neither on the path nor in {folder}"
        )
    if (known_program := program_of(settings.agent)) is not None:
        _require_imports(known_program, settings.agent, python=program, folder=folder)


def agent_command(settings: ActorSettings) -> list[str]:
    """The words of the agent's command. `NAME:ARGUMENTS` is the program of that environment, in `actors.agent_python`.

    Raises:
        ValueError: a quotation is not closed.
        PluginError: the environment cannot be loaded.

    """
    program = program_of(settings.agent)
    if program is None:
        return shlex.split(settings.agent)
    arguments = shlex.split(settings.agent.partition(":")[2])
    return [settings.agent_python or sys.executable, str(program.file), *arguments]


def _require_imports(program: AgentProgram, agent: str, *, python: str, folder: str) -> None:
    try:
        probe = subprocess.run(
            [python, "-c", MISSING, *program.imports],
            capture_output=True,
            text=True,
            timeout=IMPORT_S,
            cwd=folder,
            check=True,
        )
        begin, *missing = probe.stdout.split() or [""]
        if begin != "missing:":
            raise OSError("it does not print what a Python program tells it to print")
    except (OSError, subprocess.SubprocessError) as error:
        raise SettingsError(
            f"actors.agent_python: {python}, which is to run actors.agent = {agent!r}, is no Python interpreter: {error}"
        ) from error
    if missing:
        raise SettingsError(
            f"actors.agent = {agent!r} needs the Python package {', '.join(missing)}, which {python} does not have. Its "
            "requirements may contradict Hindcast's, so give it an environment of its own: python3 -m venv theirs && "
            f"theirs/bin/pip install {program.install}. Then add --set actors.agent_python=$PWD/theirs/bin/python"
        )


class AgentProcesses:
    """The processes of one agent between their episodes."""

    def __init__(self, settings: ActorSettings) -> None:
        self._settings = settings
        self._waiting: dict[AgentProcess, asyncio.Task[None]] = {}
        """Each with the task that ends it when it dies, or when this program ends."""

    async def begin(self, variables: Mapping[str, str]) -> "AgentProcess":
        """Begin an episode in a process that waits, else in a new one. Raises EnvironmentFailed if none can be started."""
        while self._waiting:
            process, watch = self._waiting.popitem()
            watch.cancel()
            if await process.send(variables):
                return process
            await process.end()
        return await AgentProcess.start(self._settings, variables)

    def keep(self, process: "AgentProcess") -> bool:
        """Keep a process for another episode; False: it has played all that it may."""
        has_episodes_left = process.episodes < self._settings.agent_episodes
        if has_episodes_left:
            self._waiting[process] = asyncio.create_task(self._watch(process), name="a waiting agent")
        return has_episodes_left

    async def _watch(self, process: "AgentProcess") -> None:
        try:
            await process.wait()
        finally:
            if self._waiting.pop(process, None) is not None:
                await process.end()


class AgentProcess:
    """A running agent."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.episodes = 1
        """Episodes that it was given."""
        self._process = process
        self._output = bytearray()
        self._reading = asyncio.create_task(self._read_output())

    @classmethod
    async def start(cls, settings: ActorSettings, variables: Mapping[str, str]) -> "AgentProcess":
        """Start the agent with the variables of an episode. It gets none of Hindcast's own, which may hold passwords.

        Raises:
            EnvironmentFailed: the program cannot be started.
        """
        passed_on = {name: value for name, value in os.environ.items() if not name.startswith("HINDCAST")}
        several = settings.agent_episodes > 1
        episode_variables = {"HINDCAST_EPISODES": str(settings.agent_episodes)} if several else variables
        try:
            started = cls(
                await asyncio.create_subprocess_exec(
                    *agent_command(settings),
                    env=passed_on | dict(episode_variables),
                    stdin=asyncio.subprocess.PIPE if several else asyncio.subprocess.DEVNULL,
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
        if several:
            await started._write(variables)  # one that has already ended says why when it is waited for
        return started

    async def send(self, variables: Mapping[str, str]) -> bool:
        """Give it another episode; False: it has ended."""
        self.episodes += 1
        self._output.clear()
        return not self._has_ended() and await self._write(variables)

    def _has_ended(self) -> bool:
        """Whether it has ended, also if the event loop has not noticed yet."""
        if self._process.returncode is not None:
            return True
        if sys.platform == "darwin":  # has no `waitid`
            return False
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # the loop has just waited for it
            return True

    async def _write(self, variables: Mapping[str, str]) -> bool:
        """Write an episode's variables to its standard input, as a line of JSON; False: nothing reads it any more."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(variables) + b"\n")
            await self._process.stdin.drain()
        except (ConnectionError, RuntimeError):  # the latter is uvloop's, of a pipe that is closed
            return False
        return True

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

    async def _read_output(self) -> None:
        """Keep the latest output, so that a full pipe never stops the agent."""
        assert self._process.stdout is not None
        while content := await self._process.stdout.read(OUTPUT_BYTES):
            self._output += content
            del self._output[:-OUTPUT_BYTES]
