"""Replays a document as an episode in a world that shows the recorded pages, with the code that plays every episode.

Therefore an imported demonstration has the form of the run's own: prompts by its renderer, history and scaffold, answers in its form and
dialect, token ids by its policy's tokenizer. The result is compared with the document.
"""

from typing import Any

import msgspec

from hindcast.actors.environments.base import ResetResult, StepOutcome, WindowImage
from hindcast.actors.environments.snapshot import observe
from hindcast.actors.episodes.answerers import RecordedAnswerer
from hindcast.actors.episodes.episode import Episode
from hindcast.actors.episodes.screenshots import EpisodeScreenshots, ScreenshotBudget
from hindcast.actors.judges.base import reach_verdict
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.actors.judges.rules import RuleJudge
from hindcast.actors.scaffold.scaffold import scaffold_of
from hindcast.app.demonstrations.pending import DemonstratedEpisode, PendingEpisode, request_for
from hindcast.app.exports.document import EpisodeDocument
from hindcast.app.imports.decoder import DocumentError
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import Task
from hindcast.core.errors import EngineFailed, SettingsError
from hindcast.core.ids import digest_hex
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import EpisodeRequested

SOURCE = "imported"
"""Source of a task that was imported with its demonstration."""


class RecordedWorld:
    """Shows the pages of a document, whatever the action is. Implements `actors.environments.base.EpisodeWorld`."""

    def __init__(self, document: EpisodeDocument) -> None:
        self._document = document
        self._pages = [step.page for step in document.steps] + [document.final_page]
        self._steps = 0

    async def reset(self, task: Task) -> ResetResult:
        """Return the first page."""
        page = self._pages[0]
        assert page is not None, "checked"
        return ResetResult(instruction=self._document.instruction, observation=observe(page))

    async def step(self, action: Action | ParseFailure) -> StepOutcome:
        """Return the next page. Raises DocumentError if the action differs from the document's."""
        shown = self._document.steps[self._steps]
        if action != shown.action:
            raise DocumentError(
                f"steps[{self._steps}].action",
                f"written as an answer of this run it would be read as {action}: the run's answer format cannot express it",
            )
        self._steps += 1
        page = self._pages[self._steps]
        assert page is not None, "checked"
        over = self._steps == len(self._document.steps)
        return StepOutcome(
            result=shown.result,
            detail=shown.detail,
            observation=observe(page),
            done=over and self._document.reason == "done",
            act_ms=0.0,
            observe_ms=0.0,
        )

    async def picture(self) -> WindowImage:
        """Return that no image exists."""
        return WindowImage(missing="imported")

    async def finish(self, answer: str | None) -> Evidence:
        """Return the document's evidence. Raises DocumentError if the answer differs."""
        if answer != self._document.evidence.answer:
            raise DocumentError("evidence.answer", f"written as an answer of this run it would be {answer!r}")
        return self._document.evidence

    async def close(self) -> None:
        """Do nothing: nothing is open."""


def request_of(document: EpisodeDocument, settings: Settings, *, attempt: int = 0) -> EpisodeRequested:
    """Build the request of a document's episode, identified by its content except verdicts and source."""
    shown = msgspec.structs.replace(document, verdicts=(), source=None)
    return request_for(
        document.task.as_task(),
        settings,
        source=SOURCE,
        drawn=digest_hex(msgspec.json.encode(shown, order="sorted")),
        lease_s=settings.episode_lease_s,
        attempt=attempt,
    )


async def play(
    document: EpisodeDocument, settings: Settings, tokenizer: Any, *, attempt: int = 0
) -> DemonstratedEpisode:
    """Replay a document under a run's settings; returns the facts of the episode. Raises DocumentError."""
    task = document.task.as_task()
    actors = settings.actors.model_copy(update={"screenshots": "off", "screenshot_observation": "off"})
    request = request_of(document, settings, attempt=attempt)
    world = RecordedWorld(document)
    held = PendingEpisode(on_wait=no_wait)
    start = await world.reset(task)
    answerer = RecordedAnswerer(
        request,
        steps=[(step.action or Action(name="Wait"), step.thought) for step in document.steps],
        tokenizer=tokenizer,
        settings=actors,
        run_seed=settings.run.seed,
        scaffold=scaffold_of(task, settings.scaffold, binding=False),
    )
    screenshots = EpisodeScreenshots(
        world, keep=held.keep_image, settings=actors, allowance=ScreenshotBudget(actors)
    )
    episode = Episode(
        request, world=world, answerer=answerer, record=held, settings=actors, screenshots=screenshots
    )
    try:
        ended = await episode.play(start, observe_ms=0.0)
    except SettingsError as error:  # the parts of the prompt that must stay leave no room for a page
        raise DocumentError("", str(error)) from error
    if (ended.reason, ended.steps) != (document.reason, len(document.steps)):
        raise DocumentError(
            "reason",
            f"replayed, it ends after {ended.steps} steps with {ended.reason!r}, not {document.reason!r}",
        )
    judged = JudgedEpisode(task, ended.evidence, _no_transcript)
    verdict = await reach_verdict(RuleJudge(), judged, timeout_s=settings.judge.timeout_s)
    return DemonstratedEpisode(
        request=request,
        instruction=document.instruction,
        renderer=actors.renderer,
        steps=tuple(held.steps),
        ended=ended,
        judgment=verdict.judgment,
        blobs=held.kept,
    )


async def _no_transcript() -> None:
    """Return nothing: rules read no transcript."""


def no_wait(limit_s: float) -> None:
    """Refuse to wait: nothing but memory is written. Raises EngineFailed."""
    raise EngineFailed(f"a step of an imported demonstration took longer than {limit_s:g} s to record")
