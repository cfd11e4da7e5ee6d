"""Builds the prompt of a step and its sampling parameters: text and pictures, for every kind of answerer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, Unpack

import msgspec

from hindcast.actors.engines.base import PolicyEngine, SeeingEngine
from hindcast.actors.scaffold.scaffold import Scaffold, ScaffoldedPage
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Observation, Page
from hindcast.core.domain.sampling import Sampling
from hindcast.core.errors import EngineFailed
from hindcast.core.grammar.answer_parser import first_answer_token
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
    """What an answer responds to: the observation and the history of the episode."""

    index: int
    """Index of the step, from 0."""
    instruction: str
    observation: Observation
    answers: Sequence[str]
    """Earlier answers, oldest first."""
    actions: Sequence[Action]
    """Actions of the earlier answers that parsed."""
    pages: Sequence[Page] = ()
    """Pages of the latest earlier steps, at most `actors.history_pages`, oldest first."""
    image: bytes = b""
    """Screenshot of the page as an image file; empty: none."""
    image_blob: BlobRef | None = None
    """Blob of the screenshot; None: not stored."""


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
    """Build the prompt of one step; relabelers use it too, under another instruction.

    `earlier`: pages of the latest earlier steps, at most `actors.history_pages`. `heading`: a scaffold's text above the
    page. `picture`: tokens that represent a picture of the page.
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
        earlier_pages=[render(earlier_page) for earlier_page in pages],
        framing=settings.framing,
        thinking=settings.answer_format == "thinking",
        picture=picture,
    )


def vision_engine(engine: PolicyEngine, settings: ActorSettings) -> SeeingEngine | None:
    """Return the engine as a vision engine if the settings show it pictures. Raises EngineFailed if it reads none."""
    if settings.screenshot_observation == "off":
        return None
    if not isinstance(engine, SeeingEngine):
        raise EngineFailed(
            f"actors.screenshot_observation = {settings.screenshot_observation!r}, and the policy is served by an engine that "
            "reads no pictures. Set policy.engine = 'in_process'."
        )
    return engine


class PromptParts(TypedDict):
    """What prompts are built from, apart from the request: keyword arguments of every answerer."""

    tokenizer: Any
    settings: ActorSettings
    run_seed: int
    scaffold: NotRequired[Scaffold | None]
    seeing: NotRequired[SeeingEngine | None]
    """The policy, where its prompts show pictures."""


class PromptReader:
    """What all answerers share: building prompts and sampling parameters of one episode."""

    def __init__(self, request: EpisodeRequested, **parts: Unpack[PromptParts]) -> None:
        self.tokenizer = parts["tokenizer"]
        self._seeing = parts.get("seeing")
        self._scaffold = parts.get("scaffold")
        self._request = request
        self._settings = parts["settings"]
        self._run_seed = parts["run_seed"]
        self.episode = request.episode

    def framed(self, situation: Situation) -> ScaffoldedPage | None:
        """The scaffold's view of the page; None: no scaffold."""
        if self._scaffold is None:
            return None
        return self._scaffold.frame(
            situation.observation.page,
            step=situation.index,
            instruction=situation.instruction,
            actions=situation.actions,
        )

    async def process_screenshot(self, situation: Situation) -> "ProcessedImage | None":
        """The screenshot as the policy reads it; None: the policy reads no pictures, or there is no screenshot."""
        if self._seeing is None or situation.image_blob is None:
            return None
        return await self._seeing.see(situation.image)

    def prompt(
        self, situation: Situation, framed: ScaffoldedPage | None, image_input: "ProcessedImage | None"
    ) -> Prompt:
        """Build the prompt of a step."""
        return prompt_of(
            self.tokenizer,
            self._settings,
            instruction=situation.instruction,
            answers=situation.answers,
            page=situation.observation.page,
            earlier=situation.pages,
            heading=framed.heading if framed else "",
            picture=image_input.ids if image_input else (),
        )

    def answer_from(self, token_ids: list[int]) -> int:
        """Index of the first answer token after the thought."""
        if self._settings.answer_format != "thinking":
            return 0
        return first_answer_token(self.tokenizer, token_ids)

    def sampling(self, situation: Situation) -> Sampling:
        """Sampling parameters of a step; every step of every episode has its own seed."""
        return Sampling(
            temperature=self._request.temperature,
            max_tokens=self._settings.max_answer_tokens,
            seed=derive_seed(self._run_seed, "episode", self._request.episode, "step", situation.index),
        )


def shown_in(situation: Situation, image_input: "ProcessedImage | None") -> tuple[ShownPicture, ...]:
    """The pictures of a prompt in the form that step.taken records."""
    if image_input is None or situation.image_blob is None:
        return ()
    return (ShownPicture(blob=situation.image_blob, tokens=len(image_input.ids), digest=image_input.digest),)
