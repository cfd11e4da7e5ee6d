"""The tasks of every environment that the settings open."""

from hindcast.actors.environments.base import TaskSource
from hindcast.core.settings.schema import Settings


def task_sources(settings: Settings) -> dict[str, TaskSource]:
    """Environment name -> its tasks, for every environment that the settings open."""
    from hindcast.actors.environments.browsergym.tasks import BrowsergymTasks
    from hindcast.actors.environments.miniwob.tasks import MiniwobTasks
    from hindcast.actors.environments.store.tasks import StoreTasks
    from hindcast.actors.environments.web.tasks import WebTasks
    from hindcast.actors.environments.webarena.tasks import WebArenaTasks
    from hindcast.actors.environments.webshop.tasks import webshop_tasks

    sources: list[TaskSource] = [StoreTasks(settings.sites), MiniwobTasks()]
    if settings.web.tasks:
        sources.append(WebTasks(settings.web))
    if settings.sites.webarena_tasks:
        sources.append(WebArenaTasks(settings.sites))
    if (webshop := webshop_tasks(settings.sites)) is not None:
        sources.append(webshop)
    if settings.sites.browsergym_python:
        sources.append(BrowsergymTasks(settings.sites))
    return {source.name: source for source in sources}
