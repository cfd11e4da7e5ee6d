"""Replays the actions of a recorded episode on its site and compares every page with the recorded one.

Consumes an episode of the log; waits for the browser with the time limits of a run; returns the first difference, or none.
Invariant 9: nothing is appended or published; blobs are only read.

Pages may depend on the time between two actions. For tasks that do (`depends_on_time`), the replay waits before each
action as long as the policy took.

If an episode differs, `explain` names the first cause that applies. A cause is no proof; it says what to check next.
"""

import asyncio
from collections.abc import Mapping
from typing import Literal

import msgspec

from hindcast.actors.environments.base import EpisodeWorld
from hindcast.actors.environments.plugin import find_environment
from hindcast.actors.environments.snapshot import page_digest, plain_address
from hindcast.actors.replay.agent import ReplayedAgent, plain_visit
from hindcast.actors.replay.pages import GONE, Bases, is_same_blob, tell_apart, tell_values_apart
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.observation import Page
from hindcast.core.domain.task import Task
from hindcast.core.errors import BlobCorrupt, BlobMissing
from hindcast.core.structs import decode_msgpack
from hindcast.events.catalogue import EpisodeEnded
from hindcast.events.envelope import BlobRef
from hindcast.events.log.episode_assembler import AssembledEpisode, AssembledStep
from hindcast.storage.blobs.store import BlobStore

ADDRESSED = ("Goto", "New_tab")
"""Actions whose argument is an address."""

ENDED = {True: "the page ends the episode", False: "the page does not end the episode"}

What = Literal["instruction", "page", "prompt", "result", "end", "evidence"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference of a replayed episode from its recording."""

    step: int
    """Index of the step; the number of steps if the difference is after the last one."""
    position: int | None
    """Position of the step in the log."""
    what: What
    recorded: str
    now: str
    lines: tuple[str, ...] = ()
    """The differences of two pages, two prompts or two pieces of evidence."""
    altered: bool = False
    """Whether the recorded page lacks the recorded fingerprint, so one of the two was altered after the recording."""


def depends_on_time(task: Task) -> bool:
    """Whether the pages of a task depend on elapsed time."""
    return find_environment(task.environment).depends_on_time(task)


async def drive(world: EpisodeWorld, episode: AssembledEpisode, blobs: BlobStore) -> Difference | None:
    """Replay an episode as far as it was recorded; returns the first difference, None if there is none.

    Raises:
        EnvironmentFailed, BrowserUnavailable: the world failed; there is no result.
    """
    task = episode.request.task
    start = await world.reset(task)
    if start.instruction != episode.started.instruction:
        return Difference(
            step=0,
            position=episode.steps[0].position,
            what="instruction",
            recorded=episode.started.instruction,
            now=start.instruction,
        )
    page = start.observation.page
    return await _Drive(world, episode, blobs, Bases.of(episode.steps[0].fact.url, page.url)).run(page)


class _Drive:
    def __init__(
        self, world: EpisodeWorld, episode: AssembledEpisode, blobs: BlobStore, bases: Bases
    ) -> None:
        self._world = world
        self._episode = episode
        self._blobs = blobs
        self._bases = bases
        self._slow = depends_on_time(episode.request.task)
        self._agent = world if isinstance(world, ReplayedAgent) else None
        self._message: str | None = None

    async def run(self, page: Page) -> Difference | None:
        steps, end = self._episode.steps, self._episode.end
        for number, step in enumerate(steps):
            difference = self._compare_call(step) if self._agent else self._compare_page(step, page)
            if difference is not None:
                return difference
            action = self._action(step)
            if isinstance(action, Action) and action.name == "exit":
                self._message = action.argument or ""
                break
            if self._slow:
                await asyncio.sleep(step.fact.generate_ms / 1000)
            outcome = await self._world.step(action)
            page = outcome.observation.page
            if outcome.result != step.fact.result:
                return self._differs(
                    step,
                    "result",
                    f"{step.fact.result} {step.fact.detail}".rstrip(),
                    f"{outcome.result} {outcome.detail}".rstrip(),
                )
            expected = self._ended_by_page(number)
            if expected is not None and outcome.done != expected:
                return self._differs(step, "end", ENDED[expected], ENDED[outcome.done])
        return await self._compare_end(page, end) if isinstance(end, EpisodeEnded) else None

    def _ended_by_page(self, number: int) -> bool | None:
        """Whether the page ended the episode with this step; None if the episode was abandoned there."""
        if number < len(self._episode.steps) - 1:
            return False
        end = self._episode.end
        return end.reason == "done" if isinstance(end, EpisodeEnded) else None

    def _action(self, step: AssembledStep) -> Action | ParseFailure:
        action = step.fact.action
        if action is None:
            return ParseFailure(reason=step.fact.detail)
        if action.name in ADDRESSED and action.argument is not None:
            return msgspec.structs.replace(action, argument=self._bases.as_now(action.argument))
        return action

    def _compare_page(self, step: AssembledStep, page: Page) -> Difference | None:
        digest = page_digest(page)
        if digest == step.fact.observation_digest:
            return None
        recorded = self._recorded_page(step.fact.observation)
        return msgspec.structs.replace(
            self._differs(step, "page", step.fact.observation_digest, digest),
            lines=(GONE,) if recorded is None else tell_apart(recorded, page),
            altered=recorded is not None and page_digest(recorded) != step.fact.observation_digest,
        )

    def _compare_call(self, step: AssembledStep) -> Difference | None:
        """Compare the prompt of an agent's call, whose new part is the page."""
        assert self._agent is not None
        lines = self._agent.compare_prompt(step.fact)
        if not lines:
            return None
        difference = self._differs(step, "prompt", "the recorded messages", f"{len(lines)} lines differ")
        return msgspec.structs.replace(difference, lines=lines)

    async def _compare_end(self, page: Page, end: EpisodeEnded) -> Difference | None:
        step_count = len(self._episode.steps)
        if (
            self._agent is None  # its last page is that of its last call
            and end.final_observation is not None
            and not is_same_blob(page, end.final_observation, self._bases)
        ):
            recorded = self._recorded_page(end.final_observation)
            if recorded is None or page_digest(recorded) != page_digest(page):
                return Difference(
                    step=step_count,
                    position=None,
                    what="page",
                    recorded=page_digest(recorded) if recorded else f"blob {end.final_observation.sha256}",
                    now=page_digest(page),
                    lines=(GONE,) if recorded is None else tell_apart(recorded, page),
                )
        evidence = await self._world.finish(self._message)
        address = plain_address if self._agent is None else plain_visit
        lines = tell_values_apart(
            {
                "answer": end.evidence.answer,
                "final_url": address(end.evidence.final_url),
                "probes": end.evidence.probes,
            },
            {"answer": evidence.answer, "final_url": address(evidence.final_url), "probes": evidence.probes},
        )
        if not lines:
            return None
        return Difference(
            step=step_count,
            position=None,
            what="evidence",
            recorded="the evidence at the end of the episode",
            now=f"{len(lines)} values differ",
            lines=lines,
        )

    def _recorded_page(self, ref: BlobRef | None) -> Page | None:
        if ref is None:
            return None
        try:
            return decode_msgpack(self._blobs.get(ref), Page)
        except (BlobMissing, BlobCorrupt, msgspec.DecodeError):
            return None

    @staticmethod
    def _differs(step: AssembledStep, what: What, recorded: str, now: str) -> Difference:
        return Difference(step=step.fact.index, position=step.position, what=what, recorded=recorded, now=now)


Kind = Literal["altered", "clock", "deadline", "chance", "version", "steady", "unsteady"]


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A likely cause of a difference: its kind, and an explanation."""

    kind: Kind
    words: str


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Code and packages that pages depend on, in addition to seed and actions."""

    code_rev: str
    packages: dict[str, str]
    """Version by package, such as `miniwob` and `playwright`."""


MATTER = ("miniwob", "playwright")
"""Packages that pages depend on."""


def explain(
    task: Task, difference: Difference, again: Difference | None, *, then: Surroundings, now: Surroundings
) -> Cause:
    """Name the likely cause of a difference. `again`: result of a second replay; None: as recorded."""
    if difference.altered:
        return Cause(
            kind="altered",
            words="the recorded page does not have the recorded fingerprint: event or blob was altered after the recording",
        )
    if "timeout" in (difference.recorded.split(" ")[0], difference.now.split(" ")[0]):
        return Cause(
            kind="deadline",
            words="a deadline (actors.action_timeout_s, actors.page_timeout_s): the speed of a machine is not part "
            "of an episode",
        )
    changes = differences(then, now) if again == difference else []
    since = f"since the recording changed {'; '.join(changes)}" if changes else ""
    if depends_on_time(task):
        clock = f"what {task.family} shows depends on the time that passes between actions (docs/miniwob.md)"
        return Cause(kind="clock", words=f"{clock}; or it is steady: {since}" if since else clock)
    if again is None:
        return Cause(
            kind="chance",
            words="a second replay was as recorded: the page has a race condition",
        )
    if again != difference:
        return Cause(
            kind="unsteady",
            words="a second replay differed from both: this page is not repeatable",
        )
    if since:
        return Cause(kind="version", words=f"steady, and {since}")
    return Cause(
        kind="steady",
        words="steady, with the same code and packages: the browser differs, or the record was altered",
    )


def differences(then: Surroundings, now: Surroundings) -> list[str]:
    """Describe what changed between recording and replay."""
    changes = [
        f"{name} {_version(then.packages, name)} -> {_version(now.packages, name)}"
        for name in MATTER
        if then.packages.get(name) != now.packages.get(name)
    ]
    if then.code_rev != now.code_rev:
        changes.append(f"the code {then.code_rev} -> {now.code_rev}")
    return changes


def _version(packages: Mapping[str, str], name: str) -> str:
    return packages.get(name, "unknown")
