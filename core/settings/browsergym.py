"""The settings of BrowserGym's tasks, part of the section `sites`."""

from hindcast.core.settings.section import Count, Section


class BrowsergymSettings(Section):
    """Which of BrowserGym's tasks are played, and by which Python."""

    browsergym_python: str = ""
    """Python that has BrowserGym and the tasks' packages, in an environment of its own; empty: there is no environment
    `browsergym`. Its browser is BrowserGym's own, outside the boundary round ours: name tasks that you trust."""
    browsergym_tasks: tuple[str, ...] = ()
    """Gym ids of the tasks, such as `browsergym/miniwob.click-test`."""
    browsergym_max_steps: Count = 20
    """Steps of an episode, at most."""
