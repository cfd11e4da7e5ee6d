"""The verdict on a WebArena episode from its evidence alone: every check of the task must hold.

What a judge endpoint must decide (`fuzzy_match`, why a task was impossible) is a `Question`. The caller supplies the
answers; without one such a check is open. One failed check decides, whatever is open. Otherwise an open check leaves the
episode undecided.
"""

from collections.abc import Iterator, Sequence

import msgspec

from hindcast.actors.environments.base import NO_ANSWERS, Answers, Question, decided, undecided
from hindcast.actors.environments.webarena.matchers import at_address, cleaned, equals, includes_any, shown
from hindcast.actors.environments.webarena.probes import ProbedPage, looks_of
from hindcast.actors.environments.webarena.schema import NOT_APPLICABLE, Evaluation, Requirement
from hindcast.actors.environments.webarena.tasks import goal_of
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task

SHOWN = 80
"""Characters of a text that a reason quotes."""


class EvaluatorResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    passed: bool | None
    """Whether the check holds; None: undecided."""
    words: str
    question: Question | None = None
    """The question that decides it, if it has no answer yet."""


def evaluate(task: Task, evidence: Evidence, answers: Answers = NO_ANSWERS) -> Judgment:
    """Success with reward 1 where all checks hold. `answers`: a judge endpoint's answers so far."""
    found = findings(task, evidence, answers)
    failed = next((one for one in found if one.passed is False), None)
    if failed is not None:
        return decided(False, failed.words)
    open_one = next((one for one in found if one.passed is None), None)
    if open_one is not None:
        return undecided(open_one.words)
    return decided(True, "; ".join(one.words for one in found))


def questions(task: Task, evidence: Evidence) -> tuple[Question, ...]:
    """Questions to ask before the episode can be judged; none where a check has failed already."""
    found = findings(task, evidence, NO_ANSWERS)
    if any(one.passed is False for one in found):
        return ()
    return tuple(dict.fromkeys(one.question for one in found if one.question is not None))


def findings(task: Task, evidence: Evidence, answers: Answers) -> list[EvaluatorResult]:
    """The results of all checks of the task, in its order."""
    wanted = goal_of(task).evaluation
    found: list[EvaluatorResult] = []
    for check in wanted.checks:
        if check == "string_match":
            found += _answered(wanted, task.instruction, evidence.answer or "", answers)
        elif check == "url_match":
            found.append(_arrived(wanted, evidence.final_url))
        else:
            found += _shown(wanted, task.instruction, looks_of(evidence), answers)
    return found


def _answered(wanted: Evaluation, intent: str, answer: str, answers: Answers) -> Iterator[EvaluatorResult]:
    text = cleaned(answer, wanted.rules)
    for one in wanted.answers:
        if one.approach == "fuzzy_match" and one.whole and one.references == (NOT_APPLICABLE,):
            yield _impossible(wanted, intent, text, answers)
        else:
            yield from _compared(one, text, wanted, intent, answers, where="the answer", on_page=False)


def _impossible(wanted: Evaluation, intent: str, answer: str, answers: Answers) -> EvaluatorResult:
    """Accept `N/A` itself, or the reason why the task is impossible in other words."""
    if equals(NOT_APPLICABLE, answer, wanted.rules):
        return EvaluatorResult(passed=True, words=f"the answer is {NOT_APPLICABLE}")
    if not answer:
        return EvaluatorResult(
            passed=False, words=f"there is no answer, and {NOT_APPLICABLE} or the reason was wanted"
        )
    return _asked(
        Question(kind="impossible", task=intent, reference=wanted.impossible, answer=answer), answers
    )


def _compared(
    one: Requirement,
    text: str,
    wanted: Evaluation,
    intent: str,
    answers: Answers,
    *,
    where: str,
    on_page: bool,
) -> Iterator[EvaluatorResult]:
    if one.approach == "fuzzy_match":
        # Lite asks about all references at once, WebArena about one at a time
        asked = (", ".join(one.references),) if wanted.rules == "lite" else one.references
        for reference in asked:
            if not text:
                yield EvaluatorResult(passed=not reference, words=f"{where} is empty")
            else:
                yield _asked(Question(kind="same", task=intent, reference=reference, answer=text), answers)
        return
    alone = not on_page and len(one.references) == 1
    for reference in one.references:
        if one.approach == "exact_match":
            passed, verb = equals(reference, text, wanted.rules), "is"
        else:
            passed = includes_any(reference, text, wanted.rules, alone=alone, on_page=on_page)
            verb = "includes"
        if passed:
            yield EvaluatorResult(passed=True, words=f"{where} {verb} {_quoted(reference)}")
        else:
            yield EvaluatorResult(
                passed=False, words=f"{where}, {_quoted(text)}, lacks {_quoted(reference)} ({one.approach})"
            )


def _asked(question: Question, answers: Answers) -> EvaluatorResult:
    said = answers.get(question)
    if said is None:
        words = (
            f"whether {_quoted(question.answer)} means {_quoted(question.reference)} must be asked of a judge endpoint, and "
            "none has answered"
        )
        return EvaluatorResult(passed=None, words=words, question=question)
    verdict = "means" if said else "does not mean"
    words = f"by the judge endpoint {_quoted(question.answer)} {verdict} {_quoted(question.reference)}"
    return EvaluatorResult(passed=said, words=words)


def _arrived(wanted: Evaluation, address: str) -> EvaluatorResult:
    if at_address(wanted.address, address, wanted.note, wanted.rules):
        return EvaluatorResult(passed=True, words=f"the episode ended at {_quoted(address)}")
    words = f"the episode ended at {_quoted(address)}, not at {_quoted(wanted.address)} (url_match)"
    return EvaluatorResult(passed=False, words=words)


def _shown(
    wanted: Evaluation, intent: str, looks: Sequence[ProbedPage], answers: Answers
) -> Iterator[EvaluatorResult]:
    for number, target in enumerate(wanted.targets):
        if number >= len(looks):
            yield EvaluatorResult(passed=None, words=f"the evidence holds no look at {_quoted(target.url)}")
            continue
        look = looks[number]
        if look.found is None:
            yield EvaluatorResult(
                passed=None, words=f"nothing is known of {_quoted(target.url)}: {look.problem}"
            )
            continue
        text = shown(look.found, wanted.rules)
        where = f"what {look.url} shows"
        for one in _compared(target.required, text, wanted, intent, answers, where=where, on_page=True):
            if look.cut and one.passed is False:
                yield EvaluatorResult(
                    passed=None, words=f"{where} was cut at {len(look.found)} characters: {one.words}"
                )
            else:
                yield one


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return f"“{line if len(line) <= SHOWN else line[: SHOWN - 1] + '…'}”"
