"""What a learned relabeler reads and writes (HSL): an episode's answers and the page it ended on; the goals that it achieved.

Read are the turns that the policy itself reads (`core.prompts.prompt`), with a request in the place of the instruction, which is what
is to be found out, and each answer behind its number, so that steps are named by copying rather than by counting, also
where early answers were left out. Written is a line per goal, by step and then as written, or one word where nothing was achieved:

    by 3 of 1 3: Add the oak lamp to my cart.

says that step 3, counted from 1, achieved it first and that steps 1 and 3 were needed for it.
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
"""Named and versioned: whatever changes what is read or written gives it another number."""
RENDERER = "lines/2"
REQUEST = "Tell what these steps achieved."
NOTHING = "nothing"

PROMPT_DIGEST = digest_hex(msgspec.json.encode([FORMAT, RENDERER, REQUEST, NOTHING]))
"""Of the format, as the identity of the relabeler carries it."""

_LINE = re.compile(r"by (\d{1,4}) of (\d{1,4}(?: \d{1,4})*): (\S.*)")


class Achievement(NamedTuple):
    """One goal as it is written."""

    instruction: str
    until_step: int
    """Number of steps up to the one that achieved it first, that one included."""
    relevant: tuple[int, ...]
    """Numbers of the steps that it took, from 1, rising; the last is `until_step`."""

    @property
    def relevance(self) -> tuple[float, ...]:
        """1 or 0 per step up to `until_step`."""
        return tuple(float(step in self.relevant) for step in range(1, self.until_step + 1))


class WrittenAchievements(NamedTuple):
    """What a text says."""

    achievements: tuple[Achievement, ...]
    unreadable: int
    """Lines that say nothing of the kind."""


def build_achievement_prompt(
    tokenizer: Any, *, answers: Sequence[str], page: Page, max_tokens: int
) -> Prompt:
    """The prompt about an episode that gave `answers` (oldest first) and ended on `page`, at most `max_tokens` long.

    Raises SettingsError when the last answers leave no room for the page.
    """
    return build_prompt(
        tokenizer,
        instruction=REQUEST,
        answers=[f"{number}: {answer}" for number, answer in enumerate(answers, 1)],
        page_text=RENDERERS[RENDERER](page),
        max_tokens=max_tokens,
    )


def write_achievements(achievements: Iterable[Achievement]) -> str:
    """The text that says so."""
    lines = [
        f"by {one.until_step} of {' '.join(map(str, one.relevant))}: {' '.join(one.instruction.split())}"
        for one in sorted(achievements, key=lambda one: one.until_step)
    ]
    return "\n".join(lines) or NOTHING


def read_achievements(text: str, *, steps: int) -> WrittenAchievements:
    """What a text says of an episode of so many steps; a line that does not fit the episode is unreadable."""
    found: list[Achievement] = []
    unreadable = 0
    for line in text.strip().splitlines():
        if line.strip() == NOTHING:
            continue
        achievement = _read_line(line.strip(), steps=steps)
        if achievement is None:
            unreadable += 1
        else:
            found.append(achievement)
    return WrittenAchievements(tuple(found), unreadable)


def _read_line(line: str, *, steps: int) -> Achievement | None:
    matched = _LINE.fullmatch(line)
    if matched is None:
        return None
    until, relevant = int(matched[1]), tuple(map(int, matched[2].split()))
    rising = all(before < after for before, after in pairwise(relevant))
    fits = 1 <= until <= steps and rising and relevant[0] >= 1 and relevant[-1] == until
    return Achievement(matched[3], until, relevant) if fits else None
