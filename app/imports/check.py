"""Checks whether a run can import a document as a demonstration. Pure; errors name the key."""

from collections.abc import Mapping

from hindcast.actors.environments.base import TaskSource
from hindcast.actors.environments.plugin import find_environment
from hindcast.actors.judges.rules import EVALUATORS
from hindcast.app.exports.document import DocumentStep, EpisodeDocument
from hindcast.app.imports.decoder import DocumentError
from hindcast.core.domain.action import ACTIONS, Action
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import Settings
from hindcast.core.text.nearest import advice


def check(document: EpisodeDocument, settings: Settings, *, sources: Mapping[str, TaskSource]) -> None:
    """Check a document under a run's settings. `sources`: the run's tasks by environment. Raises DocumentError."""
    task, steps = document.task.as_task(), document.steps
    if task.environment not in EVALUATORS:
        raise DocumentError(
            "task.environment",
            f"{task.environment!r} has no evaluator, so no judge could tell whether the episode succeeded; environments with one: "
            f"{', '.join(sorted(EVALUATORS))}",
        )
    if not find_environment(task.environment).imports_goals and not _is_own(task, sources):
        raise DocumentError(
            "task",
            f"no task of the run: tasks of {task.environment} may name resets and logins, so they are not taken "
            f"from a file. Import into a run that has task {task.seed} of {task.environment}/{task.family}",
        )
    if not steps:
        raise DocumentError("steps", "there is none")
    if len(steps) > task.max_steps:
        raise DocumentError("steps", f"there are {len(steps)}, but task.max_steps is {task.max_steps}")
    for number, step in enumerate(steps):
        _check_step(step, f"steps[{number}]", settings, last=number + 1 == len(steps))
    _check_end(document)


def _is_own(task: Task, sources: Mapping[str, TaskSource]) -> bool:
    try:
        return sources[task.environment].task(task.family, task.seed) == task
    except (LookupError, SettingsError):
        return False


def _check_step(step: DocumentStep, key: str, settings: Settings, *, last: bool) -> None:
    if step.page is None:
        raise DocumentError(f"{key}.page", "missing: training needs the page on which the action was chosen")
    if step.action is None:
        raise DocumentError(f"{key}.action", "null: an answer without an action cannot be imitated")
    action, takes = step.action, ACTIONS.get(step.action.name)
    if takes is None:
        raise DocumentError(
            f"{key}.action.name", f"there is no action {action.name!r}; {advice(action.name, ACTIONS)}"
        )
    for name, wanted in (("element", takes.element), ("argument", takes.argument)):
        given = getattr(action, name) is not None
        if given and wanted == "none":
            raise DocumentError(f"{key}.action.{name}", f"{action.name} takes none")
        if not given and wanted == "required":
            raise DocumentError(f"{key}.action.{name}", f"missing: {action.name} needs it")
    numbers = {node.id for node in step.page.nodes}
    if action.element is not None and step.result == "ok" and action.element not in numbers:
        raise DocumentError(f"{key}.action.element", f"the page of this step has no element {action.element}")
    if action.name == "exit" and not last:
        raise DocumentError(f"{key}.action", "exit ends an episode, but steps follow")
    if step.result == "parse_failure":
        raise DocumentError(f"{key}.result", "parse_failure, but there is an action")
    if (step.result == "exit") != (action.name == "exit") and step.result in ("ok", "exit"):
        raise DocumentError(f"{key}.result", f"{step.result!r} is not what {action.name} leads to")
    if step.thought and settings.actors.answer_format == "plain":
        raise DocumentError(
            f"{key}.thought",
            "answers of this run contain no thought (actors.answer_format = 'plain'). Import into a run with "
            "actors.answer_format = 'thinking', or leave thoughts out",
        )


def _check_end(document: EpisodeDocument) -> None:
    last: Action | None = document.steps[-1].action
    exits = last is not None and last.name == "exit"
    if (document.reason == "exit") != exits:
        raise DocumentError(
            "reason",
            f"{document.reason!r} is not how an episode ends whose last action is {last and last.name}",
        )
    if document.reason == "unparsable":
        raise DocumentError("reason", "'unparsable': its last answer was no action")
    if document.reason == "max_steps" and len(document.steps) != document.task.max_steps:
        raise DocumentError(
            "reason", f"'max_steps' after {len(document.steps)} of {document.task.max_steps} steps"
        )
    given = (last.argument or "") if exits and last is not None else None
    if document.evidence.answer != given:
        raise DocumentError(
            "evidence.answer", f"{document.evidence.answer!r}, but the last action gives {given!r}"
        )
    if not exits and document.final_page is None:
        raise DocumentError("final_page", "missing: the page that the last action led to")
    if exits and document.final_page not in (None, document.steps[-1].page):
        raise DocumentError(
            "final_page", "exit changes no page, but this page differs from that of the last step"
        )
