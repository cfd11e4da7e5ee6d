"""Answers to an agent's calls: sampled from the actor's engine, on exactly the messages that the agent sent."""

from functools import partial
from typing import Any

from hindcast.actors.agents.model_call import Reply
from hindcast.actors.agents.world import AgentWorld
from hindcast.actors.engines.base import PolicyEngine, routed_by
from hindcast.actors.episodes.answerers import NO_VERSION, Answer
from hindcast.actors.episodes.prompt_reader import Situation
from hindcast.actors.telemetry.spans import policy_call
from hindcast.core.domain.sampling import Sampling
from hindcast.core.prompts.chat_messages import encode_chat
from hindcast.core.prompts.prompt import Prompt
from hindcast.core.seeds import derive_seed
from hindcast.events.catalogue import EpisodeRequested


class AgentAnswerer:
    """An `Answerer` of an episode in an `AgentWorld`. The episode's temperature holds, whatever the agent asks for."""

    def __init__(
        self,
        request: EpisodeRequested,
        *,
        world: AgentWorld,
        engine: PolicyEngine,
        run_seed: int,
        content: bool,
    ) -> None:
        self._request = request
        self._world = world
        self._engine = engine
        self._run_seed = run_seed
        self._content = content
        world.read_with(partial(_encode, engine.tokenizer))

    async def answer(self, situation: Situation) -> Answer:
        """See `Answerer`."""
        call, episode = self._world.call, self._request.episode
        sampling = Sampling(
            temperature=self._request.temperature,
            max_tokens=call.max_tokens,
            seed=derive_seed(self._run_seed, "episode", episode, "step", situation.index),
        )
        with policy_call(situation.index, sampling, content=self._content) as span, routed_by(episode):
            found = await self._engine.generate(call.prompt_ids, sampling)
            newest = max(found.versions, default=NO_VERSION)
            span.answered(
                prompt_tokens=len(call.prompt_ids), answer_tokens=len(found.token_ids), version=newest
            )
            text = self._engine.tokenizer.decode(found.token_ids, skip_special_tokens=True)
            if span.wants_content:
                span.said(prompt=self._engine.tokenizer.decode(call.prompt_ids), answer=text)
        self._world.answer(
            Reply(
                text=text,
                finish=found.finish,
                prompt_tokens=len(call.prompt_ids),
                answer_tokens=len(found.token_ids),
                version=newest,
                number=situation.index,
            )
        )
        return Answer(
            prompt=Prompt(ids=call.prompt_ids, truncated=False),
            token_ids=found.token_ids,
            logprobs=found.logprobs,
            versions=found.versions,
            sampling=sampling,
            text=text,
            allowed=found.allowed,
        )


def _encode(tokenizer: Any, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[int]:
    return encode_chat(tokenizer, messages, tools=tools)
