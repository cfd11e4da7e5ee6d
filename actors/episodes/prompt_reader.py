"""How a situation becomes a prompt, and how a call is sampled: what whoever answers an episode reads, in text and pictures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from hindcast.actors.engines.base import PolicyEngine, SeeingEngine
from hindcast.actors.scaffold.scaffold import Scaffold, ScaffoldedPage
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Observation, Page
from hindcast.core.domain.sampling import Sampling
from hindcast.core.errors import EngineFailed
from hindcast.core.grammar.answer_form import first_answer_token
from hindcast.core.prompts.prompt import HISTORIES, Prompt, build_prompt
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import ActorSettings
from hindcast.events.catalogue import EpisodeRequested
from hindcast.events.catalogue.episode import ShownPicture
from hindcast.events.envelope import BlobRef

if TYPE_CHECKING:
    from hindcast.core.models.vision import ProcessedImage  # loads torch


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
    image: bytes = b""
    """The screenshot of the page, as a file; empty: there is none."""
    image_blob: BlobRef | None = None
    """Where it is kept; None: nowhere."""


def prompt_of(
    tokenizer: Any,
    settings: ActorSettings,
    *,
    instruction: str,
    answers: Sequence[str],
    page: Page,
    earlier: Sequence[Page],
    heading: str = "",
    picture: Sequence[int] = (),
) -> Prompt:
    """What is read in a situation: also by who relabels an episode, under another instruction.

    `earlier`: pages of the latest rounds before, `actors.history_pages` at most; `heading`: a scaffold's, over the page;
    `picture`: tokens that stand for one of the page.
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
        picture=picture,
    )


def vision_engine(engine: PolicyEngine, settings: ActorSettings) -> SeeingEngine | None:
    """The engine as one that reads pictures, where the settings show it some. Raises EngineFailed where it cannot."""
    if settings.screenshot_observation == "off":
        return None
    if not isinstance(engine, SeeingEngine):
        raise EngineFailed(
            f"actors.screenshot_observation = {settings.screenshot_observation!r}, and the policy is served by an engine that "
            "reads no pictures. Set policy.engine = 'in_process'."
        )
    return engine


class PromptReader:
    """What both answerers share: how a situation becomes a prompt, and how a call is sampled."""

    def __init__(
        self,
        request: EpisodeRequested,
        *,
        tokenizer: Any,
        settings: ActorSettings,
        scaffold: Scaffold | None,
        run_seed: int,
        seeing: SeeingEngine | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self._seeing = seeing
        self._scaffold = scaffold
        self._request = request
        self._settings = settings
        self._run_seed = run_seed
        self.episode = request.episode

    def framed(self, situation: Situation) -> ScaffoldedPage | None:
        """What the scaffold makes of the page; None: there is none."""
        if self._scaffold is None:
            return None
        return self._scaffold.frame(
            situation.observation.page, step=situation.index, instruction=situation.instruction
        )

    async def seen(self, situation: Situation) -> "ProcessedImage | None":
        """The screenshot of the page as the policy reads it; None: the policy sees none, or it could not be had."""
        if self._seeing is None or situation.image_blob is None:
            return None
        return await self._seeing.see(situation.image)

    def prompt(
        self, situation: Situation, framed: ScaffoldedPage | None, seen: "ProcessedImage | None"
    ) -> Prompt:
        """What is read."""
        return prompt_of(
            self.tokenizer,
            self._settings,
            instruction=situation.instruction,
            answers=situation.answers,
            page=situation.observation.page,
            earlier=situation.pages,
            heading=framed.heading if framed else "",
            picture=seen.ids if seen else (),
        )

    def answer_from(self, token_ids: list[int]) -> int:
        """Where among an answer's tokens its thought is over."""
        if self._settings.answer_format == "plain":
            return 0
        return first_answer_token(self.tokenizer, token_ids)

    def sampling(self, situation: Situation) -> Sampling:
        """How the answer is drawn: every step of every episode has a seed of its own."""
        return Sampling(
            temperature=self._request.temperature,
            max_tokens=self._settings.max_answer_tokens,
            seed=derive_seed(self._run_seed, "episode", self._request.episode, "step", situation.index),
        )


def shown_in(situation: Situation, seen: "ProcessedImage | None") -> tuple[ShownPicture, ...]:
    """The pictures of a prompt as they are recorded."""
    if seen is None or situation.image_blob is None:
        return ()
    return (ShownPicture(blob=situation.image_blob, tokens=len(seen.ids), digest=seen.digest),)
