"""Settings of BrowserGym's tasks, part of the section `sites`."""

from hindcast.core.settings.section import Count, Section


class BrowsergymSettings(Section):
    """BrowserGym's tasks, and the Python environment that runs them."""

    browsergym_python: str = ""
    """Python of the virtual environment with BrowserGym and the tasks' packages; empty: the environment
    `browsergym` is not available. It runs BrowserGym's own browser without Hindcast's isolation: use only tasks that you trust."""
    browsergym_tasks: tuple[str, ...] = ()
    """Gym ids of the tasks, such as `browsergym/miniwob.click-test`."""
    browsergym_max_steps: Count = 20
    """Maximum steps of an episode."""
