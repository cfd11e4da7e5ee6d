"""What an environment is to all of the system: one plugin, an `Environment` object that `curriculum.environments` names.

Curriculum, actors, judges, settings and commands ask the plugin and never compare its name. A plugin's module imports
browser and data libraries inside methods alone, so that processes without a browser may ask.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hindcast.actors.environments.base import Answers, Demonstrate, Question, TaskSource, Venue
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.errors import PluginError
from hindcast.core.plugins import NoOptions, find_plugin, own_names, plugin_names, read_options
from hindcast.core.settings.schema import Settings

ENVIRONMENTS = "environments"
"""The kind of plugin."""


class SitePlaces(msgspec.Struct, frozen=True, kw_only=True):
    """What a process gives the sites that it opens."""

    store_url: str
    """Address of the server that shows the store's pages and WebShop's."""
    store_token: str
    """Control token of that server."""
    logins: Path
    """Folder of saved logins."""
    trusted: bool = True
    """Whether the tasks are the user's own, so that their secrets and resets may be used."""


class AgentProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that plays an environment of another project, as an agent (`actors.agent = "NAME:ARGUMENTS"`)."""

    file: Path
    """A Python file that imports nothing of Hindcast's; it gets the arguments. The protocol: docs/agents.md."""
    imports: tuple[str, ...]
    """Top-level modules that its interpreter (`actors.agent_python`) must have."""
    install: str
    """What `pip install` gets there."""
    arguments: str
    """What follows the name and a colon, such as `ENVIRONMENT`."""
    many_episodes: bool = True
    """Whether one process can play many episodes (`actors.agent_episodes`)."""


class Environment(ABC):
    """One environment. A subclass has `tasks`, `open_site` and `evaluate`, and what else applies to it.

    `name` is the name that the settings use: an entry point's, or `module:object`. Tasks carry it as their environment.
    """

    state_version: int = 1
    """To be raised when recorded episodes would be played or judged differently."""
    options: type[msgspec.Struct] = NoOptions
    """What `sites.options.NAME` may hold; `options_of` reads it."""
    imports_goals: bool = False
    """Whether tasks may be imported from a file: their goals are plain values and name no login, reset or command."""
    recorded_by_people: bool = False
    """Whether people record its demonstrations (`hindcast record`)."""

    needs: str = ""
    """The settings that give it tasks, in words; empty: it always has some."""
    takes_agents: bool = False
    """Whether agents of the user's own can play it (`actors.agent`)."""
    program: AgentProgram | None = None
    """The program that plays it, if another project's; `hindcast start --environment NAME:ARGUMENTS` names both."""
    is_played_once: bool = False
    """Whether `hindcast eval` plays each of its tasks once, as its papers do; else it draws seeds."""

    @abstractmethod
    def tasks(self, name: str, settings: Settings) -> TaskSource | None:
        """The tasks; None where the settings do not say where they are. Raises SettingsError."""

    @abstractmethod
    def open_site(self, name: str, settings: Settings, places: SitePlaces) -> Venue | None:
        """Where episodes take place: a `Site` for our browser, or a `Browserless`; None as for `tasks`."""

    @abstractmethod
    def evaluate(self, task: Task, evidence: Evidence, answers: Answers) -> Judgment:
        """The verdict of the rules: a pure function. `answers` are those of a model to `questions`, usually none."""

    def questions(self, task: Task, evidence: Evidence) -> Sequence[Question]:
        """What only a model can decide (judge `fuzzy`); pure."""
        return ()

    def objection(self, task: Task, evidence: Evidence, judgment: Judgment) -> str:
        """Why a success does not count for the judge `strict`; empty: it counts."""
        return ""

    def demonstrators(self) -> Mapping[str, Demonstrate]:
        """Scripted demonstrators by family."""
        return {}

    def families(self, settings: Settings) -> Collection[str]:
        """Families as far as they are known without loading data; empty: unknown."""
        return ()

    def evaluation_families(self, source: TaskSource) -> Sequence[str]:
        """Families that `hindcast eval` plays where none is named; empty: the usual ones."""
        return ()

    def why_no_family(self, family: str) -> str:
        """Why there is no such family, in words; empty: nothing is known of it."""
        return ""

    def depends_on_time(self, task: Task) -> bool:
        """Whether its pages depend on elapsed time, so that a replay may differ."""
        return False

    def check(self, settings: Settings) -> list[str]:
        """What is missing or does not go together in the settings, one sentence each."""
        return []


def find_environment(name: str) -> Environment:
    """The environment that settings or a task name. Raises PluginError where there is none."""
    return find_plugin(ENVIRONMENTS, name, Environment)


def program_of(agent: str) -> AgentProgram | None:
    """The program that `actors.agent` or `--environment` names by an environment (`NAME:ARGUMENTS`); None: it names none.

    Raises:
        PluginError: the environment cannot be loaded.

    """
    name, colon, _ = agent.partition(":")
    return find_environment(name).program if colon and name in plugin_names(ENVIRONMENTS) else None


def environments_of(settings: Settings) -> dict[str, Environment]:
    """The built-in environments, and those of other packages that the settings name."""
    names = dict.fromkeys([*own_names(ENVIRONMENTS), *settings.curriculum.environments])
    return {name: find_environment(name) for name in names}


def options_of(name: str, settings: Settings) -> Any:
    """`sites.options.NAME` as the environment's own struct. Raises SettingsError where it is not what that allows."""
    option_values = settings.sites.options.get(name, {})
    return read_options(
        find_environment(name).options, option_values, of=f"sites.options of the environment {name!r}"
    )


class Demonstrators(Mapping[tuple[str, str], Demonstrate]):
    """Scripted demonstrators of every environment, by environment and family."""

    def __getitem__(self, key: tuple[str, str]) -> Demonstrate:
        environment, family = key
        try:
            return find_environment(environment).demonstrators()[family]
        except PluginError as error:
            raise KeyError(key) from error

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for name in plugin_names(ENVIRONMENTS):
            for family in find_environment(name).demonstrators():
                yield name, family

    def __len__(self) -> int:
        return sum(1 for _ in self)


DEMONSTRATORS = Demonstrators()
"""Demonstrators by environment and family."""
