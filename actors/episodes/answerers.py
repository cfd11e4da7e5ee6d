"""Sources of an episode's answers: the policy, a scripted demonstrator, a person, or a recording.

Invariant "What was sampled is what is trained": an answer carries the exact token ids read and generated, the log-
probabilities under the sampling distribution, and the policy version of every token. A demonstrator's answer is
encoded as the policy would sample it (text and end token), with log-probability 0 and version -1 for every token. No
policy sampled it, so there is no behaviour distribution to correct for.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol, Unpack

import msgspec

from hindcast.actors.engines.base import PolicyEngine, routed_by
from hindcast.actors.environments.base import Demonstrate
from hindcast.actors.environments.early_stopping_demonstrator import LEAVE
from hindcast.actors.episodes.prompt_reader import (
    PromptParts,
    PromptReader,
    Situation,
    shown_in,
    vision_engine,
)
from hindcast.actors.scaffold.scaffold import Scaffold
from hindcast.actors.telemetry.spans import policy_call
from hindcast.core.domain.action import Action
from hindcast.core.domain.arrays import unpack_floats, unpack_ids
from hindcast.core.domain.observation import Observation, Page
from hindcast.core.domain.sampling import Sampling, Scaffolded
from hindcast.core.errors import EngineFailed, EnvironmentFailed
from hindcast.core.grammar.answer_parser import first_answer_token, format_answer, put_in_form
from hindcast.core.grammar.dialects import written_text
from hindcast.core.prompts.prompt import Prompt, encode_answer
from hindcast.core.prompts.rationale import reason_for
from hindcast.core.settings.schema import ActorSettings
from hindcast.events.catalogue import EpisodeRequested, StepTaken
from hindcast.events.catalogue.episode import ShownPicture

NO_VERSION = -1
"""Version of a token that no policy sampled."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer with its prompt, tokens and sampling record."""

    prompt: Prompt
    token_ids: list[int]
    logprobs: list[float]
    """Log-probability of each token, natural logarithm."""
    versions: list[int]
    """Policy version of each token."""
    sampling: Sampling
    text: str
    answer_from: int = 0
    """Number of tokens before the answer: the thought that precedes it."""
    allowed: bytes = b""
    """The set that each token was drawn from, as `core.grammar.allowed_tokens` packs them; empty: the whole vocabulary each time."""
    scaffold: Scaffolded | None = None
    pictures: tuple[ShownPicture, ...] = ()
    """Pictures in the prompt."""
    observation: Observation | None = None
    """What was answered instead of the situation's observation, because an agent gave that one up; None: that one."""
    context: int = 0
    """Number of the agent's context, as in `StepTaken`."""


class Answerer(Protocol):
    """Gives the answers of one episode."""

    async def answer(self, situation: Situation) -> Answer:
        """Return the next answer. Raises EngineFailed when the policy cannot give one."""
        ...


class PolicyAnswerer:
    """Answers sampled from the actor's engine."""

    def __init__(
        self,
        request: EpisodeRequested,
        *,
        engine: PolicyEngine,
        settings: ActorSettings,
        run_seed: int,
        scaffold: Scaffold | None = None,
        content: bool = False,
    ) -> None:
        """`content`: whether spans contain the text of prompts and answers."""
        self._content = content
        self._engine = engine
        self._seeing = vision_engine(engine, settings)
        self._reader = PromptReader(
            request,
            tokenizer=engine.tokenizer,
            settings=settings,
            scaffold=scaffold,
            run_seed=run_seed,
            seeing=self._seeing,
        )

    async def answer(self, situation: Situation) -> Answer:
        """See `Answerer`."""
        framed = self._reader.framed(situation)
        image_input = await self._reader.process_screenshot(situation)
        prompt = self._reader.prompt(situation, framed, image_input)
        sampling = self._reader.sampling(situation)
        forms = framed.forms if framed else None
        with (
            policy_call(situation.index, sampling, content=self._content) as call,
            routed_by(self._reader.episode),
        ):
            generation = (
                await self._engine.generate(prompt.ids, sampling, forms)
                if self._seeing is None or image_input is None
                else await self._seeing.generate_seeing(prompt.ids, (image_input,), sampling, forms)
            )
            call.answered(
                prompt_tokens=len(prompt.ids),
                answer_tokens=len(generation.token_ids),
                version=max(generation.versions, default=NO_VERSION),
            )
            text = self._reader.tokenizer.decode(generation.token_ids, skip_special_tokens=True)
            if call.wants_content:
                call.record_texts(prompt=self._reader.tokenizer.decode(prompt.ids), answer=text)
        tokens = len(generation.token_ids)
        if tokens != len(generation.logprobs) or tokens != len(generation.versions):
            raise EngineFailed(
                f"the engine gave {tokens} tokens with {len(generation.logprobs)} log-probabilities and "
                f"{len(generation.versions)} versions; each token needs one of both"
            )
        return Answer(
            prompt=prompt,
            token_ids=generation.token_ids,
            logprobs=generation.logprobs,
            versions=generation.versions,
            sampling=sampling,
            text=text,
            answer_from=self._reader.answer_from(generation.token_ids),
            allowed=generation.allowed,
            scaffold=framed.record if framed else None,
            pictures=shown_in(situation, image_input),
        )


class BranchAnswerer:
    """The recorded answers of another episode of the task up to a step, then those of another answerer.

    Every page must be the recorded one, so that what follows is a continuation of that episode.
    """

    def __init__(self, recorded: Sequence[StepTaken], afterwards: Answerer, *, at: int, timed: bool) -> None:
        """`recorded`: the other episode's steps. `at`: index of the first step that `afterwards` answers.

        `timed`: whether pages depend on the time between actions, so that each answer takes as long as it took.
        """
        self._recorded = recorded
        self._afterwards = afterwards
        self._at = at
        self._timed = timed

    async def answer(self, situation: Situation) -> Answer:
        """See `Answerer`. Raises EnvironmentFailed if the page is another one than was recorded."""
        index = situation.index
        if index > self._at:
            return await self._afterwards.answer(situation)
        step = self._recorded[index]
        if situation.observation.digest != step.observation_digest:
            raise EnvironmentFailed(
                f"step {index} of {step.episode} shows another page now than was recorded, so it cannot be continued from step "
                f"{self._at}. Run: hindcast replay steps --episode {step.episode}"
            )
        if index == self._at:
            return await self._afterwards.answer(situation)
        if self._timed:
            await asyncio.sleep(step.generate_ms / 1000)
        return Answer(
            prompt=Prompt(unpack_ids(step.prompt_ids).tolist(), step.prompt_truncated),
            token_ids=unpack_ids(step.action_ids).tolist(),
            logprobs=unpack_floats(step.logprobs).tolist(),
            versions=unpack_ids(step.versions).tolist(),
            sampling=step.sampling,
            text=step.answer,
            answer_from=step.answer_from,
            allowed=step.allowed,
            scaffold=step.scaffold,
            pictures=step.pictures,
            context=step.context,
        )


class WrittenAnswer(NamedTuple):
    """An answer that no policy sampled."""

    text: str
    token_ids: list[int]
    """Its tokens, including the end token."""
    answer_from: int
    """Number of tokens that are the thought before the answer."""


def write_answer(
    action: Action, *, tokenizer: Any, settings: ActorSettings, page: Page, thought: str = ""
) -> WrittenAnswer:
    """Write an action on a page as the policy would answer it: text, form and end token."""
    if settings.answer_format == "text":
        answer = written_text(action, page)
    else:
        answer = format_answer(action, page, settings.dialect)
    text = put_in_form(answer, settings.answer_format, thought=thought)
    thinking = settings.answer_format == "thinking"
    token_ids = encode_answer(tokenizer, text, framing=settings.framing, thinking=thinking)
    return WrittenAnswer(text, token_ids, first_answer_token(tokenizer, token_ids) if thinking else 0)


def demonstrated_thought(
    action: Action, *, settings: ActorSettings, page: Page, instruction: str, steps: int
) -> str:
    """The thought that a scripted demonstrator gives after `steps` steps; empty without `actors.demonstration_reasoning`."""
    if not settings.demonstration_reasoning:
        return ""
    return reason_for(action, page=page, instruction=instruction, steps=steps)


class _ShownAnswerer(ABC):
    """Answers that a demonstration gives, encoded as the policy would sample them. Its scaffold only describes the page."""

    def __init__(self, request: EpisodeRequested, **parts: Unpack[PromptParts]) -> None:
        self._task = request.task
        self._settings = parts["settings"]
        self._reader = PromptReader(request, **parts)

    @abstractmethod
    async def _next(self, situation: Situation) -> Action:
        """Return the next action of the demonstration."""

    async def answer(self, situation: Situation) -> Answer:
        """See `Answerer`."""
        action = await self._next(situation)
        written = write_answer(
            action,
            tokenizer=self._reader.tokenizer,
            settings=self._settings,
            page=situation.observation.page,
            thought=self._thought(situation, action),
        )
        token_ids = written.token_ids
        framed = self._reader.framed(situation)
        image_input = await self._reader.process_screenshot(situation)
        return Answer(
            prompt=self._reader.prompt(situation, framed, image_input),
            token_ids=token_ids,
            logprobs=[0.0] * len(token_ids),
            versions=[NO_VERSION] * len(token_ids),
            sampling=self._reader.sampling(situation),
            text=written.text,
            answer_from=written.answer_from,
            scaffold=framed.record if framed else None,
            pictures=shown_in(situation, image_input),
        )

    def _thought(self, situation: Situation, action: Action) -> str:
        return demonstrated_thought(
            action,
            settings=self._settings,
            page=situation.observation.page,
            instruction=situation.instruction,
            steps=situation.index,
        )


class DemonstratorAnswerer(_ShownAnswerer):
    """Answers by the scripted demonstrator of the task's family, which may leave before it is done."""

    def __init__(
        self,
        request: EpisodeRequested,
        *,
        demonstrate: Demonstrate,
        leaves_at: int | None = None,
        **parts: Unpack[PromptParts],
    ) -> None:
        """`leaves_at`: index of the step at which it leaves; None: once it is done."""
        super().__init__(request, **parts)
        self._demonstrate = demonstrate
        self._leaves_at = leaves_at

    async def _next(self, situation: Situation) -> Action:
        if situation.index == self._leaves_at:
            return LEAVE
        return self._demonstrate(self._task, situation.instruction, situation.observation, situation.actions)


class PersonAnswerer(_ShownAnswerer):
    """Answers by a person; `answer` waits for the person."""

    def __init__(
        self,
        request: EpisodeRequested,
        *,
        person: Callable[[Observation], Awaitable[Action]],
        **parts: Unpack[PromptParts],
    ) -> None:
        """`person`: returns the person's next action on an observation."""
        super().__init__(request, **parts)
        self._person = person

    async def _next(self, situation: Situation) -> Action:
        return await self._person(situation.observation)


class RecordedAnswerer(_ShownAnswerer):
    """Answers recorded elsewhere: actions, with the thoughts that preceded them where recorded."""

    def __init__(
        self,
        request: EpisodeRequested,
        *,
        steps: Sequence[tuple[Action, str]],
        **parts: Unpack[PromptParts],
    ) -> None:
        """`steps`: action and preceding thought of each step; the thought may be empty."""
        super().__init__(request, **parts)
        self._steps = steps

    async def _next(self, situation: Situation) -> Action:
        return self._steps[situation.index][0]

    def _thought(self, situation: Situation, action: Action) -> str:
        return self._steps[situation.index][1] or super()._thought(situation, action)
