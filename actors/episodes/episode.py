"""One episode: observe, answer, act and record until it ends, then collect the evidence for its judges.

It waits for the world and for the policy, each wait bounded (`actors.page_timeout_s` and `actors.action_timeout_s` in
the world, `actors.generate_timeout_s` here, `actors.episode_timeout_s` around the whole). It records step.taken per
step, exactly as sampled, and injection.seen where a page addresses the agent. It returns how the episode ended.
"""

import asyncio
import time

from hindcast.actors.environments.base import EpisodeWorld, ResetResult, StepOutcome
from hindcast.actors.episodes.answerers import NO_VERSION, Answer, Answerer
from hindcast.actors.episodes.prompt_reader import Situation
from hindcast.actors.episodes.recorder import Ended, StepRecord
from hindcast.actors.episodes.screenshots import EpisodeScreenshots
from hindcast.actors.telemetry.spans import acted, browser_action
from hindcast.core.domain.action import Action, Given, ParseFailure, stop_reason
from hindcast.core.domain.arrays import pack_floats, pack_ids
from hindcast.core.domain.observation import Observation, Page
from hindcast.core.errors import EngineFailed
from hindcast.core.grammar.answer_parser import parse_form
from hindcast.core.prompts.prompt_injection import suspicions
from hindcast.core.settings.schema import ActorSettings
from hindcast.events.catalogue import EpisodeRequested, StepTaken
from hindcast.events.catalogue.curriculum import DEMONSTRATION
from hindcast.events.catalogue.episode import EndReason, Screenshot
from hindcast.events.envelope import BlobRef

MAX_SUSPECTED = 8
"""Injection attempts recorded per episode; the bound keeps a page full of them from filling the log."""


class Episode:
    """One episode while it is played. Call `play` once."""

    def __init__(
        self,
        request: EpisodeRequested,
        *,
        world: EpisodeWorld,
        answerer: Answerer,
        record: StepRecord,
        settings: ActorSettings,
        screenshots: EpisodeScreenshots,
        content: bool = False,
    ) -> None:
        """`content`: whether spans contain the text of actions."""
        self._content = content
        self._request = request
        self._world = world
        self._answerer = answerer
        self._record = record
        self._settings = settings
        self._screenshots = screenshots
        self._answers: list[str] = []
        self._actions: list[Action] = []
        self._given: list[Given] = []
        self._pages: list[Page] = []
        """The latest answered pages, as many as prompts show."""
        self._versions: list[int] = []
        """Lowest and highest policy version of every step."""
        self._message: str | None = None
        self._instruction = ""
        self._suspected: set[str] = set()
        """Injection texts already recorded, or not to be."""

    async def play(self, start: ResetResult, *, observe_ms: float) -> Ended:
        """Play from the start state to the end; `observe_ms` is the time that reaching the start state took.

        Raises:
            EnvironmentFailed, BrowserUnavailable: the world broke.
            EngineFailed: the policy gave no answer in time.
        """
        began = time.monotonic()
        self._instruction = start.instruction
        if self._settings.agent:  # its first message addresses the policy: it is the agent's own prompt
            self._suspected.update(suspicions(start.observation.page))
        reason, observation = await self._steps(start.observation, observe_ms)
        screenshot = await self._screenshots.final()
        evidence = await self._world.finish(self._message)
        versions = self._versions or [NO_VERSION]
        return Ended(
            reason=reason,
            steps=len(self._answers),
            evidence=evidence,
            final_observation=await self._record.keep(observation.page),
            policy_versions=(min(versions), max(versions)),
            duration_ms=(time.monotonic() - began) * 1000,
            screenshot=screenshot,
        )

    async def _steps(self, observation: Observation, observe_ms: float) -> tuple[EndReason, Observation]:
        for index in range(self._request.task.max_steps):
            page = await self._record.keep(observation.page)
            first_screenshot = await self._screenshots.take_before(index)
            picture = self._screenshots.image
            await self._watch(index, observation.page)
            began = time.monotonic()
            answer = await self._answer(index, observation, first_screenshot, picture)
            generate_ms = (time.monotonic() - began) * 1000
            if answer.observation is not None:
                observation = answer.observation
                page = await self._record.keep(observation.page)
            action = parse_form(answer.text, self._settings.answer_format, observation.page)
            outcome: StepOutcome | None = None
            screenshot = first_screenshot
            if isinstance(action, Action) and action.name == "exit":
                self._message = action.argument or ""
            else:
                with browser_action(index, action, content=self._content) as open_span:
                    outcome = await self._world.step(action)
                    acted(open_span, outcome.result, outcome.detail, content=self._content)
                last_screenshot = await self._screenshots.take_after(outcome.result)
                screenshot = first_screenshot or last_screenshot
            times = observe_ms, generate_ms
            await self._step(observation, page, answer, action, outcome, times, screenshot)
            if outcome is None:
                return "exit", observation
            observation, observe_ms = outcome.observation, outcome.observe_ms
            if outcome.done:
                return "done", observation
            if (reason := self._stop_reason()) is not None:
                return reason, observation
        return "max_steps", observation

    def _stop_reason(self) -> EndReason | None:
        """Why the episode ends early; None: it continues. Demonstrations never end early."""
        if self._request.origin == DEMONSTRATION:
            return None
        settings = self._settings
        return stop_reason(
            self._given,
            unparsable=settings.ends_unparsable,
            repeated=settings.ends_repeated,
            compared=settings.repeated_by,
        )

    async def _watch(self, index: int, page: Page) -> None:
        """Record each text on the page that addresses the agent, once each and at most `MAX_SUSPECTED` per episode."""
        for excerpt in suspicions(page):
            if excerpt not in self._suspected and len(self._suspected) < MAX_SUSPECTED:
                self._suspected.add(excerpt)
                await self._record.suspected(index=index, excerpt=excerpt)

    async def _answer(
        self, index: int, observation: Observation, screenshot: Screenshot | None, image: bytes
    ) -> Answer:
        situation = Situation(
            index=index,
            instruction=self._instruction,
            observation=observation,
            answers=self._answers,
            actions=self._actions,
            pages=self._pages,
            image=image,
            image_blob=screenshot.image if screenshot is not None else None,
        )
        limit_s = self._settings.generate_timeout_s
        scope = asyncio.timeout(limit_s)
        try:
            async with scope:
                return await self._answerer.answer(situation)
        except TimeoutError:
            if not scope.expired():
                raise
            await self._record.exceeded(
                setting="actors.generate_timeout_s", limit_s=limit_s, waited_for="an answer of the policy"
            )
            raise EngineFailed(
                f"the policy did not answer step {index} within {limit_s:g} s (actors.generate_timeout_s)"
            ) from None

    async def _step(
        self,
        observation: Observation,
        page: BlobRef,
        answer: Answer,
        action: Action | ParseFailure,
        outcome: StepOutcome | None,
        times: tuple[float, float],
        screenshot: Screenshot | None,
    ) -> None:
        """Record a step. `outcome`: None for an exit. `times`: of observing and of generating, in milliseconds."""
        fact = StepTaken(
            episode=self._request.episode,
            index=len(self._answers),
            observation_digest=observation.digest,
            observation=page,
            url=observation.page.url,
            world_ordinal=observation.page.ordinal,
            prompt_ids=pack_ids(answer.prompt.ids),
            action_ids=pack_ids(answer.token_ids),
            logprobs=pack_floats(answer.logprobs),
            versions=pack_ids(answer.versions),
            sampling=answer.sampling,
            prompt_truncated=answer.prompt.truncated,
            answer=answer.text,
            answer_from=answer.answer_from,
            action=action if isinstance(action, Action) else None,
            result="exit" if outcome is None else outcome.result,
            detail="" if outcome is None else outcome.detail,
            observe_ms=times[0],
            generate_ms=times[1],
            act_ms=0.0 if outcome is None else outcome.act_ms,
            allowed=answer.allowed,
            scaffold=answer.scaffold,
            touched=None if outcome is None else outcome.touched,
            screenshot=screenshot,
            pictures=answer.pictures,
            context=answer.context,
        )
        newest = max(answer.versions, default=NO_VERSION)
        await self._record.step(fact, newest_version=newest)
        self._versions += [min(answer.versions, default=NO_VERSION), newest]
        self._answers.append(answer.text)
        self._pages.append(observation.page)
        del self._pages[: max(0, len(self._pages) - self._settings.history_pages)]
        self._given.append(Given(answer.text, fact.action))
        if isinstance(action, Action):
            self._actions.append(action)
