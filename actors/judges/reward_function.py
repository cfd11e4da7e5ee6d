"""A plain Python function as a judge: `judge.judges = ["my_module:reward"]`, or `hindcast start --reward my_module:reward`.

    def reward(answer, goal): return answer == goal["value"]

The names of its parameters say what it gets (`GIVEN`). It returns the reward, from 0 to 1, or True or False; with a reason, as a
pair; or None if it cannot decide. From `SUCCESS` on an episode is a success. A plain function runs in a thread, an `async def`
in the judge's loop. One that raises leaves the episode undecided, with the error as reason.

Invariant "Verdicts are facts about a judge": the judge's version is a digest of the source of the function's module, so another
text of it is another judge.
"""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from hindcast.actors.daemon_thread import DaemonThread
from hindcast.actors.environments.base import NO_ANSWERS
from hindcast.actors.environments.plugin import find_environment
from hindcast.actors.judges.base import Verdict, undecided
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.actors.judges.plugin import JudgeContext, JudgePlugin
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.errors import PluginError, error_and_place
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.events.catalogue.verdict import JudgeIdentity

SUCCESS = 0.5
"""Reward from which an episode is a success."""
GIVEN = {
    "task": "the task: environment, family, seed, goal (`hindcast.api.Task`)",
    "goal": "what the task's evaluator checks, a dict",
    "instruction": "what the agent was asked, a str",
    "answer": "the message that it ended with, a str; None without one",
    "answers": "its answers, oldest first, a tuple of str",
    "page": "the final page (`hindcast.core.domain.observation.Page`); None if it is not kept",
    "text": "the final page as the policy would read it, a str",
    "url": "the final address, a str",
    "probes": "what the environment found at the end, a dict",
    "reward": "what the environment's own rules give, a float; None if they do not decide",
}
"""What a function may ask for, by name of a parameter."""
_FROM_TRANSCRIPT = {"instruction", "answers", "page", "text"}


class FunctionJudge:
    """Judges with a reward function of the user's own."""

    asks_model = False

    def __init__(self, name: str, function: Callable[..., Any], *, renderer: str) -> None:
        """`renderer`: of the final page's text."""
        self.identity = JudgeIdentity(name=name, version=f"1-{_source(function)}")
        self._function = function
        self._parameter_names = _parameters(function)
        self._renderer = renderer

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        """See `Judge`."""
        arguments = await self._collect(episode)
        function, thread = partial(self._function, **arguments), DaemonThread("reward function")
        try:
            asynchronous = inspect.iscoroutinefunction(self._function)
            result = function() if asynchronous else await thread.call(function)
            result = await result if inspect.isawaitable(result) else result
        except Exception as error:  # other people's code, which may raise anything
            return undecided(f"{self.identity.name} raised {error_and_place(error)}")
        finally:
            thread.stop()
        return Verdict(judgment=_judgment(result, self.identity.name))

    async def _collect(self, episode: JudgedEpisode) -> dict[str, Any]:
        """What the function gets. Raises CannotDecide where the log does not hold it."""
        task, evidence = episode.task, episode.evidence
        arguments: dict[str, Any] = {
            "task": task,
            "goal": task.goal,
            "answer": evidence.answer,
            "url": evidence.final_url,
            "probes": evidence.probes,
        }
        if "reward" in self._parameter_names:
            arguments["reward"] = _own_reward(task, evidence)
        if _FROM_TRANSCRIPT & self._parameter_names:
            transcript = await episode.transcript()
            page = transcript.page
            arguments |= {"instruction": transcript.instruction, "answers": transcript.answers, "page": page}
            arguments["text"] = "" if page is None else RENDERERS[self._renderer](page)
        return {name: value for name, value in arguments.items() if name in self._parameter_names}


def as_judge(_name: str, plugin: Any) -> Any:
    """A function as a `JudgePlugin`; any other object as it is.

    Raises:
        PluginError: it has a parameter that is not in `GIVEN`.
    """
    if isinstance(plugin, type) or not inspect.isroutine(plugin) or not inspect.signature(plugin).parameters:
        return plugin
    _parameters(plugin)

    @asynccontextmanager
    async def open_judge(context: JudgeContext) -> AsyncIterator[FunctionJudge]:
        yield FunctionJudge(context.name, plugin, renderer=context.settings.actors.renderer)

    return JudgePlugin(open=open_judge)


def _own_reward(task: Task, evidence: Evidence) -> float | None:
    """What the rules of the task's environment give; None if they do not decide, or the environment is not installed here."""
    try:
        judgment = find_environment(task.environment).evaluate(task, evidence, NO_ANSWERS)
    except PluginError:
        return None
    return None if judgment.outcome == "undecided" else judgment.reward


def _parameters(function: Callable[..., Any]) -> set[str]:
    """The names that a function asks for. Raises PluginError for one that is not in `GIVEN`."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return set(GIVEN)
    by_position = [
        parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.POSITIONAL_ONLY
    ]
    unknown = [
        parameter.name
        for parameter in parameters
        if parameter.name not in GIVEN and parameter.default is inspect.Parameter.empty
    ]
    for name in [*by_position, *unknown]:
        given_text = "; ".join(f"{given_text}: {meaning}" for given_text, meaning in GIVEN.items())
        raise PluginError(
            f"the reward function {function.__module__}:{function.__qualname__} has the parameter {name!r}, and gets its arguments "
            f"by these names alone: {given_text}"
        )
    return {parameter.name for parameter in parameters if parameter.name in GIVEN}


def _judgment(result: Any, name: str) -> Judgment:
    """What a function returned, as a judgment. Raises ValueError for what is no reward."""
    if isinstance(result, Judgment):
        return result
    value, reason = result if isinstance(result, tuple) and len(result) == 2 else (result, "")
    if value is None:
        return Judgment(outcome="undecided", reward=0.0, reason=str(reason) or f"{name} returned None")
    if isinstance(value, str) or not hasattr(value, "__float__") or not 0.0 <= float(value) <= 1.0:
        raise ValueError(
            f"it returned {value!r}; expected a reward from 0 to 1, True or False, (reward, reason), or None"
        )
    reward = float(value)
    return Judgment(
        outcome="success" if reward >= SUCCESS else "failure",
        reward=reward,
        reason=str(reason) or f"{name} returned {reward:g}",
    )


def _source(function: Callable[..., Any]) -> str:
    """Eight hexadecimal characters of the digest of the module's source."""
    try:
        content = Path(inspect.getfile(function)).read_bytes()
    except (OSError, TypeError):
        content = function.__qualname__.encode()
    return sha256(content).hexdigest()[:8]
