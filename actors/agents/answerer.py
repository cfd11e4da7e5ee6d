"""Answers to an agent's calls: sampled from the actor's engine, on exactly the messages that the agent sent."""

from hindcast.actors.agents.contexts import Contexts, turns_of
from hindcast.actors.agents.model_call import ModelCall, Reply, message_of
from hindcast.actors.agents.world import AgentWorld, chat_encoder
from hindcast.actors.engines.base import Generation, PolicyEngine, routed_by
from hindcast.actors.episodes.answerers import NO_VERSION, Answer
from hindcast.actors.episodes.prompt_reader import Situation
from hindcast.actors.telemetry.spans import policy_call
from hindcast.core.domain.sampling import Sampling
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
        self._contexts = Contexts()
        world.read_with(chat_encoder(engine.tokenizer))

    async def answer(self, situation: Situation) -> Answer:
        """See `Answerer`. Where the agent gave a call up while it was sampled, its next call is answered in its place."""
        call, observation = self._world.call, None
        sampled = await self._sample(call, situation.index)
        while call.given_up and (following := await self._world.next_question()) is not None:
            observation, given_up, call = following, call, self._world.call
            if (call.prompt_ids, call.max_tokens) != (given_up.prompt_ids, given_up.max_tokens):
                sampled = await self._sample(call, situation.index)  # no retry, but another question
        generation, sampling, text = sampled
        newest = max(generation.versions, default=NO_VERSION)
        reply = Reply(
            text=text,
            finish=generation.finish,
            prompt_tokens=len(call.prompt_ids),
            answer_tokens=len(generation.token_ids),
            version=newest,
            number=situation.index,
        )
        self._world.answer(reply)
        (answered,) = turns_of([message_of(reply, uses_tools=call.uses_tools)])
        return Answer(
            prompt=Prompt(ids=call.prompt_ids, truncated=False),
            token_ids=generation.token_ids,
            logprobs=generation.logprobs,
            versions=generation.versions,
            sampling=sampling,
            text=text,
            allowed=generation.allowed,
            observation=observation,
            context=self._contexts.add(call.turns, answered),
        )

    async def _sample(self, call: ModelCall, index: int) -> tuple[Generation, Sampling, str]:
        episode = self._request.episode
        sampling = Sampling(
            temperature=self._request.temperature,
            max_tokens=call.max_tokens,
            seed=derive_seed(self._run_seed, "episode", episode, "step", index),
        )
        with policy_call(index, sampling, content=self._content) as span, routed_by(episode):
            generation = await self._engine.generate(call.prompt_ids, sampling)
            newest = max(generation.versions, default=NO_VERSION)
            span.answered(
                prompt_tokens=len(call.prompt_ids), answer_tokens=len(generation.token_ids), version=newest
            )
            text = self._engine.tokenizer.decode(generation.token_ids, skip_special_tokens=True)
            if span.wants_content:
                span.record_texts(prompt=self._engine.tokenizer.decode(call.prompt_ids), answer=text)
        return generation, sampling, text
