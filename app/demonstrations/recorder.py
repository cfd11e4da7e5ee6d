"""`hindcast record`: records a person's actions on a site as a demonstration in a run's log.

    browser ── Person ──> Episode, as an actor plays it ──> held until the person is done
                                                             │
    run's log <── episode.requested, episode.started, step.taken …, episode.ended

Everything is appended at the end, so that an abandoned recording leaves no events, and the person's result can become the
check of a new task. `app.demonstrations.pending` appends it.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.web.definition import UNCHECKED, Check, WebTask
from hindcast.actors.environments.web.evaluators import evaluate
from hindcast.actors.environments.web.person import Person, PersonWorld, RecordingStopped, WatchedWindows
from hindcast.actors.environments.web.site import WebSite
from hindcast.actors.environments.web.tasks import as_task
from hindcast.actors.environments.world import BrowserWorld
from hindcast.actors.episodes.answerers import PersonAnswerer
from hindcast.actors.episodes.episode import Episode
from hindcast.actors.episodes.screenshots import EpisodeScreenshots, ScreenshotBudget
from hindcast.actors.scaffold.scaffold import scaffold_of
from hindcast.app.demonstrations.pending import DemonstratedEpisode, PendingEpisode, appending, request_for
from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.sites import login_states
from hindcast.core.domain.evidence import Evidence
from hindcast.core.models.folders import policy_folder
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.settings.schema import Settings

NAME = "recorder"
"""Name of the recording actor, `actor.recorder` in the facts."""
SOURCE = "recorded"
"""Source of a task that was defined with its demonstration."""


class Recording(DemonstratedEpisode, frozen=True, kw_only=True):
    """A person's actions and their task."""

    definition: WebTask


async def play(
    definition: WebTask,
    *,
    number: int,
    derive_check: bool,
    settings: Settings,
    home: Path,
    headed: bool,
    patience_s: float,
    acting: Callable[[Person], Awaitable[None]],
    said: Callable[[str], None],
) -> Recording:
    """Open the site, record the person until they are done, and hold the result.

    `number`: index of the task in its family. `derive_check`: the task has no check and gets one from the result. `acting`
    runs concurrently and ends the recording.

    Raises:
        RecordingStopped: there is no result.
        EnvironmentFailed, BrowserUnavailable: the site or the browser failed.

    """
    if derive_check:
        definition = msgspec.structs.replace(definition, checks=(UNCHECKED,))
    tokenizer = await asyncio.to_thread(load_tokenizer, policy_folder(settings.policy.base))
    actors = settings.actors.model_copy(update={"generate_timeout_s": patience_s})
    request = request_for(
        as_task(definition, number),
        settings,
        source=SOURCE,
        drawn=secrets.token_hex(8),  # a person may demonstrate a task more than once
        lease_s=patience_s * definition.max_steps,
    )
    site = WebSite(login_states(home))
    held = PendingEpisode(on_wait=_gave_up)
    async with BrowserHost(actors, headed=headed) as host:
        watched = WatchedWindows(host)
        person = Person(watched, notify=said)
        world = PersonWorld(BrowserWorld(watched, site, actors), person)
        try:
            began = time.monotonic()
            start = await world.reset(request.task)
            answerer = PersonAnswerer(
                request,
                person=person.next,
                tokenizer=tokenizer,
                settings=actors,
                run_seed=settings.run.seed,
                scaffold=scaffold_of(request.task, settings.scaffold, binding=False),
            )
            episode = Episode(
                request,
                world=world,
                answerer=answerer,
                record=held,
                settings=actors,
                screenshots=EpisodeScreenshots(
                    world, keep=held.keep_image, settings=actors, allowance=ScreenshotBudget(actors)
                ),
            )
            async with asyncio.TaskGroup() as tasks:
                actions = tasks.create_task(_run(acting, person))
                observe_ms = (time.monotonic() - began) * 1000
                ended = await episode.play(start, observe_ms=observe_ms)
                actions.cancel()
        finally:
            await world.close()
    if derive_check:
        definition = msgspec.structs.replace(definition, checks=(reached(ended.evidence),))
        request = msgspec.structs.replace(request, task=as_task(definition, number))
    return Recording(
        request=request,
        definition=definition,
        instruction=start.instruction,
        renderer=actors.renderer,
        steps=tuple(held.steps),
        ended=ended,
        judgment=evaluate(request.task, ended.evidence),
        blobs=held.kept,
    )


def _gave_up(limit_s: float) -> None:
    raise RecordingStopped(f"nothing was done for {limit_s:g} s (--patience); nothing is recorded")


async def _run(acting: Callable[[Person], Awaitable[None]], person: Person) -> None:
    await acting(person)


def reached(evidence: Evidence) -> Check:
    """Derive a check from the person's result: the answer, or else the final address."""
    if evidence.answer:
        return Check(of="answer", exact=evidence.answer)
    return Check(of="url", exact=evidence.final_url)


async def append(handle: RunHandle, recorded: Recording) -> int:
    """Append a recording to a run's log; returns the position of its last event.

    Raises:
        SettingsError, ForeignLog: the run cannot be resumed.

    """
    async with appending(handle, name=NAME, source=SOURCE) as appender:
        return await appender.append(recorded)
