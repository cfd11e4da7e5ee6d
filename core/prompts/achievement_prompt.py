"""Prompt and output format of the learned relabeler (HSL): from an episode's answers and final page to the goals achieved.

The prompt has the turns of the policy's own (`core.prompts.prompt`), with a request in place of the instruction. Each answer
has its number, so that the model names steps by copying rather than counting, even if early answers are left out. The output
has a line per goal, sorted by step, or one word if nothing was achieved:

    by 3 of 1 3: Add the oak lamp to my cart.

means that step 3, counted from 1, achieved the goal first, and that it needed steps 1 and 3.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from hindcast.core.domain.observation import Page
from hindcast.core.ids import digest_hex
from hindcast.core.prompts.prompt import Prompt, build_prompt
from hindcast.core.prompts.rendering import RENDERERS

FORMAT = "achieved/2"
"""Name and version: any change of prompt or output needs a new version."""
RENDERER = "lines/2"
REQUEST = "Tell what these steps achieved."
NOTHING = "nothing"

PROMPT_DIGEST = digest_hex(msgspec.json.encode([FORMAT, RENDERER, REQUEST, NOTHING]))
"""Digest of the format, part of the relabeler's identity."""

_LINE = re.compile(r"by (\d{1,4}) of (\d{1,4}(?: \d{1,4})*): (\S.*)")


class Achievement(NamedTuple):
    """One achieved goal."""

    instruction: str
    until_step: int
    """Number of the step that achieved it first, counted from 1."""
    relevant: tuple[int, ...]
    """Numbers of the steps that it needed, ascending from 1; the last is `until_step`."""

    @property
    def relevance(self) -> tuple[float, ...]:
        """1 or 0 per step up to `until_step`."""
        return tuple(float(step in self.relevant) for step in range(1, self.until_step + 1))


class WrittenAchievements(NamedTuple):
    """The goals parsed from the model's output."""

    achievements: tuple[Achievement, ...]
    unreadable: int
    """Number of lines that do not parse."""


def build_achievement_prompt(
    tokenizer: Any, *, answers: Sequence[str], page: Page, max_tokens: int
) -> Prompt:
    """Build the prompt of an episode with `answers` (oldest first) that ended on `page`, at most `max_tokens` long.

    Raises SettingsError if the last answers leave no room for the page.
    """
    return build_prompt(
        tokenizer,
        instruction=REQUEST,
        answers=[f"{number}: {answer}" for number, answer in enumerate(answers, 1)],
        page_text=RENDERERS[RENDERER](page),
        max_tokens=max_tokens,
    )


def write_achievements(achievements: Iterable[Achievement]) -> str:
    """Write achievements as the text that the model is trained to produce."""
    lines = [
        f"by {achievement.until_step} of {' '.join(map(str, achievement.relevant))}: {' '.join(achievement.instruction.split())}"
        for achievement in sorted(achievements, key=lambda achievement: achievement.until_step)
    ]
    return "\n".join(lines) or NOTHING


def read_achievements(text: str, *, steps: int) -> WrittenAchievements:
    """Parse the output for an episode of `steps` steps; a line that does not fit the episode is unreadable."""
    achievements: list[Achievement] = []
    unreadable = 0
    for line in text.strip().splitlines():
        if line.strip() == NOTHING:
            continue
        achievement = _read_line(line.strip(), steps=steps)
        if achievement is None:
            unreadable += 1
        else:
            achievements.append(achievement)
    return WrittenAchievements(tuple(achievements), unreadable)


def _read_line(line: str, *, steps: int) -> Achievement | None:
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    until_step, relevant = int(match[1]), tuple(map(int, match[2].split()))
    rising = all(before < after for before, after in pairwise(relevant))
    fits = 1 <= until_step <= steps and rising and relevant[0] >= 1 and relevant[-1] == until_step
    return Achievement(match[3], until_step, relevant) if fits else None
