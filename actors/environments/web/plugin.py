"""The user's own sites as a plugin."""

from collections.abc import Collection

from hindcast.actors.environments.base import Answers, TaskSource, Venue
from hindcast.actors.environments.plugin import Environment, SitePlaces
from hindcast.actors.environments.web.definition import tasks_of
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import Settings


class Web(Environment):
    """See `Environment`."""

    recorded_by_people = True

    def tasks(self, name: str, settings: Settings) -> TaskSource | None:
        """Tasks of the user's file."""
        from hindcast.actors.environments.web.tasks import WebTasks

        return WebTasks(settings.web) if settings.web.tasks else None

    def open_site(self, name: str, settings: Settings, places: SitePlaces) -> Venue:
        """The sites that the tasks name."""
        from hindcast.actors.environments.web.site import WebSite

        return WebSite(places.logins, trusted=places.trusted)

    def evaluate(self, task: Task, evidence: Evidence, answers: Answers) -> Judgment:
        """The verdict by the checks of the task."""
        from hindcast.actors.environments.web.evaluators import evaluate

        return evaluate(task, evidence)

    def families(self, settings: Settings) -> Collection[str]:
        """Families of the file."""
        return {str(task.get("family", "tasks")) for task in settings.web.tasks}

    def check(self, settings: Settings) -> list[str]:
        """Conflicts of other settings with the tasks, in words."""
        used = "web" in settings.curriculum.environments
        try:
            tasks = tasks_of(settings.web.tasks)
        except SettingsError as error:
            return [str(error)]
        if used and not tasks:
            return [
                "curriculum.environments names 'web', and there is no task of it: name a task file with --tasks or web.file"
            ]
        conflicts = []
        for task in tasks if used else ():
            if task.exclusive and settings.actors.contexts > 1:
                conflicts.append(
                    f"actors.contexts = {settings.actors.contexts} plays several episodes at once, and the reset of {task.name} "
                    f"would wipe the others' state: set it to 1, or say parallel = true in {settings.web.file or 'the task file'} if "
                    "it concerns an episode alone"
                )
                break
        training_judge = settings.judge.judges[0] if settings.judge.judges else ""
        for task in tasks if used else ():
            if task.judge and task.judge != training_judge:
                conflicts.append(
                    f"the task {task.name} leaves its verdict to the judge {task.judge!r}, and training uses {training_judge!r}, the "
                    "first of judge.judges: put it first"
                )
                break
        return conflicts


ENVIRONMENT = Web()
