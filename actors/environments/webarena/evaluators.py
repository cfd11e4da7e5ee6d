"""The verdict on a WebArena episode from its evidence alone: every check of the task must hold.

What a judge endpoint must decide (`fuzzy_match`, why a task was impossible) is a `Question`. The caller supplies the
answers; without one such a check is open. One failed check decides, whatever is open. Otherwise an open check leaves the
episode undecided.
"""

from collections.abc import Iterator, Sequence

import msgspec

from hindcast.actors.environments.base import NO_ANSWERS, Answers, Question, decided, undecided
from hindcast.actors.environments.webarena.matchers import (
    at_address,
    cleaned,
    comparable,
    equals,
    includes_any,
)
from hindcast.actors.environments.webarena.probes import ProbedPage, decode_probes
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
    reason: str
    question: Question | None = None
    """The question that decides it, if it has no answer yet."""


def evaluate(task: Task, evidence: Evidence, answers: Answers = NO_ANSWERS) -> Judgment:
    """Success with reward 1 where all checks hold. `answers`: a judge endpoint's answers so far."""
    results = findings(task, evidence, answers)
    failed = next((result for result in results if result.passed is False), None)
    if failed is not None:
        return decided(False, failed.reason)
    unknown = next((result for result in results if result.passed is None), None)
    if unknown is not None:
        return undecided(unknown.reason)
    return decided(True, "; ".join(result.reason for result in results))


def questions(task: Task, evidence: Evidence) -> tuple[Question, ...]:
    """Questions to ask before the episode can be judged; none where a check has failed already."""
    results = findings(task, evidence, NO_ANSWERS)
    if any(result.passed is False for result in results):
        return ()
    return tuple(dict.fromkeys(result.question for result in results if result.question is not None))


def findings(task: Task, evidence: Evidence, answers: Answers) -> list[EvaluatorResult]:
    """The results of all checks of the task, in its order."""
    evaluation = goal_of(task).evaluation
    results: list[EvaluatorResult] = []
    for check in evaluation.checks:
        if check == "string_match":
            results += _answered(evaluation, task.instruction, evidence.answer or "", answers)
        elif check == "url_match":
            results.append(_arrived(evaluation, evidence.final_url))
        else:
            results += _by_pages(evaluation, task.instruction, decode_probes(evidence), answers)
    return results


def _answered(
    evaluation: Evaluation, intent: str, answer: str, answers: Answers
) -> Iterator[EvaluatorResult]:
    text = cleaned(answer, evaluation.rules)
    for requirement in evaluation.answers:
        if (
            requirement.approach == "fuzzy_match"
            and requirement.whole
            and requirement.references == (NOT_APPLICABLE,)
        ):
            yield _impossible(evaluation, intent, text, answers)
        else:
            yield from _compared(
                requirement, text, evaluation, intent, answers, subject="the answer", on_page=False
            )


def _impossible(evaluation: Evaluation, intent: str, answer: str, answers: Answers) -> EvaluatorResult:
    """Accept `N/A` itself, or the reason why the task is impossible in other words."""
    if equals(NOT_APPLICABLE, answer, evaluation.rules):
        return EvaluatorResult(passed=True, reason=f"the answer is {NOT_APPLICABLE}")
    if not answer:
        return EvaluatorResult(
            passed=False, reason=f"there is no answer, and {NOT_APPLICABLE} or the reason was wanted"
        )
    return _by_judge(
        Question(kind="impossible", task=intent, reference=evaluation.impossible, answer=answer), answers
    )


def _compared(
    requirement: Requirement,
    text: str,
    evaluation: Evaluation,
    intent: str,
    answers: Answers,
    *,
    subject: str,
    on_page: bool,
) -> Iterator[EvaluatorResult]:
    if requirement.approach == "fuzzy_match":
        # Lite asks about all references at once, WebArena about one at a time
        references = (
            (", ".join(requirement.references),) if evaluation.rules == "lite" else requirement.references
        )
        for reference in references:
            if not text:
                yield EvaluatorResult(passed=not reference, reason=f"{subject} is empty")
            else:
                yield _by_judge(Question(kind="same", task=intent, reference=reference, answer=text), answers)
        return
    alone = not on_page and len(requirement.references) == 1
    for reference in requirement.references:
        if requirement.approach == "exact_match":
            passed, verb = equals(reference, text, evaluation.rules), "is"
        else:
            passed = includes_any(reference, text, evaluation.rules, alone=alone, on_page=on_page)
            verb = "includes"
        if passed:
            yield EvaluatorResult(passed=True, reason=f"{subject} {verb} {_quoted(reference)}")
        else:
            yield EvaluatorResult(
                passed=False,
                reason=f"{subject}, {_quoted(text)}, lacks {_quoted(reference)} ({requirement.approach})",
            )


def _by_judge(question: Question, answers: Answers) -> EvaluatorResult:
    agrees = answers.get(question)
    if agrees is None:
        reason = (
            f"whether {_quoted(question.answer)} means {_quoted(question.reference)} must be asked of a judge endpoint, and "
            "none has answered"
        )
        return EvaluatorResult(passed=None, reason=reason, question=question)
    verdict = "means" if agrees else "does not mean"
    reason = f"by the judge endpoint {_quoted(question.answer)} {verdict} {_quoted(question.reference)}"
    return EvaluatorResult(passed=agrees, reason=reason)


def _arrived(evaluation: Evaluation, address: str) -> EvaluatorResult:
    if at_address(evaluation.address, address, evaluation.note, evaluation.rules):
        return EvaluatorResult(passed=True, reason=f"the episode ended at {_quoted(address)}")
    reason = f"the episode ended at {_quoted(address)}, not at {_quoted(evaluation.address)} (url_match)"
    return EvaluatorResult(passed=False, reason=reason)


def _by_pages(
    evaluation: Evaluation, intent: str, pages: Sequence[ProbedPage], answers: Answers
) -> Iterator[EvaluatorResult]:
    for number, target in enumerate(evaluation.targets):
        if number >= len(pages):
            yield EvaluatorResult(passed=None, reason=f"the evidence holds no look at {_quoted(target.url)}")
            continue
        page = pages[number]
        if page.found is None:
            yield EvaluatorResult(
                passed=None, reason=f"nothing is known of {_quoted(target.url)}: {page.problem}"
            )
            continue
        text = comparable(page.found, evaluation.rules)
        subject = f"what {page.url} shows"
        for result in _compared(
            target.required, text, evaluation, intent, answers, subject=subject, on_page=True
        ):
            if page.cut and result.passed is False:
                yield EvaluatorResult(
                    passed=None, reason=f"{subject} was cut at {len(page.found)} characters: {result.reason}"
                )
            else:
                yield result


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return f"“{line if len(line) <= SHOWN else line[: SHOWN - 1] + '…'}”"
