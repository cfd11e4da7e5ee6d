"""Selects the run that a start works on: the named one, the last one, or a new one."""

from collections.abc import Callable, Sequence
from pathlib import Path

from hindcast.actors.judges.plugin import require_judges
from hindcast.app.plugins import require_plugins
from hindcast.app.runs.runs import RunHandle, create_run, list_runs, open_run
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.launch import Launch, write_launch
from hindcast.core.errors import SettingsError
from hindcast.core.models.folders import SHIPPED
from hindcast.core.settings.schema import Settings


def choose_run(home: Path) -> RunHandle:
    """The run launched last, else the newest, else a first one with the default settings."""
    if not list_runs(home):
        created = create_run(resolve(), home=home)
        write_launch(home, Launch(run=created.name))
    return open_run(home=home)


def select_run(
    home: Path,
    *,
    name: str | None,
    recipe: str | None = None,
    config: Path | None = None,
    overrides: Sequence[str] = (),
    require: Callable[[Settings], None] = require_plugins,
) -> RunHandle:
    """Open an existing run to resume it; settings given by hand create a new run.

    `require` raises where a run with these settings cannot be worked on here. It is asked before a run is created, so that a
    refused start leaves no run that takes up the name.

    Raises:
        SettingsError: settings are given for an existing run, whose settings are fixed in its first event; or the model of a
            new run cannot be its policy.
        HindcastError: raised by `require`.

    """
    changes = recipe is not None or config is not None or bool(overrides)
    existing = list_runs(home)
    if name in existing or (name is None and existing and not changes):
        if changes:
            raise SettingsError(
                f"run {name!r} exists, and its settings are fixed in its first event. Leave out --recipe, --config, "
                "--tasks and --set to resume it, or choose another name for a new run with these settings."
            )
        handle = open_run(name, home=home)
        require(handle.settings)
        return handle
    resolved = resolve(recipe=recipe, file=config, overrides=overrides)
    require(resolved.settings)
    require_judges(resolved.settings.judge.judges, resolved.settings)
    shown = resolved.settings.actors.screenshot_observation != "off"
    if resolved.settings.policy.base != SHIPPED or shown:
        from hindcast.app.system.model_check import require_model

        require_model(resolved.settings)
    return create_run(resolved, name=name, home=home)
