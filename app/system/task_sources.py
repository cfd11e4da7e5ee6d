"""The tasks of every environment that the settings open."""

from hindcast.actors.environments.base import TaskSource
from hindcast.actors.environments.plugin import environments_of
from hindcast.core.settings.schema import Settings


def task_sources(settings: Settings) -> dict[str, TaskSource]:
    """Environment name -> its tasks, for every environment that the settings open."""
    sources = {name: one.tasks(name, settings) for name, one in environments_of(settings).items()}
    return {name: source for name, source in sources.items() if source is not None}
