"""Environments of other projects by name: `hindcast start --environment verifiers:NAME`. Programs play them as agents.

    curriculum.environments = ["verifiers"]
    actors.agent = "verifiers:NAME"         what `program_of` and `agent_command` turn into a command

Tasks are seeds, as those of `agent`. Another package may declare an environment with a `program` of its own.
"""

from pathlib import Path

from hindcast.actors.agents import programs
from hindcast.actors.environments.agent.plugin import AgentTasks
from hindcast.actors.environments.base import TaskSource, Venue
from hindcast.actors.environments.plugin import AgentProgram, SitePlaces
from hindcast.core.settings.schema import Settings

FOLDER = Path(programs.__path__[0])


class ProgramTasks(AgentTasks):
    """Tasks of another project's environment, which `program` plays."""

    def __init__(self, name: str, program: AgentProgram) -> None:
        self._name = name
        self.program = program
        self.needs = f"its arguments: hindcast start --environment '{name}:{program.arguments}'"

    def tasks(self, name: str, settings: Settings) -> TaskSource | None:
        """See `Environment.tasks`."""
        return super().tasks(name, settings) if self._plays(settings) else None

    def open_site(self, name: str, settings: Settings, places: SitePlaces) -> Venue | None:
        """See `Environment.open_site`."""
        return super().open_site(name, settings, places) if self._plays(settings) else None

    def check(self, settings: Settings) -> list[str]:
        """See `Environment.check`."""
        if self._name not in settings.curriculum.environments or self._plays(settings):
            return []
        return [f"the environment {self._name!r} needs {self.needs}"]

    def _plays(self, settings: Settings) -> bool:
        name, _, arguments = settings.actors.agent.partition(":")
        return name == self._name and bool(arguments.strip())


VERIFIERS = ProgramTasks(
    "verifiers",
    AgentProgram(
        file=FOLDER / "verifiers_environment.py",
        imports=("verifiers",),
        install="verifiers==0.3.1 AN-ENVIRONMENT",
        arguments="ENVIRONMENT [NAME=VALUE …]",
    ),
)
VERIFIERS_TASKSET = ProgramTasks(
    "verifiers_taskset",
    AgentProgram(
        file=FOLDER / "verifiers_taskset.py",
        imports=("verifiers",),
        install="verifiers uv A-TASKSET",
        arguments="TASKSET [HARNESS]",
        many_episodes=False,
    ),
)
OPENENV = ProgramTasks(
    "openenv",
    AgentProgram(
        file=FOLDER / "openenv_environment.py",
        imports=("openenv", "openai"),
        install="openenv",
        arguments="URL-OR-MODULE:APP [--action FIELD] [--observation FIELD]",
    ),
)
MCP = ProgramTasks(
    "mcp",
    AgentProgram(
        file=FOLDER / "mcp_tools.py",
        imports=("mcp", "openai"),
        install="mcp openai",
        arguments="--question-file FILE COMMAND",
    ),
)
