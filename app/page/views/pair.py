"""Two attempts side by side: the steps of two episodes, members of one group or of two runs, and where they first differ."""

import asyncio
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from hindcast.app.page.runs import PageQuery
from hindcast.app.page.step_detail import StepDetail, read_steps, steps_in_full
from hindcast.app.page.views.episode import group_members
from hindcast.app.runs.sources import Source
from hindcast.events.catalogue import StepTaken
from hindcast.storage.readmodel.episode_queries import (
    EpisodeDetail,
    EpisodeRow,
    StepRow,
    show_episode,
    step_advantages,
)

MOST_STEPS = 60
"""Most steps of each episode that are shown."""
BEFORE, AFTER = 80, 240
"""Characters of a prompt that are shown before and after the first difference."""


class PairedStep(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one number in both episodes."""

    step: int
    rows: tuple[StepRow | None, StepRow | None]
    """None: the episode had ended."""
    details: tuple[StepDetail | None, StepDetail | None]
    same_prompt: bool
    """Whether both policies read the same tokens."""
    same_answer: bool
    """Whether both policies answered with the same tokens."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Where the episodes first differ."""

    step: int
    what: str
    """`prompt`: the policies read different tokens; `answer`: they answered the same prompt differently; `length`: one ended."""
    prompts: tuple[str, str]
    """The prompts around the first different character; empty unless they differ."""


class PairPage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the page. Of the two sides, the address's episode is the first."""

    members: list[EpisodeRow]
    """The group's episodes, to pick from."""
    sides: list[EpisodeDetail]
    """Both episodes; only the first if there is no other to compare with."""
    runs: list[str]
    """Run of each side."""
    advantages: list[dict[int, float]]
    """Of each side, by position: the step's advantage in the newest update that trained on it."""
    steps: list[PairedStep]
    difference: Difference | None
    """None: every step has the same prompt and the same answer."""
    cut: bool
    """Whether there are more steps than are shown."""


class _Side(NamedTuple):
    """An episode with what it is read from."""

    run: Source
    detail: EpisodeDetail
    facts: dict[int, StepTaken]
    """The steps shown, by position."""
    advantages: dict[int, float]


def pair(ask: PageQuery) -> PairPage:
    """The address's episode and the one that `with` names, by default a member with another outcome.

    `run` names the other's run, which is then read as it is now; without it both are of this run.

    Raises:
        NotInReadModel, NoSuchRun: there is no such episode or run.
        ModelFolderMissing: tokens cannot be written as text.
        HindcastError: the log cannot be read.

    """
    first = show_episode(ask.connection, ask.parts["episode"], as_of=ask.position)
    members = group_members(ask, first.episode)
    chosen, other_run = ask.word("with"), ask.word("run") or ask.run.name
    if chosen is None:
        chosen, other_run = _other(first.episode, members), ask.run.name
    own = _side(ask.run, ask.connection, first, ask.position)
    if chosen is None:
        return _page(members, [own], [])
    if other_run == ask.run.name:
        second = show_episode(ask.connection, chosen, as_of=ask.position)
        other = _side(ask.run, ask.connection, second, ask.position)
    else:
        with ask.home_runs.asking(other_run, None) as (opened, connection, place):
            second = show_episode(connection, chosen, as_of=place.position)
            other = _side(opened.handle, connection, second, place.position)
    return _page(members, [own, other], _paired_steps(own, other))


def _side(run: Source, connection: Connection, detail: EpisodeDetail, position: int) -> _Side:
    positions = [row.position for row in detail.steps[:MOST_STEPS]]
    return _Side(
        run=run,
        detail=detail,
        facts=asyncio.run(read_steps(run, positions)),
        advantages=step_advantages(connection, detail.episode.episode, as_of=position),
    )


def _page(members: list[EpisodeRow], sides: list[_Side], steps: list[PairedStep]) -> PairPage:
    return PairPage(
        members=members,
        sides=[side.detail for side in sides],
        runs=[side.run.name for side in sides],
        advantages=[side.advantages for side in sides],
        steps=steps,
        difference=next((found for step in steps if (found := _difference(step)) is not None), None),
        cut=any(len(side.detail.steps) > MOST_STEPS for side in sides),
    )


def _other(own: EpisodeRow, members: list[EpisodeRow]) -> str | None:
    """A member with another verdict, else any other member that has steps."""
    others = [row for row in members if row.episode != own.episode and row.steps]
    judged = [row for row in others if row.outcome is not None and row.outcome != own.outcome]
    return next((row.episode for row in (*judged, *others)), None)


def _paired_steps(*sides: _Side) -> list[PairedStep]:
    details = [steps_in_full(side.run, side.facts) for side in sides]
    rows = [{row.step: row for row in side.detail.steps[:MOST_STEPS]} for side in sides]
    found = []
    for number in sorted({number for one in rows for number in one}):
        left, right = (one.get(number) for one in rows)
        one, other = (
            None if row is None else side.facts[row.position]
            for row, side in zip((left, right), sides, strict=True)
        )
        found.append(
            PairedStep(
                step=number,
                rows=(left, right),
                details=(
                    None if left is None else details[0][left.position],
                    None if right is None else details[1][right.position],
                ),
                same_prompt=one is not None and other is not None and one.prompt_ids == other.prompt_ids,
                same_answer=one is not None and other is not None and one.action_ids == other.action_ids,
            )
        )
    return found


def _difference(paired: PairedStep) -> Difference | None:
    left, right = paired.details
    if left is None or right is None:
        return Difference(step=paired.step, what="length", prompts=("", ""))
    if paired.same_prompt:
        same = paired.same_answer
        return None if same else Difference(step=paired.step, what="answer", prompts=("", ""))
    longest = min(len(left.prompt), len(right.prompt))
    pairs = enumerate(zip(left.prompt, right.prompt, strict=False))
    alike = next((place for place, (one, other) in pairs if one != other), longest)
    around = slice(max(0, alike - BEFORE), alike + AFTER)
    return Difference(step=paired.step, what="prompt", prompts=(left.prompt[around], right.prompt[around]))
