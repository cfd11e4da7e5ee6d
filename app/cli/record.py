"""`hindcast record`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from hindcast.actors.environments.web.definition import UNCHECKED, DefinitionError, WebTask, task_of, tasks_of
from hindcast.actors.environments.web.files import filled, read_defaults, read_tasks
from hindcast.actors.environments.web.person import Person
from hindcast.actors.environments.web.scripted import act_out, read_script
from hindcast.actors.environments.web.task_writer import append_task, name_for
from hindcast.app.cli.options import Json
from hindcast.app.cli.output import print_json, print_text, say
from hindcast.app.demonstrations.screen import require_screen, type_done
from hindcast.app.runs.runs import RunHandle, list_runs, open_run
from hindcast.app.runs.selection import select_run
from hindcast.app.settings.configuration import resolve
from hindcast.app.settings.web_tasks import (
    overrides_for,
    require_sound_groups,
    require_task_secrets,
    with_task,
)
from hindcast.app.system.home import home_folder
from hindcast.app.system.private_home import users_umask
from hindcast.app.system.system import holding
from hindcast.core.errors import SettingsError
from hindcast.core.text.nearest import advice

if TYPE_CHECKING:
    from hindcast.app.demonstrations.recorder import Recording

RECORDED_STEPS = 30
"""Step limit of a task that is defined by its recording, if no defaults set one."""

app = typer.Typer()


@app.command("record")
def record(
    url: Annotated[
        str | None, typer.Argument(help="Start page of a new task; else name a task with --task.")
    ] = None,
    instruction: Annotated[str | None, typer.Option(help="Instruction of the new task.")] = None,
    task: Annotated[
        str | None, typer.Option(help="Instead of a URL: name of a task of the file or the run.")
    ] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(help="Task file: --task is read from it, and a new task is written to it."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the new task. Default: its first words.")] = None,
    family: Annotated[str, typer.Option(help="Family of the new task.")] = "tasks",
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="Run that takes the demonstration; created if it does not exist. With --task the only argument.",
        ),
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe of a new run.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of a new run; repeatable."),
    ] = None,
    script: Annotated[
        Path | None, typer.Option(help="Steps and answer to perform instead of a person's.")
    ] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Without a window; needs --script.")] = False,
    patience: Annotated[float, typer.Option(min=1, help="Seconds that a step may take.")] = 600.0,
    as_json: Json = False,
) -> None:
    """Record a demonstration in the browser into a run's log.

    A new task (URL and instruction) gets a check from the result: the answer, else the last address. Clicks, typing,
    choices, Enter, scrolling, tabs and going back become actions on numbered elements. Type `done`, or `done ANSWER`, in
    the terminal when the task is done. The run must not be running.

    Example: hindcast record http://127.0.0.1:8917/ --instruction "Find Ada's number" notes --tasks notes.toml
    """
    from hindcast.app.demonstrations.recorder import append, play  # loads torch

    if task is not None and run is None:
        url, run = None, url
    home = home_folder()
    if headless and script is None:
        raise SettingsError("--headless opens no window: give the steps with --script")
    if not headless:
        require_screen()
    with holding(home):
        # throughout: actors of a system started meanwhile would play the appended request
        handle = _existing(home, run, making=bool(recipe or overrides or tasks))
        if handle is None and tasks is None:
            raise SettingsError(
                "there is no such run yet, and a new one takes its tasks from a file: name it with --tasks FILE.toml"
            )
        if handle is not None and (recipe or overrides):
            raise SettingsError(
                f"run {handle.name} exists, and keeps its recipe and its settings: omit --recipe and --set, or name a new "
                "run"
            )
        known = tasks if tasks is not None and tasks.exists() else None
        settings = (
            handle.settings
            if handle is not None
            else resolve(recipe=recipe, overrides=[*overrides_for(known), *(overrides or [])]).settings
        )
        require_task_secrets(settings)
        entries = tasks_of(read_tasks(known) if known else settings.web.tasks)
        definition = (
            _named(task, entries)
            if task is not None
            else _new_task(
                url,
                instruction,
                name=name,
                family=family,
                defaults=read_defaults(known) if known else {"max_steps": RECORDED_STEPS},
            )
        )
        if known is not None and task is None and definition.name in {one.name for one in entries}:
            raise SettingsError(f"{known} has a task {definition.name!r} already: choose another --name")
        if handle is None:
            require_sound_groups(with_task(settings, definition))
        siblings = [one.name for one in entries if one.family == definition.family]
        number = siblings.index(definition.name) if definition.name in siblings else len(siblings)
        recorded = asyncio.run(
            play(
                definition,
                number=number,
                derive_check=task is None,
                settings=settings,
                home=home,
                headed=not headless,
                patience_s=patience,
                acting=_acting(script, definition.start),
                said=say,
            )
        )
        if task is None and tasks is not None:
            with users_umask(tasks, home):
                append_task(tasks, recorded.definition)
        if handle is None:
            chosen = [*overrides_for(tasks), *(overrides or [])]
            handle = select_run(home, name=run, recipe=recipe, overrides=chosen)
        position = asyncio.run(append(handle, recorded))
    _print(handle, recorded, position, as_json=as_json)


def _existing(home: Path, run: str | None, *, making: bool) -> RunHandle | None:
    """The run that takes the demonstration; None if it must be created."""
    names = list_runs(home)
    if run in names or (run is None and names and not making):
        return open_run(run, home=home)
    return None


def _named(name: str, entries: Sequence[WebTask]) -> WebTask:
    found = next((one for one in entries if one.name == name), None)
    if found is None:
        raise SettingsError(f"--task {name!r} is unknown; {advice(name, [one.name for one in entries])}")
    return found


def _new_task(
    url: str | None, instruction: str | None, *, name: str | None, family: str, defaults: dict[str, Any]
) -> WebTask:
    if url is None or instruction is None:
        raise SettingsError(
            "give the start page and the task: hindcast record URL --instruction TEXT, or name a task with --task"
        )
    entry = {
        "name": name or name_for(instruction),
        "family": family,
        "instruction": instruction,
        "start": url,
        "checks": [msgspec.to_builtins(UNCHECKED)],
    }
    try:
        return task_of(filled(defaults, entry))
    except DefinitionError as wrong:
        raise SettingsError(f"the new task: {wrong}") from wrong


def _acting(script: Path | None, start: str) -> Callable[[Person], Awaitable[None]]:
    """Returns what ends the recording: the script, or the person at the terminal."""
    if script is not None:
        found = read_script(script)
        return lambda person: act_out(found, person, start=start)

    async def at_the_terminal(person: Person) -> None:
        say("do the task in the browser, then type `done` or `done ANSWER` here; Ctrl-C cancels")
        answer = await type_done()
        if answer is None:
            person.drop("the input ended before `done`; nothing is recorded")
        else:
            person.end(answer or None)

    return at_the_terminal


def _print(handle: RunHandle, recorded: "Recording", position: int, *, as_json: bool) -> None:
    found = {
        "run": handle.name,
        "episode": recorded.request.episode,
        "task": recorded.definition.name,
        "steps": len(recorded.steps),
        "outcome": recorded.judgment.outcome,
        "reason": recorded.judgment.reason,
        "position": position,
    }
    if as_json:
        print_json(found)
        return
    print_text(
        f"{found['episode']}: {found['steps']} steps of {found['task']} in run {handle.name}. "
        f"By its checks: {found['outcome']}, {found['reason']}"
    )
    print_text(f"See: hindcast replay steps {handle.name} --episode {found['episode']} --trust-tasks")
