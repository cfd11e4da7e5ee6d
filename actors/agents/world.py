"""An episode that an agent of the user's own plays: a process that asks the policy, one call a step.

    reset     opens the place (a store's visit, a Python class's text), starts the agent, waits for its first call
    answer    `AgentAnswerer` samples the answer to the call that waits
    step      sends it to the agent, waits for the next call, or for the end that the agent sends, or for its process's end
    finish    ends the process, or keeps it for another episode (`actors.agent_episodes`), and collects the evidence

The agent holds the world; to the episode loop the agent is the world. Every wait is bounded (`actors.agent_wait_s`).
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hindcast.actors.agents.model_call import ModelCall, Reply
from hindcast.actors.agents.process import AgentProcess, AgentProcesses
from hindcast.actors.agents.proxy import AgentProxy, EpisodeOver, RewardRefused
from hindcast.actors.environments.base import (
    Browserless,
    EpisodeWorld,
    ResetResult,
    StepOutcome,
    Venue,
    Visit,
    Visitable,
    WindowImage,
)
from hindcast.actors.environments.python.world import page_of
from hindcast.actors.environments.snapshot import observe
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Observation
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.prompts.chat_messages import ChatUnreadable, encode_chat
from hindcast.core.settings.schema import ActorSettings

Encode = Callable[[list[dict[str, Any]], list[dict[str, Any]]], list[int]]
"""From messages and tools to a prompt's token ids."""


def chat_encoder(tokenizer: Any) -> Encode:
    """The encoding by a policy's chat template."""
    return lambda messages, tools: encode_chat(tokenizer, messages, tools=tools)


class AgentVenue:
    """A place of an environment in which agents of the user's own play; see `Browserless`."""

    def __init__(self, venue: Venue, proxy: AgentProxy, settings: ActorSettings) -> None:
        self.name = venue.name
        self._venue = venue
        self._proxy = proxy
        self._settings = settings
        self._processes = AgentProcesses(settings)

    def open_world(self) -> EpisodeWorld:
        """See `Browserless`."""
        return AgentWorld(self._venue, self._proxy, self._processes, self._settings)


class AgentWorld:
    """An `EpisodeWorld` around one agent process."""

    def __init__(
        self, venue: Venue, proxy: AgentProxy, processes: AgentProcesses, settings: ActorSettings
    ) -> None:
        self._venue = venue
        self._proxy = proxy
        self._processes = processes
        self._settings = settings
        self._encode: Encode | None = None
        self._key = ""
        self._process: AgentProcess | None = None
        self._calls: asyncio.Queue[ModelCall] = asyncio.Queue()
        self._current: ModelCall | None = None
        self._due_reply: Reply | None = None
        self._inner: EpisodeWorld | None = None
        self._visit: Visit | None = None
        self._task: Task | None = None
        self._address = ""
        self._reward: float | None = None
        self._sent_answer: str | None = None
        self._ended_by_agent = asyncio.Event()
        """Set once the agent has ended the episode by itself."""
        self._over = False
        self._steps = 0
        """Answers that the agent got."""
        self._exceeds_calls = False
        """Whether the agent asks on although its task allows no further call."""

    def read_with(self, encode: Encode) -> None:
        """Give the policy's encoding of messages and tools; needed before `reset`."""
        self._encode = encode

    @property
    def call(self) -> ModelCall:
        """The call that waits for an answer."""
        assert self._current is not None, "no call waits"
        return self._current

    def answer(self, reply: Reply) -> None:
        """Give the answer to the call that waits; `step` sends it."""
        self._due_reply = reply

    async def next_question(self) -> Observation | None:
        """Turn to the next call, because nobody waits for the answer to this one any more; None: the agent has ended.

        Raises EnvironmentFailed as `step`.
        """
        following = await self._next_call()
        return None if following is None else self._observation_of(following)

    async def ask(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]],
        max_tokens: int | None,
        temperature: float | None,
    ) -> tuple[ModelCall, Reply]:
        """See `CallTarget`. The episode's temperature holds."""
        assert self._encode is not None
        prompt_ids = await asyncio.to_thread(self._encode, messages, tools)
        max_prompt_tokens = self._settings.max_prompt_tokens
        if len(prompt_ids) > max_prompt_tokens:
            raise ChatUnreadable(
                f"the messages have {len(prompt_ids)} tokens, {max_prompt_tokens} are allowed (actors.max_prompt_tokens): shorten them"
            )
        allowed = self._settings.max_answer_tokens
        call = ModelCall(
            messages,
            prompt_ids=prompt_ids,
            max_tokens=min(allowed, max_tokens or allowed),
            uses_tools=bool(tools),
        )
        if self._over:
            raise EpisodeOver("the episode has ended")
        self._calls.put_nowait(call)
        try:
            return call, await call.reply
        except asyncio.CancelledError:
            if self._over:  # not this request: the episode ended
                raise EpisodeOver("the episode has ended") from None
            raise

    def reward(self, value: float | None, answer: str | None) -> None:
        """See `Rewarded`; the last one counts."""
        low, high = self._settings.agent_reward_range
        if value is not None and not low <= value <= high:
            raise RewardRefused(
                f"the reward is {value:g}, outside {low:g} to {high:g}: send one within, or set the range of your rewards, "
                "such as actors.agent_reward_range=[-1,2]"
            )
        self._reward = self._reward if value is None else value
        self._sent_answer = self._sent_answer if answer is None else answer

    def end(self) -> None:
        """See `Rewarded`."""
        self._ended_by_agent.set()

    async def reset(self, task: Task) -> ResetResult:
        """Open the place and start the agent; returns its first call. Raises EnvironmentFailed where there is none."""
        self._task, self._address = task, f"agent:{task.full_family}"
        instruction, text, start = await self._enter(task)
        self._key, base = await self._proxy.open(self)
        await self._start(base, task, instruction=instruction, text=text, start=start)
        call = await self._next_call()
        if call is None:
            assert self._process is not None
            raise EnvironmentFailed(
                f"the agent ended before it asked the policy anything{self._process.last_lines()}"
            )
        return ResetResult(instruction=instruction, observation=self._observation_of(call))

    async def step(self, action: Action | ParseFailure) -> StepOutcome:
        """Send the answer to the agent, and wait for what it does next. Raises EnvironmentFailed if it fails or hangs."""
        began = time.perf_counter()
        call, reply = self.call, self._due_reply
        assert reply is not None, "the call was not answered"
        if not call.reply.done():
            call.reply.set_result(reply)
        following = await self._next_call()
        self._steps += 1
        assert self._task is not None
        self._exceeds_calls = following is not None and self._steps >= self._task.max_steps
        return StepOutcome(
            result="ok",
            detail="",
            observation=self._observation_of(call if following is None else following),
            done=following is None,
            act_ms=1000 * (time.perf_counter() - began),
            observe_ms=0.0,
        )

    async def picture(self) -> WindowImage:
        """Return no image: what the agent sees is its own."""
        return WindowImage(missing="an agent of your own plays; its screen is not ours")

    async def finish(self, answer: str | None) -> Evidence:
        """End the agent; the evidence is the place's record, or the reward that the agent sent."""
        await self._end()
        final_answer = self._sent_answer if self._sent_answer is not None else answer
        if self._visit is not None:
            assert isinstance(self._venue, Visitable)
            assert self._task is not None
            probes = await self._venue.read_visit(self._visit, self._task)
            if probes:
                return Evidence(answer=final_answer, final_url=self._visit.url, probes=probes)
        reward_probes: dict[str, Any] = {"reward": self._reward}
        if self._settings.agent_reward_range != (0.0, 1.0):
            reward_probes["reward_range"] = list(self._settings.agent_reward_range)
        if self._exceeds_calls:
            reward_probes["cut_after"] = self._steps
        return Evidence(answer=final_answer, final_url=self._address, probes=reward_probes)

    async def close(self) -> None:
        """End the agent and release the place. Never raises, bounded in time."""
        await self._end()
        if self._inner is not None:
            await self._inner.close()
        if self._visit is not None and isinstance(self._venue, Visitable):
            with suppress(EnvironmentFailed):
                await self._venue.close_visit(self._visit)
            self._visit = None

    async def _enter(self, task: Task) -> tuple[str, str, str]:
        """Open the place; returns instruction, text and address of the start, each empty where there is none."""
        if isinstance(self._venue, Visitable):
            self._visit = await self._venue.open_visit(task)
            return task.instruction, "", self._visit.url
        if not isinstance(self._venue, Browserless):
            raise EnvironmentFailed(
                f"{self._venue.name} is played in our own browser: agents of your own play store, agent, and Python classes"
            )
        self._inner = self._venue.open_world()
        start = await self._inner.reset(task)
        lines = [node.text for node in start.observation.page.nodes if node.kind == "text"]
        return start.instruction, "\n".join(lines), ""

    async def _start(self, base: str, task: Task, *, instruction: str, text: str, start: str) -> None:
        self._process = await self._processes.begin(
            {
                "OPENAI_BASE_URL": f"{base}/v1",
                "OPENAI_API_KEY": "hindcast",
                "ANTHROPIC_BASE_URL": base,
                "ANTHROPIC_API_KEY": "hindcast",
                "HINDCAST_EPISODE_URL": base,
                "HINDCAST_SEED": str(task.seed),
                "HINDCAST_FAMILY": task.family,
                "HINDCAST_INSTRUCTION": instruction,
                "HINDCAST_TEXT": text,
                "HINDCAST_START_URL": start,
            }
        )

    async def _next_call(self) -> ModelCall | None:
        """Wait for the next call whose client waits; None: the agent has ended the episode, without an error. Raises EnvironmentFailed."""
        process = self._process
        assert process is not None
        waiting = asyncio.create_task(self._wanted_call())
        ending = asyncio.create_task(process.wait())
        sent = asyncio.create_task(self._ended_by_agent.wait())
        limit_s = self._settings.agent_wait_s
        try:
            finished, _ = await asyncio.wait(
                {waiting, ending, sent}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in (waiting, ending, sent):
                task.cancel()
        if waiting in finished:
            self._current = waiting.result()
            return self._current
        if sent in finished:
            return None
        if ending in finished:
            status = ending.result()
            if status:
                raise EnvironmentFailed(f"the agent ended with status {status}{process.last_lines()}")
            return None
        if self._reward is not None:
            return None
        raise EnvironmentFailed(
            f"the agent neither asked anything nor ended within {limit_s:g} s (actors.agent_wait_s){process.last_lines()}"
        )

    async def _wanted_call(self) -> ModelCall:
        while (call := await self._calls.get()).given_up:
            pass
        return call

    def _observation_of(self, call: ModelCall) -> Observation:
        return observe(page_of(self._address, call.text, ()))

    async def _end(self) -> None:
        """Refuse calls that still come. Keep the process if its agent ended the episode; else end all that it started."""
        self._over = True
        self._proxy.close(self._key)
        waiting = [self._current] if self._current is not None else []
        while not self._calls.empty():
            waiting.append(self._calls.get_nowait())
        for call in waiting:
            call.reply.cancel()
        process, self._process = self._process, None
        if process is not None and not (self._ended_by_agent.is_set() and self._processes.keep(process)):
            await process.end()
