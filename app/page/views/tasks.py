"""The curriculum: its phases, and the tasks with their success."""

import msgspec

from hindcast.app.page.runs import PageQuery
from hindcast.storage.readmodel.task_queries import PhaseRow, TaskRow, list_phases, list_tasks

PAGE = 200
"""Most tasks shown."""


class CurriculumPage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the curriculum page."""

    phases: list[PhaseRow]
    tasks: list[TaskRow]
    """Tasks, most attempted first."""
    filters: dict[str, str]


def curriculum(ask: PageQuery) -> CurriculumPage:
    """Phases, and the tasks that match."""
    names = ("environment", "family", "state", "phase")
    return CurriculumPage(
        phases=list_phases(ask.connection, as_of=ask.position),
        tasks=list_tasks(
            ask.connection,
            as_of=ask.position,
            environment=ask.word("environment"),
            family=ask.word("family"),
            state=ask.word("state"),
            phase=ask.number("phase"),
            limit=PAGE,
        ),
        filters={name: word for name in names if (word := ask.word(name))},
    )
