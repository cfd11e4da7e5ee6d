"""A plain Python class as an environment: `curriculum.environments = ["my_module:Env"]`, without a line of Hindcast's in it.

    class Env:
        def reset(self, seed): ...          # the first text
        def step(self, action): ...         # the next text, the reward, whether the episode is over

`families`, `max_steps` and `success` are optional attributes of the class; docs/python.md has the rest.
"""

import inspect
from collections.abc import Callable
from typing import Any

from hindcast.actors.environments.base import Answers, TaskSource, Venue, decided, undecided
from hindcast.actors.environments.plugin import Environment, SitePlaces
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.errors import PluginError, SettingsError
from hindcast.core.settings.schema import Settings

MAX_STEPS = 10
"""Steps after which an episode is truncated, if the class has no `max_steps`."""
SUCCESS = 0.5
"""Sum of an episode's rewards from which it is a success, if the class has no `success`."""


def reward_share(evidence: Evidence) -> float:
    """The recorded reward by its place in its range, 0 to 1 unless the evidence names another; outside it is cut."""
    low, high = evidence.probes.get("reward_range", (0.0, 1.0))
    share: float = (float(evidence.probes["reward"]) - low) / (high - low)
    return min(1.0, max(0.0, share))


class PythonTasks(TaskSource):
    """The `TaskSource` of a class: any seed of any of its families. The class gives the instruction when it is reset."""

    def __init__(self, name: str, families: tuple[str, ...], *, max_steps: int) -> None:
        self._name = name
        self._families = families
        self._max_steps = max_steps

    @property
    def name(self) -> str:
        """See `TaskSource`."""
        return self._name

    def families(self) -> tuple[str, ...]:
        """See `TaskSource`."""
        return self._families

    def task(self, family: str, seed: int) -> Task:
        """The task of a family and a seed. Raises SettingsError for a family that the class does not have."""
        if family not in self._families:
            raise SettingsError(
                f"{self._name} has no family {family!r}; its `families` are: {', '.join(self._families)}"
            )
        return Task(
            environment=self._name,
            family=family,
            seed=seed,
            instruction="",
            goal={},
            max_steps=self._max_steps,
        )


class PythonEnvironment(Environment):
    """A class, or a function without arguments that returns an object with its methods, as a plugin."""

    takes_agents = True

    def __init__(self, make: Callable[[], Any]) -> None:
        """Raises PluginError for attributes that make no sense."""
        self._make = make
        self._families: tuple[str, ...] = _attribute(make, "families", ("all",), tuple)
        self._max_steps = _attribute(make, "max_steps", MAX_STEPS, int)
        self._success = _attribute(make, "success", SUCCESS, float)
        self.state_version = _attribute(make, "state_version", 1, int)
        if not self._families or not all(isinstance(family, str) and family for family in self._families):
            raise PluginError(
                f"{_called(make)}.families is {self._families!r}: it must be names, such as ('easy', 'hard')"
            )
        if self._max_steps < 1:
            raise PluginError(
                f"{_called(make)}.max_steps is {self._max_steps}: an episode has at least 1 step"
            )

    def tasks(self, name: str, settings: Settings) -> TaskSource:
        """See `Environment.tasks`."""
        return PythonTasks(name, self._families, max_steps=self._max_steps)

    def open_site(self, name: str, settings: Settings, places: SitePlaces) -> Venue:
        """See `Environment.open_site`. No browser is started for it."""
        from hindcast.actors.environments.python.world import PythonVenue

        return PythonVenue(name, self._make, settings.actors)

    def evaluate(self, task: Task, evidence: Evidence, answers: Answers) -> Judgment:
        """A success if the episode's rewards add up to `success`; the verdict's reward is their `reward_share`."""
        total = evidence.probes.get("reward")
        if not isinstance(total, int | float):
            return undecided(f"{task.full_family}: the evidence holds no reward")
        judgment = decided(
            total >= self._success, f"its rewards add up to {total:g}; {self._success:g} is a success"
        )
        return Judgment(outcome=judgment.outcome, reward=reward_share(evidence), reason=judgment.reason)

    def families(self, settings: Settings) -> tuple[str, ...]:
        """See `Environment.families`."""
        return self._families


def as_environment(_name: str, plugin: Any) -> Any:
    """A plain class with `reset` and `step`, or a function that makes such objects, as an `Environment`; others as they are.

    Raises:
        PluginError: a class lacks one of the two.

    """
    if isinstance(plugin, Environment) or not callable(plugin):
        return plugin
    if isinstance(plugin, type) and issubclass(plugin, Environment):
        return plugin  # the class in place of its object: the caller says so
    if not isinstance(plugin, type):
        return plugin if inspect.signature(plugin).parameters else PythonEnvironment(plugin)
    lacking = [name for name in ("reset", "step") if not callable(getattr(plugin, name, None))]
    if lacking:
        raise PluginError(
            f"the class {_called(plugin)} has no {' and no '.join(lacking)}: an environment in Python has reset(seed), which "
            "returns the first text, and step(action), which returns the next text, the reward and whether the episode is "
            "over (docs/python.md)"
        )
    return PythonEnvironment(plugin)


def _attribute(make: Any, name: str, default: Any, kind: type) -> Any:
    value = getattr(make, name, default)
    if isinstance(value, property):
        return default
    try:
        return (value,) if kind is tuple and isinstance(value, str) else kind(value)
    except (TypeError, ValueError) as error:
        raise PluginError(f"{_called(make)}.{name} is {value!r}: {error}") from error


def _called(make: Any) -> str:
    return f"{getattr(make, '__module__', '')}:{getattr(make, '__qualname__', make)}"
