"""`hindcast relabel accuracy`: compares the goals that a relabeler names with those that the store knows were achieved."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from hindcast.actors.environments.store.evaluators import ending_of
from hindcast.actors.environments.store.goals.instruction_parser import goal_said
from hindcast.actors.environments.store.goals.visits import StartPage
from hindcast.actors.environments.store.hindsight import first_achieved, goal_key, hindsight_of
from hindcast.actors.environments.store.tasks import ENVIRONMENT
from hindcast.actors.relabelers.base import AchievedGoal, Relabeler, RelabelResult
from hindcast.actors.relabelers.role import goals_found, pages_of
from hindcast.actors.relabelers.rules import walk_of
from hindcast.actors.replay.recorded import EpisodeSelection, map_concurrently, recorded_episodes
from hindcast.app.runs.sources import Source
from hindcast.core.domain.observation import Page
from hindcast.core.errors import BlobCorrupt, BlobMissing, RelabelerFailed, RelabelerUnavailable
from hindcast.core.rl.held_out import is_held_out
from hindcast.core.rl.statistics import (
    Confusion,
    Interval,
    balanced_accuracy,
    majority_baseline,
    of_failures,
    of_successes,
    proportion,
)
from hindcast.events.catalogue import EpisodeEnded
from hindcast.events.log.episode_assembler import AssembledEpisode

AT_ONCE = 4
"""Episodes relabelled at the same time, as in a run."""


class RelabelReport(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy of a relabeler."""

    run: str
    """The relabeler's run."""
    on: str
    """Run of the episodes."""
    relabeler: str
    """Name and version."""
    held_out: float
    """Share of tasks held out from the relabeler's training; only their episodes count. 0: all count."""
    tasks: int
    episodes: int
    """Episodes that it decided."""
    silent: int
    """Episodes that it could not decide."""
    silent_because: dict[str, int]
    """Counts by short reason."""
    named: int
    """Named goals that the store understands."""
    dropped: int
    """Named goals that the store does not understand."""
    precision: Interval | None
    """Share of named goals that were achieved."""
    recall: Interval | None
    """Share of the goals listed by the rules that it found; at most `relabeler.goals` for each episode."""
    cut: Interval | None
    """Share of achieved named goals that end at their first achievement."""
    table: Confusion
    """Confusion over steps. A true success is a step that first achieved a goal, recognized if such a goal was named for it. A
    true failure is any other step, taken for a success if any goal was named for it."""
    achieving_found: Interval | None
    """None: no step achieves a goal."""
    others_found: Interval | None
    """None: every step achieves a goal."""
    balanced: Interval | None
    """None: no step achieved anything, or every one did."""
    majority: float | None
    """Plain accuracy of always giving the more frequent class; its balanced accuracy is .5. None: there is no step."""


class _Counts(NamedTuple):
    """Counts of one episode."""

    task: str
    silent: str
    named: int = 0
    dropped: int = 0
    right: int = 0
    """Goals named and achieved."""
    well_cut: int = 0
    listed: int = 0
    """Goals listed by the rules."""
    found: int = 0
    table: Confusion = Confusion()


async def measure_relabeler(
    relabeler: Relabeler,
    on: Source,
    wanted: EpisodeSelection,
    *,
    run: str,
    held_out: float,
    most: int,
    timeout_s: float,
    said: Callable[[], None] = lambda: None,
) -> RelabelReport:
    """Measure a relabeler on the store's episodes of `on`; appends nothing.

    `run`: the relabeler's run; `held_out`: share of tasks to measure on, 0: all; `most`: goals for each episode.
    """
    async with on.connect_log() as log:

        async def work(episode: AssembledEpisode) -> _Counts:
            counts = await _compared(relabeler, on, episode, most=most, timeout_s=timeout_s)
            said()
            return counts

        cases = await map_concurrently(
            _asked(recorded_episodes(log, wanted), held_out), work, at_once=AT_ONCE
        )
    spoken = [one for one in cases if not one.silent]
    table = Confusion(
        **{
            name: sum(getattr(one.table, name) for one in spoken)
            for name in ("hits", "misses", "rejections", "false_alarms")
        }
    )
    named, right = sum(one.named for one in spoken), sum(one.right for one in spoken)
    return RelabelReport(
        run=run,
        on=on.name,
        relabeler=f"{relabeler.identity.name} {relabeler.identity.version}",
        held_out=held_out,
        tasks=len({one.task for one in cases}),
        episodes=len(spoken),
        silent=len(cases) - len(spoken),
        silent_because=dict(Counter(one.silent for one in cases if one.silent)),
        named=named,
        dropped=sum(one.dropped for one in spoken),
        precision=proportion(right, named),
        recall=proportion(sum(one.found for one in spoken), sum(one.listed for one in spoken)),
        cut=proportion(sum(one.well_cut for one in spoken), right),
        table=table,
        achieving_found=of_successes(table),
        others_found=of_failures(table),
        balanced=balanced_accuracy(table),
        majority=majority_baseline(table),
    )


async def _asked(
    episodes: AsyncGenerator[AssembledEpisode, None], share: float
) -> AsyncGenerator[AssembledEpisode, None]:
    """The store's ended episodes with steps; only of held-out tasks if a share is held out."""
    async with aclosing(episodes) as recorded:
        async for episode in recorded:
            task, played = episode.request.task, isinstance(episode.end, EpisodeEnded) and episode.steps
            if (
                played
                and task.environment == ENVIRONMENT
                and (not share or is_held_out(task.id, share=share))
            ):
                yield episode


async def _compared(
    relabeler: Relabeler, on: Source, episode: AssembledEpisode, *, most: int, timeout_s: float
) -> _Counts:
    """Compare the goals named for one episode with those achieved."""
    task = episode.task
    # a relabeler that the run trains only learns from demonstrations; here it is asked about them, too
    asked = msgspec.structs.replace(episode.request, origin="online")
    episode = msgspec.structs.replace(episode, request=asked)
    try:
        async with asyncio.timeout(timeout_s):
            pages = await asyncio.to_thread(pages_of, on.blobs, episode)
            finding = await goals_found(relabeler, episode, pages)
    except TimeoutError:
        return _Counts(task.id, f"it took longer than {timeout_s:g} s")
    except (RelabelerFailed, RelabelerUnavailable, BlobMissing, BlobCorrupt) as error:
        return _Counts(task.id, str(error).partition(":")[0])
    if finding.failure:
        return _Counts(task.id, finding.failure.partition(":")[0])
    return await asyncio.to_thread(compare_goals, episode, pages, finding, most=most)


def compare_goals(
    episode: AssembledEpisode, pages: Sequence[Page], finding: RelabelResult, *, most: int
) -> _Counts:
    """Compare the goals found in an episode of the store with those of its rules, at most `most` of each."""
    evidence = episode.ended.evidence
    ending = ending_of(evidence)
    if isinstance(ending, str):
        return _Counts(episode.task.id, ending.partition(":")[0])
    walk = walk_of(episode, pages)
    truth = first_achieved(evidence, walk)
    listed = {
        (one.family, goal_key(one.family, one.goal))
        for one in hindsight_of(episode.task, evidence, walk, max_goals=most)
    }
    place = StartPage(ending.catalogue, ending.opening)
    named = [(_key(goal, place), goal.until_step) for goal in finding.goals]
    read = [(key, until) for key, until in named if key is not None]
    right = [(key, until) for key, until in read if key in truth]
    well_cut = [until for key, until in right if truth[key] == until]
    table = Confusion()
    for step in range(1, len(episode.steps) + 1):
        achieved = step in truth.values()
        called = step in well_cut if achieved else any(until == step for _, until in named)
        table = table.with_one(success=achieved, verdict=called)
    return _Counts(
        episode.task.id,
        "",
        named=len(read),
        dropped=len(named) - len(read) + (finding.reading.dropped if finding.reading else 0),
        right=len(right),
        well_cut=len(well_cut),
        listed=len(listed),
        found=len(listed & {key for key, _ in right}),
        table=table,
    )


def _key(goal: AchievedGoal, place: StartPage) -> tuple[str, bytes] | None:
    """Family and meaning of a goal; a goal in words alone as the store parses it, None if it cannot."""
    if goal.goal is not None:
        family = goal.family.rpartition("/")[2]
        return family, goal_key(family, goal.goal)
    said = goal_said(goal.instruction, place)
    return None if said is None else (said.family, goal_key(said.family, said.goal))
