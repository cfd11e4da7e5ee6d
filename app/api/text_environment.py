"""Hindcast's environments as text in another program's process: `reset` with a seed, then `step` with each answer.

    with TextEnvironment("store") as environment:
        episode = environment.open()
        shown = episode.reset(seed=3)
        while not shown.done:
            shown = episode.step(policy(shown.text))
        shown.reward

One thread serves the store, holds the browser and plays all episodes; the first `reset` starts it. Callers may be in any
thread: the methods wait for their result. Nothing is recorded.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from threading import Lock, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Observation
from hindcast.core.domain.task import Task
from hindcast.core.errors import HindcastError

if TYPE_CHECKING:
    from hindcast.actors.environments.base import EpisodeWorld
    from hindcast.core.settings.schema import Settings

START_S = 60.0
"""Time limit for the store and the browser to start."""
CLOSE_S = 20.0
"""Time limit for the browser to end."""
Result = TypeVar("Result")


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode shows after a reset or an answer."""

    text: str
    """The round's turn of the user: the page, in the first round after the instruction. Empty when the episode is over."""
    done: bool = False
    reward: float = 0.0
    """Reward from 0 to 1 of an episode that is over, by the task's evaluator."""
    outcome: str = ""
    """`success`, `failure` or `undecided` once the episode is over."""
    reason: str = ""
    """Why the evaluator decided so."""


class TextEnvironment:
    """An environment of this installation: `store`, `miniwob`, a Python class, or a plugin."""

    def __init__(
        self, environment: str = "store", *, families: Sequence[str] = (), changes: Sequence[str] = ()
    ) -> None:
        """`families`: which are played, in turn by seed; empty: the usual ones. `changes`: settings as KEY=VALUE.

        Other settings are those of `hindcast.toml` and of variables, as for a run. Raises SettingsError.
        """
        from hindcast.app.settings.configuration import resolve
        from hindcast.app.system.sites import task_sources

        named = msgspec.json.encode([environment]).decode()
        overrides = [f"curriculum.environments={named}", "actors.agent=", *changes]
        self.settings: Settings = resolve(overrides=overrides).settings
        self._name = environment
        self._tasks = task_sources(self.settings)[environment]
        self._families = tuple(families) or tuple(self._tasks.usual())
        self._ended = asyncio.Event()
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._starting = Lock()
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the store, the browser and all episodes."""
        if self._thread is not None and self._thread.is_alive():
            self._ready.result(START_S).call_soon_threadsafe(self._ended.set)
            self._thread.join(CLOSE_S)

    def task(self, seed: int) -> Task:
        """The task of a seed: the families take turns. Seeds from 1 000 000 on are those of held-out evaluations."""
        family = self._families[seed % len(self._families)]
        return self._tasks.task(family, seed)

    def open(self) -> "TextEpisode":
        """Open a sequence of episodes, one at a time; any number may be open at once."""
        return TextEpisode(self)

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the thread that holds the browser, and wait for it.

        Raises BrowserUnavailable, or EnvironmentFailed: the browser or the store does not start.
        """
        with self._starting:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="text environment", daemon=True)
                self._thread.start()
        loop = self._ready.result(START_S)
        if self._ended.is_set():
            work.close()
            raise HindcastError("the environment is closed: make another one")
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    async def open_world(self) -> "EpisodeWorld":
        """Open a world, in the thread that holds the browser."""
        return await self._host.open_world(self._sites[self._name])

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # the caller's to handle; this thread ends
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        from hindcast.actors.environments.browser import BrowserHost
        from hindcast.app.system.sites import needs_browser, sites_running

        async with AsyncExitStack() as resources:
            self._sites = await resources.enter_async_context(sites_running(self.settings))
            host = BrowserHost(self.settings.actors, at_once=needs_browser(self._sites, self.settings))
            self._host = await resources.enter_async_context(host)
            self._ready.set_result(asyncio.get_running_loop())
            await self._ended.wait()


class TextEpisode:
    """Episodes of a `TextEnvironment`, one at a time. `TextEnvironment.open` makes it."""

    def __init__(self, environment: TextEnvironment) -> None:
        self._environment = environment
        self._world: EpisodeWorld | None = None
        self._task: Task | None = None
        self._steps = 0

    def reset(self, seed: int) -> Shown:
        """Begin the episode of a seed; ends the one before. Raises EnvironmentFailed or BrowserUnavailable."""
        return self._environment.call(self._reset(seed))

    def step(self, answer: str) -> Shown:
        """Execute a policy's answer. Raises EnvironmentFailed or BrowserUnavailable."""
        return self._environment.call(self._step(answer))

    def close(self) -> None:
        """Release the browser's window."""
        if self._world is not None:
            self._environment.call(self._close())

    async def _reset(self, seed: int) -> Shown:
        await self._close()
        self._task = self._environment.task(seed)
        self._world = await self._environment.open_world()
        self._steps = 0
        begun = await self._world.reset(self._task)
        return self._show(begun.observation, opening=f"Task Instruction: {begun.instruction}\n\n")

    async def _step(self, answer: str) -> Shown:
        from hindcast.core.grammar.answer_parser import parse_form

        if self._world is None or self._task is None:
            raise HindcastError("the episode is over, or has not begun: call reset")
        self._steps += 1
        form = self._environment.settings.actors.answer_format
        action = parse_form(answer, form, self._observation.page)
        if isinstance(action, Action) and action.name == "exit":
            return await self._finish(self._world, self._task, action.argument or "")
        outcome = await self._world.step(action)
        if outcome.done or self._steps >= self._task.max_steps:
            return await self._finish(self._world, self._task, None)
        return self._show(outcome.observation)

    def _show(self, observation: Observation, *, opening: str = "") -> Shown:
        from hindcast.core.prompts.rendering import find_renderer

        self._observation = observation
        page = find_renderer(self._environment.settings.actors.renderer).render(observation.page)
        return Shown(text=f"{opening}Round {self._steps}\n\n{page}")

    async def _finish(self, world: "EpisodeWorld", task: Task, message: str | None) -> Shown:
        from hindcast.actors.judges.rules import RuleJudge

        evidence = await world.finish(message)
        await self._close()
        found = RuleJudge().evaluate(task, evidence)
        return Shown(text="", done=True, reward=found.reward, outcome=found.outcome, reason=found.reason)

    async def _close(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            await world.close()
