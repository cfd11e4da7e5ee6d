"""One episode: its task, film strip, steps, verdicts, and what was trained on it."""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from hindcast.app.page.runs import PageQuery
from hindcast.app.runs.explanations import EpisodePart, parts_of_episode
from hindcast.app.runs.runs import NoSuchRun
from hindcast.app.runs.sources import Source
from hindcast.core.domain.observation import Box
from hindcast.core.errors import HindcastError
from hindcast.core.rl.statistics import Interval, wilson
from hindcast.core.structs import decode_json
from hindcast.events.envelope import BlobRef
from hindcast.storage.readmodel.episode_queries import (
    EpisodeDetail,
    EpisodeRow,
    Narrowing,
    ScreenshotRow,
    StepRow,
    branch_outcomes,
    list_episodes,
    show_episode,
    step_advantages,
)

MOST_MEMBERS = 64
"""Most members of a group that are listed."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One image of the film strip."""

    step: int | None
    """None: the page that the episode ended on."""
    shows: str
    """The page `before` the step, or `after` it."""
    sha256: str | None
    """None: there is no image, see `missing`."""
    missing: str
    width: int
    height: int
    touched: tuple[float, float, float, float] | None
    """Left, top, width and height of the element that the step acted on, in pixels of the image."""


class BranchValue(msgspec.Struct, frozen=True, kw_only=True):
    """Success of continuations from a step on, with its 95 % interval."""

    run: str
    """The run that holds them: this one, where its groups branch, or a fork (`hindcast branch`)."""
    success: Interval
    judged: int
    """Episodes that `success` counts. In this run the continued episode is one: its policy sampled it from the same page."""
    episodes: list[EpisodeRow] = []
    """The continuations in this run, also those without a verdict."""


class StepShare(msgspec.Struct, frozen=True, kw_only=True):
    """A step's part of updates, by one kept explanation (`hindcast why`)."""

    explanation: str
    """Name of the explanation."""
    share: float
    """Of the gradient; 1 is all of it."""
    pull: float | None
    """On the success rate of `family`; None: no family was asked about."""
    family: str


class EpisodePage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the episode page."""

    detail: EpisodeDetail
    frames: list[Frame]
    """Images in order of time."""
    values: dict[int, list[BranchValue]] = {}
    """By step: the success of its continuations, for each fork that holds some (`hindcast branch`)."""
    shares: dict[int, list[StepShare]] = {}
    """By step: its part of the updates that trained on it, by each kept explanation of them."""
    explanations: dict[str, str] = {}
    """The questions that those explanations answer, by name."""
    unexplained: list[int] = []
    """Updates that trained on the episode and that no kept explanation covers."""
    advantages: dict[int, float] = {}
    """By position: the step's advantage in the newest update that trained on it."""
    members: list[EpisodeRow] = []
    """The episodes of its group."""


def episode(ask: PageQuery) -> EpisodePage:
    """The episode that the address names. Raises NotInReadModel."""
    shown = with_frames(show_episode(ask.connection, ask.parts["episode"], as_of=ask.position), ask.run)
    parts = parts_of_episode(ask.run.folder, shown.detail.episode.episode)
    shares, explanations, unexplained = _shares(parts, shown.detail)
    members = group_members(ask, shown.detail.episode)
    return msgspec.structs.replace(
        shown,
        values=_values(ask, shown.detail.episode, members),
        shares=shares,
        explanations=explanations,
        unexplained=unexplained,
        advantages=step_advantages(ask.connection, shown.detail.episode.episode, as_of=ask.position),
        members=members,
    )


def group_members(ask: PageQuery, own: EpisodeRow) -> list[EpisodeRow]:
    """The episodes of an episode's group, by member; none if it has no group."""
    if own.group_id is None:
        return []
    of_group = Narrowing(group=own.group_id)
    found = list_episodes(ask.connection, as_of=ask.position, narrow=of_group, limit=MOST_MEMBERS)
    return sorted(found, key=lambda row: (row.member or 0, row.attempt or 0))


def _shares(
    parts: Sequence[EpisodePart], detail: EpisodeDetail
) -> tuple[dict[int, list[StepShare]], dict[str, str], list[int]]:
    """Shares of the episode's steps, the questions of the explanations that have them, and the updates that none of them covers."""
    updates = {number for batch in detail.batches for number in batch.updates}
    shares: dict[int, list[StepShare]] = {}
    questions: dict[str, str] = {}
    explained: set[int] = set()
    for part in parts:
        covered = {number for number in updates if part.first_update <= number <= part.last_update}
        if not covered:  # updates after the position that the page shows
            continue
        explained |= covered
        questions[part.name] = part.question
        for step in part.episode.steps:
            share = StepShare(explanation=part.name, share=step.share, pull=step.pull, family=part.family)
            shares.setdefault(step.step, []).append(share)
    return shares, questions, sorted(updates - explained)


def _values(ask: PageQuery, own: EpisodeRow, members: Sequence[EpisodeRow]) -> dict[int, list[BranchValue]]:
    """Values of the episode's steps from its group and from the forks of its run. Forks that cannot be read are left out."""
    found: dict[int, list[BranchValue]] = {}
    for row in members:
        if row.branch_episode == own.episode and row.branch_step is not None:
            known = found.setdefault(row.branch_step, [_value_in_run(ask.run.name, [own], [])])
            known[0] = _value_in_run(ask.run.name, [own, *known[0].episodes, row], [*known[0].episodes, row])
    for name in [] if ask.runs is None else ask.runs.names():
        with suppress(HindcastError, OSError):
            fork = ask.home_runs.open(name).handle.fork
            if fork is None or fork.parent != ask.run.name:
                continue
            with ask.home_runs.asking(name, None) as (_, connection, _place):
                for step, (won, played) in branch_outcomes(connection, own.episode).items():
                    value = BranchValue(run=name, success=wilson(won, played), judged=played)
                    found.setdefault(step, []).append(value)
    return found


def _value_in_run(run: str, sampled: Sequence[EpisodeRow], continuations: list[EpisodeRow]) -> BranchValue:
    outcomes = [row.outcome for row in sampled]
    won, judged = outcomes.count("success"), outcomes.count("success") + outcomes.count("failure")
    return BranchValue(run=run, success=wilson(won, judged), judged=judged, episodes=continuations)


def with_frames(detail: EpisodeDetail, run: Source) -> EpisodePage:
    """An episode with its film strip."""
    steps = {step.step: step for step in detail.steps}
    return EpisodePage(
        detail=detail,
        frames=[
            _frame(row, None if row.step is None else steps.get(row.step), run) for row in detail.screenshots
        ],
    )


def _frame(row: ScreenshotRow, step: StepRow | None, run: Source) -> Frame:
    gone = "" if row.released is None else f"deleted at position {row.released}"
    if row.sha256 and not gone:
        gone = _why_gone(run, BlobRef(row.sha256, row.size_bytes or 0))
    return Frame(
        step=row.step,
        shows=row.shows,
        sha256=None if gone else row.sha256,
        missing=gone or row.missing or "",
        width=row.width or 0,
        height=row.height or 0,
        touched=_touched(row, step),
    )


def _why_gone(run: Source, image: BlobRef) -> str:
    """Why an image cannot be shown; empty if it can."""
    try:
        there = run.blobs.has(image)
    except NoSuchRun as error:  # the parent of a fork
        return str(error)
    return "" if there else "its image is not among the blobs of this home"


def _touched(row: ScreenshotRow, step: StepRow | None) -> tuple[float, float, float, float] | None:
    """The element's box in pixels of the image, shown before the step acted on it."""
    if step is None or step.touched is None or row.shows != "before" or not row.scale:
        return None
    box = decode_json(step.touched, Box)
    return (box.x * row.scale, box.y * row.scale, box.width * row.scale, box.height * row.scale)
