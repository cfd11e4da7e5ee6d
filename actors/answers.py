"""Who answers in an episode: the policy, a site's scripted demonstrator, a person, or what was taken down elsewhere.

Invariant "What was sampled is what is trained": an answer carries the exact token ids read and given, the log-
probabilities of the distribution sampled from and the version of every token. A demonstrator's answer is encoded as
the policy would sample it (text and end token), with log-probability 0 and version -1 for every token: nothing was
sampled, so there is no behaviour distribution to correct for.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from actors.engines.base import PolicyEngine
from actors.engines.routing import routed_by
from actors.environments.demonstrator import Demonstrate
from actors.scaffold.scaffold import Framed, Scaffold
from actors.spans import policy_call
from core.action import Action
from core.answer_form import first_answer_token, put_in_form
from core.errors import EngineFailed
from core.grammar import format_answer
from core.observation import Observation, Page
from core.prompt import HISTORIES, Prompt, build_prompt, encode_answer
from core.reasoning import reason_for
from core.rendering import RENDERERS
from core.sampling import Sampling
from core.scaffolded import Scaffolded
from core.seeds import derive_seed
from core.settings import ActorSettings
from events.catalogue import EpisodeRequested

NO_VERSION = -1
"""Version of a token that no policy sampled."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What one answer is given to."""

    index: int
    """Of the step, from 0."""
    instruction: str
    observation: Observation
    answers: Sequence[str]
    """Given before, oldest first."""
    actions: Sequence[Action]
    """What those that parsed came to."""
    pages: Sequence[Page] = ()
    """Of the latest rounds before this one, `actors.history_pages` at most, oldest first."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer and where it came from."""

    prompt: Prompt
    token_ids: list[int]
    logprobs: list[float]
    """Per token, natural logarithm."""
    versions: list[int]
    """Per token."""
    sampling: Sampling
    text: str
    answer_from: int = 0
    """Tokens before it are the thought that precedes the answer."""
    allowed: bytes = b""
    """The set that each token was drawn from, as `core.allowed` packs them; empty: the whole vocabulary each time."""
    scaffold: Scaffolded | None = None


class Answerer(Protocol):
    """Gives one episode's answers."""

    async def answer(self, situation: Situation) -> Answer:
        """The next answer. Raises EngineFailed when the policy cannot give one."""
        ...


def prompt_of(
    tokenizer: Any,
    settings: ActorSettings,
    *,
    instruction: str,
    answers: Sequence[str],
    page: Page,
    earlier: Sequence[Page],
    heading: str = "",
) -> Prompt:
    """What is read in a situation: also by who relabels an episode, under another instruction.

    `earlier`: pages of the latest rounds before, `actors.history_pages` at most; `heading`: a scaffold's, over the page.
    """
    render = RENDERERS[settings.renderer]
    if HISTORIES[settings.history].bounded:
        answers = answers[max(0, len(answers) - settings.history_answers) :]
    pages = earlier[max(0, len(earlier) - len(answers)) :]
    return build_prompt(
        tokenizer,
        instruction=instruction,
        answers=answers,
        page_text=heading + render(page),
        max_tokens=settings.max_prompt_tokens,
        history=settings.history,
        earlier_pages=[render(one) for one in pages],
        framing=settings.framing,
        thinking=settings.answer_format == "thinking",
    )


class _Reader:
    """What both answerers share: how a situation becomes a prompt, and how a call is sampled."""

    def __init__(
        self,
        request: EpisodeRequested,
        *,
        tokenizer: Any,
        settings: ActorSettings,
        scaffold: Scaffold | None,
        run_seed: int,
    ) -> None:
        self.tokenizer = tokenizer
        self._scaffold = scaffold
        self._request = request
        self._settings = settings
        self._run_seed = run_seed
        self.episode = request.episode

    def framed(self, situation: Situation) -> Framed | None:
        if self._scaffold is None:
            return None
        return self._scaffold.frame(
            situation.observation.page, step=situation.index, instruction=situation.instruction
        )

    def prompt(self, situation: Situation, framed: Framed | None) -> Prompt:
        return prompt_of(
            self.tokenizer,
            self._settings,
            instruction=situation.instruction,
            answers=situation.answers,
            page=situation.observation.page,
            earlier=situation.pages,
            heading=framed.heading if framed else "",
        )

    def answer_from(self, token_ids: list[int]) -> int:
        """Where among an answer's tokens its thought is over."""
        if self._settings.answer_format == "plain":
            return 0
        return first_answer_token(self.tokenizer, token_ids)

    def sampling(self, situation: Situation) -> Sampling:
        return Sampling(
            temperature=self._request.temperature,
            max_tokens=self._settings.max_answer_tokens,
            seed=derive_seed(self._run_seed, "episode", self._request.episode, "step", situation.index),
        )


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
        """`content`: whether spans tell what is read and answered in words."""
        self._content = content
        self._engine = engine
        self._reader = _Reader(
            request, tokenizer=engine.tokenizer, settings=settings, scaffold=scaffold, run_seed=run_seed
        )

    async def answer(self, situation: Situation) -> Answer:
        """See `Answerer`."""
        framed = self._reader.framed(situation)
        prompt = self._reader.prompt(situation, framed)
        sampling = self._reader.sampling(situation)
        with (
            policy_call(situation.index, sampling, content=self._content) as call,
            routed_by(self._reader.episode),
        ):
            generation = await self._engine.generate(prompt.ids, sampling, framed.forms if framed else None)
            call.answered(
                prompt_tokens=len(prompt.ids),
                answer_tokens=len(generation.token_ids),
                version=max(generation.versions, default=NO_VERSION),
            )
            text = self._reader.tokenizer.decode(generation.token_ids, skip_special_tokens=True)
            if call.wants_content:
                call.said(prompt=self._reader.tokenizer.decode(prompt.ids), answer=text)
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
        )


class _ShownAnswerer(ABC):
    """Answers that somebody shows, whoever they are: encoded as the policy would sample them."""

    def __init__(
        self,
        request: EpisodeRequested,
        *,
        tokenizer: Any,
        settings: ActorSettings,
        run_seed: int,
        scaffold: Scaffold | None = None,
    ) -> None:
        """`scaffold`: one that only says what it sees."""
        self._task = request.task
        self._settings = settings
        self._reader = _Reader(
            request, tokenizer=tokenizer, settings=settings, scaffold=scaffold, run_seed=run_seed
        )

    @abstractmethod
    async def _next(self, situation: Situation) -> Action:
        """What is shown next."""

    async def answer(self, situation: Situation) -> Answer:
        """See `Answerer`."""
        action = await self._next(situation)
        text = put_in_form(
            format_answer(action, situation.observation.page, self._settings.dialect),
            self._settings.answer_format,
            thought=self._thought(situation, action),
        )
        token_ids = encode_answer(
            self._reader.tokenizer,
            text,
            framing=self._settings.framing,
            thinking=self._settings.answer_format == "thinking",
        )
        framed = self._reader.framed(situation)
        return Answer(
            prompt=self._reader.prompt(situation, framed),
            token_ids=token_ids,
            logprobs=[0.0] * len(token_ids),
            versions=[NO_VERSION] * len(token_ids),
            sampling=self._reader.sampling(situation),
            text=text,
            answer_from=self._reader.answer_from(token_ids),
            scaffold=framed.record if framed else None,
        )

    def _thought(self, situation: Situation, action: Action) -> str:
        if not self._settings.demonstration_reasoning:
            return ""
        return reason_for(
            action,
            page=situation.observation.page,
            instruction=situation.instruction,
            steps=situation.index,
        )


class DemonstratorAnswerer(_ShownAnswerer):
    """Answers by the scripted demonstrator of the task's family."""

    def __init__(
        self,
        request: EpisodeRequested,
        *,
        demonstrators: Mapping[tuple[str, str], Demonstrate],
        tokenizer: Any,
        settings: ActorSettings,
        run_seed: int,
        scaffold: Scaffold | None = None,
    ) -> None:
        """`scaffold`: one that only says what it sees. Raises LookupError when the family has no demonstrator."""
        super().__init__(
            request, tokenizer=tokenizer, settings=settings, run_seed=run_seed, scaffold=scaffold
        )
        self._demonstrate = demonstrators[request.task.environment, request.task.family]

    async def _next(self, situation: Situation) -> Action:
        return self._demonstrate(self._task, situation.instruction, situation.observation, situation.actions)


class PersonAnswerer(_ShownAnswerer):
    """Answers by a person, who is waited for."""

    def __init__(
        self,
        request: EpisodeRequested,
        *,
        person: Callable[[Observation], Awaitable[Action]],
        tokenizer: Any,
        settings: ActorSettings,
        run_seed: int,
        scaffold: Scaffold | None = None,
    ) -> None:
        """`person`: what they do next on what is shown."""
        super().__init__(
            request, tokenizer=tokenizer, settings=settings, run_seed=run_seed, scaffold=scaffold
        )
        self._person = person

    async def _next(self, situation: Situation) -> Action:
        return await self._person(situation.observation)


class TakenAnswerer(_ShownAnswerer):
    """Answers that were taken down elsewhere: actions, and the thoughts that preceded them where there were any."""

    def __init__(
        self,
        request: EpisodeRequested,
        *,
        taken: Sequence[tuple[Action, str]],
        tokenizer: Any,
        settings: ActorSettings,
        run_seed: int,
        scaffold: Scaffold | None = None,
    ) -> None:
        """`taken`: by step, what was done and what was thought before; no thought is empty."""
        super().__init__(
            request, tokenizer=tokenizer, settings=settings, run_seed=run_seed, scaffold=scaffold
        )
        self._taken = taken

    async def _next(self, situation: Situation) -> Action:
        return self._taken[situation.index][0]

    def _thought(self, situation: Situation, action: Action) -> str:
        return self._taken[situation.index][1] or super()._thought(situation, action)
