"""WebArena as a plugin."""

from collections.abc import Sequence

from hindcast.actors.environments.base import Answers, Question, TaskSource, Venue
from hindcast.actors.environments.plugin import Environment, SitePlaces
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.settings.schema import Settings


class WebArena(Environment):
    """See `Environment`."""

    needs = "a task file: set sites.webarena_tasks and sites.webarena_sites (docs/webarena.md)"
    is_played_once = True

    def tasks(self, name: str, settings: Settings) -> TaskSource | None:
        """Tasks of the file that the settings name."""
        from hindcast.actors.environments.webarena.tasks import WebArenaTasks

        return WebArenaTasks(settings.sites) if settings.sites.webarena_tasks else None

    def open_site(self, name: str, settings: Settings, places: SitePlaces) -> Venue | None:
        """The sites at the addresses of the settings."""
        from hindcast.actors.environments.webarena.site import WebArenaSite

        return WebArenaSite(settings.sites, trusted=places.trusted) if settings.sites.webarena_tasks else None

    def evaluate(self, task: Task, evidence: Evidence, answers: Answers) -> Judgment:
        """The product of the task's evaluators."""
        from hindcast.actors.environments.webarena.evaluators import evaluate

        return evaluate(task, evidence, answers)

    def questions(self, task: Task, evidence: Evidence) -> Sequence[Question]:
        """Wordings to compare by meaning: `fuzzy_match`."""
        from hindcast.actors.environments.webarena.evaluators import questions

        return questions(task, evidence)

    def check(self, settings: Settings) -> list[str]:
        """What is wrong with how WebArena's sites are reset and waited for."""
        sites, conflicts = settings.sites, []
        if sites.webarena_resets == "none" and sites.webarena_reset:
            conflicts.append(
                "sites.webarena_reset names what resets a site, and sites.webarena_resets = 'none' never does it: say per_episode or "
                "per_batch"
            )
        if sites.webarena_resets != "none" and not sites.webarena_reset:
            conflicts.append(
                f"sites.webarena_resets = {sites.webarena_resets!r} needs what resets the sites: sites.webarena_reset"
            )
        if sites.webarena_resets == "per_episode" and sites.webarena_concurrency != 1:
            conflicts.append(
                "sites.webarena_resets = 'per_episode' would reset a site while other episodes are on it: set "
                "sites.webarena_concurrency to 1"
            )
        if sites.webarena_tasks and sites.webarena_patience_s >= settings.actors.episode_timeout_s:
            conflicts.append(
                f"sites.webarena_patience_s = {sites.webarena_patience_s:g} must be shorter than actors.episode_timeout_s = "
                f"{settings.actors.episode_timeout_s:g}, else an episode is over before it began"
            )
        if "webarena" in settings.curriculum.environments and not sites.webarena_tasks:
            conflicts.append("curriculum.environments names webarena: set sites.webarena_tasks")
        return conflicts


ENVIRONMENT = WebArena()
