"""Candidates that an episode has looked at, and which of them fits its instruction best. Pure."""

import re

import msgspec

from hindcast.actors.scaffold.states import CandidateRule, path_of
from hindcast.core.domain.observation import Page

_WORD = re.compile(r"\w+")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate's page that the episode opened."""

    address: str
    """Path of its page's address."""
    text: str
    """Text read on that page."""


Memory = tuple[Candidate, ...]
"""Each candidate once, the latest one last."""


def remember(memory: Memory, page: Page, rule: CandidateRule) -> Memory:
    """The memory after a page that shows a candidate."""
    read = (node.text for node in page.nodes if any(each.match(node) for each in rule.reads))
    seen = Candidate(address=path_of(page), text=" ".join(" ".join(read).split()))
    return (*(known for known in memory if known.address != seen.address), seen)


def best(memory: Memory, instruction: str) -> Candidate | None:
    """The candidate whose text has the most words of the instruction, the later of equal ones; None without any."""
    wanted = _words(instruction)
    if not memory:
        return None
    return max(enumerate(memory), key=lambda placed: (len(wanted & _words(placed[1].text)), placed[0]))[1]


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))
