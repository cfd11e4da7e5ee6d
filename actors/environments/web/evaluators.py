"""The verdict on an episode on a user's site: the task's checks on the stored evidence, so that judging again is a replay."""

import re

import msgspec

from hindcast.actors.environments.base import decided, undecided
from hindcast.actors.environments.web.definition import Check
from hindcast.actors.environments.web.tasks import definition_of
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.structs import convert

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\w|\.\d)")
SHOWN_CHARS = 80


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found where it looked, as the site stored it."""

    texts: tuple[str, ...] = ()
    """One text per element; empty: nothing is there."""
    cut: bool = False
    """Whether more was found than is stored."""
    error: str = ""
    """Why the check could not look."""


class SiteReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the site reports at the end of an episode: `Evidence.probes`."""

    found: tuple[ProbeResult, ...] = ()
    """Results by check, in their order; checks of answers and addresses need no lookup."""
    start: str = ""
    """Digest of what the task's `fingerprint` showed at the start; empty: none is declared."""


def evaluate(task: Task, evidence: Evidence) -> Judgment:
    """Reward 1 if the checks hold, else 0; undecided if another judge decides, or a check could not look."""
    try:
        definition = definition_of(task)
        report = convert(evidence.probes, SiteReport)
    except msgspec.ValidationError as error:
        return undecided(f"task or evidence is damaged: {error}")
    if definition.judge:
        return undecided(f"the task leaves its verdict to the judge {definition.judge!r}")
    if len(report.found) != len(definition.checks):
        return undecided(f"{len(report.found)} of {len(definition.checks)} checks stand in the evidence")
    deciding = definition.need == "any"
    unknown = ""
    last_text = ""
    for check, result in zip(definition.checks, report.found, strict=True):
        texts = _texts(check, result, evidence)
        if isinstance(texts, str):
            unknown = unknown or texts
            continue
        holds, last_text = any(_meets(check, text) for text in texts), _comparison_text(check, texts)
        if result.cut and (not holds or check.number is not None):
            unknown = unknown or f"{_source_text(check)} is longer than what is stored of it"
            continue
        if holds == deciding:  # decides, independent of the others
            return decided(holds, last_text)
    if unknown:
        return undecided(unknown)
    return decided(
        not deciding, last_text if len(definition.checks) == 1 else f"all checks agree; the last: {last_text}"
    )


def _texts(check: Check, result: ProbeResult, evidence: Evidence) -> tuple[str, ...] | str:
    """The texts that a check compares; a string: why it cannot."""
    if check.of == "answer":
        return () if evidence.answer is None else (evidence.answer,)
    if check.of == "url":
        return (evidence.final_url,)
    return f"{_source_text(check)} could not be looked at: {result.error}" if result.error else result.texts


def _meets(check: Check, text: str) -> bool:
    if check.exact is not None:
        return _normalized(text) == _normalized(check.exact)
    if check.contains is not None:
        return _normalized(check.contains) in _normalized(text)
    if check.regex is not None:
        return re.search(check.regex, text) is not None
    assert check.number is not None
    numbers = {float(number.replace(",", "")) for number in NUMBER.findall(text)}
    return len(numbers) == 1 and abs(numbers.pop() - check.number) <= check.tolerance


def _normalized(text: str) -> str:
    return " ".join(text.split()).casefold()


def _source_text(check: Check) -> str:
    return " ".join(word for word in (check.of, check.selector or check.script or check.address) if word)


def _comparison_text(check: Check, texts: tuple[str, ...]) -> str:
    expected = next(
        f"{name} {value!r}"
        for name in ("exact", "contains", "regex", "number")
        if (value := getattr(check, name)) is not None
    )
    actual = " | ".join(texts)
    actual = actual if len(actual) <= SHOWN_CHARS else f"{actual[:SHOWN_CHARS]}…"
    return (
        f"{_source_text(check)} is {actual!r}, wanted {expected}"
        if texts
        else f"there is no {_source_text(check)}, wanted {expected}"
    )
