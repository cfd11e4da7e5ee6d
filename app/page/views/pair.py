"""Two attempts side by side: the steps of two episodes, usually members of one group, and where they first differ."""

import asyncio

import msgspec

from hindcast.app.page.runs import PageQuery
from hindcast.app.page.step_detail import StepDetail, read_steps, steps_in_full
from hindcast.app.page.views.episode import group_members
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
    advantages: dict[int, float]
    """By position: the step's advantage in the newest update that trained on it."""
    steps: list[PairedStep]
    difference: Difference | None
    """None: every step has the same prompt and the same answer."""
    cut: bool
    """Whether there are more steps than are shown."""


def pair(ask: PageQuery) -> PairPage:
    """The address's episode and the one that `with` names, by default a member with another outcome.

    Raises:
        NotInReadModel: there is no such episode.
        ModelFolderMissing: tokens cannot be written as text.
        HindcastError: the log cannot be read.

    """
    first = show_episode(ask.connection, ask.parts["episode"], as_of=ask.position)
    members = group_members(ask, first.episode)
    chosen = ask.word("with") or _other(first.episode, members)
    if chosen is None:
        return PairPage(members=members, sides=[first], advantages={}, steps=[], difference=None, cut=False)
    second = show_episode(ask.connection, chosen, as_of=ask.position)
    shown = [side.steps[:MOST_STEPS] for side in (first, second)]
    facts = asyncio.run(read_steps(ask.run, {row.position for rows in shown for row in rows}))
    details = [steps_in_full(ask.run, {row.position: facts[row.position] for row in rows}) for rows in shown]
    by_number = [{row.step: row for row in rows} for rows in shown]
    steps = [
        _paired(number, by_number[0].get(number), by_number[1].get(number), facts, details)
        for number in sorted({number for rows in by_number for number in rows})
    ]
    return PairPage(
        members=members,
        sides=[first, second],
        advantages=step_advantages(ask.connection, first.episode.episode, as_of=ask.position)
        | step_advantages(ask.connection, second.episode.episode, as_of=ask.position),
        steps=steps,
        difference=next((found for step in steps if (found := _difference(step)) is not None), None),
        cut=any(len(side.steps) > MOST_STEPS for side in (first, second)),
    )


def _other(own: EpisodeRow, members: list[EpisodeRow]) -> str | None:
    """A member with another verdict, else any other member that has steps."""
    others = [row for row in members if row.episode != own.episode and row.steps]
    judged = [row for row in others if row.outcome is not None and row.outcome != own.outcome]
    return next((row.episode for row in (*judged, *others)), None)


def _paired(
    number: int,
    left: StepRow | None,
    right: StepRow | None,
    facts: dict[int, StepTaken],
    details: list[dict[int, StepDetail]],
) -> PairedStep:
    both = left is not None and right is not None
    one, other = (None if row is None else facts[row.position] for row in (left, right))
    return PairedStep(
        step=number,
        rows=(left, right),
        details=(
            None if left is None else details[0][left.position],
            None if right is None else details[1][right.position],
        ),
        same_prompt=both and one is not None and other is not None and one.prompt_ids == other.prompt_ids,
        same_answer=both and one is not None and other is not None and one.action_ids == other.action_ids,
    )


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
