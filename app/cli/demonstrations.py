"""`hindcast record / login / demonstrations import`: adds demonstrations of people or from files to a run."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from hindcast.actors.environments.web.definition import UNCHECKED, DefinitionError, WebTask, task_of, tasks_of
from hindcast.actors.environments.web.files import append_task, filled, name_for, read_defaults, read_tasks
from hindcast.actors.environments.web.person import Person
from hindcast.actors.environments.web.scripted import act_out, read_script
from hindcast.app.cli.imports import import_file_into, imported_text
from hindcast.app.cli.output import Report, say
from hindcast.app.runs.runs import RunHandle, list_runs, open_run
from hindcast.app.runs.selection import select_run
from hindcast.app.settings.configuration import resolve
from hindcast.app.settings.web_tasks import (
    add_task,
    overrides_for,
    require_sound_groups,
    require_task_secrets,
)
from hindcast.app.system.home import home_folder, users_umask
from hindcast.app.system.system import holding
from hindcast.core.errors import HindcastError, SettingsError
from hindcast.core.text.counts import count_of
from hindcast.core.text.nearest import advice

if TYPE_CHECKING:
    from hindcast.app.demonstrations.recorder import Recording

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
RECORDED_STEPS = 30
"""Step limit of a task that is defined by its recording, if no defaults set one."""

app = typer.Typer()


class NoScreen(HindcastError):
    """No display can show a browser window."""

    exit_code = 2


def require_screen(environment: Mapping[str, str] | None = None) -> None:
    """Require a display for a browser window. Raises NoScreen."""
    found = os.environ if environment is None else environment
    if sys.platform.startswith("linux") and not any(found.get(name) for name in DISPLAYS):
        raise NoScreen(
            "there is no display to open a browser on: DISPLAY and WAYLAND_DISPLAY are not set. Run this where there is a "
            "screen, or with --headless and a --script with the steps"
        )


async def type_done() -> str | None:
    """Read lines until `done` or `done ANSWER`. Returns the answer; None if the input ends first, which cancels."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop.add_reader(sys.stdin.fileno(), lambda: lines.put_nowait(sys.stdin.readline()))
    try:
        while line := await lines.get():
            word, _, answer = line.strip().partition(" ")
            if word == "done":
                return answer.strip()
            sys.stderr.write("type `done`, or `done ANSWER`; Ctrl-C cancels\n")
        return None
    finally:
        loop.remove_reader(sys.stdin.fileno())


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
    name: Annotated[
        str | None, typer.Option(help="Name of the new task. Default: first words of its instruction.")
    ] = None,
    family: Annotated[str, typer.Option(help="Family of the new task.")] = "tasks",
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="Run that gets the demonstration; created if it does not exist. With --task the only argument.",
        ),
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe of a new run.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of a new run; repeatable."),
    ] = None,
    script: Annotated[
        Path | None, typer.Option(help="File of steps and answer to perform instead of a person.")
    ] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Open no window; needs --script.")] = False,
    patience: Annotated[float, typer.Option(min=1, help="Seconds that a step may take.")] = 600.0,
) -> Report:
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
        # until the end, because actors of a system that starts meanwhile would play the appended request
        handle = _existing(home, run, making=bool(recipe or overrides or tasks))
        if handle is None and tasks is None:
            raise SettingsError(
                "the run does not exist, and a new run takes its tasks from a file: give it with --tasks FILE.toml"
            )
        if handle is not None and (recipe or overrides):
            raise SettingsError(
                f"run {handle.name} exists and keeps its recipe and settings: omit --recipe and --set, or name a new "
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
            require_sound_groups(add_task(settings, definition))
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
    return _recorded_report(handle, recorded, position)


def _existing(home: Path, run: str | None, *, making: bool) -> RunHandle | None:
    """Open the run that gets the demonstration; None if it must be created."""
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
    """Return a coroutine function that ends the recording: the script's, or the person's at the terminal."""
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


def _recorded_report(handle: RunHandle, recorded: "Recording", position: int) -> Report:
    episode, judgment = recorded.request.episode, recorded.judgment
    return Report(
        {
            "run": handle.name,
            "episode": episode,
            "task": recorded.definition.name,
            "steps": len(recorded.steps),
            "outcome": judgment.outcome,
            "reason": judgment.reason,
            "position": position,
        },
        [
            f"{episode}: {count_of(len(recorded.steps), 'step')} of {recorded.definition.name} in run {handle.name}. "
            f"By its checks: {judgment.outcome}, {judgment.reason}",
            f"See: hindcast replay steps {handle.name} --episode {episode} --trust-tasks",
        ],
    )


@app.command("login")
def login(
    url: Annotated[str, typer.Argument(help="Address of the login page.")],
    name: Annotated[str, typer.Option(help="Name of the login in tasks: login = { state = NAME, … }.")],
    origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Origins that the browser may reach, as scheme://host:port; repeatable. Default: the URL's."
        ),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option(help="File of steps to perform, written as a login of a task file: steps = [ … ]."),
    ] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Open no window; needs --script.")] = False,
) -> Report:
    """Log in to a site once in a browser window, and store the login for tasks that name it.

    Example: hindcast login http://127.0.0.1:8917/login --name notes
    """
    from hindcast.app.demonstrations.logins import save_login
    from hindcast.app.system.sites import login_states

    steps = read_script(script).steps if script else ()
    if headless and not steps:
        raise SettingsError("--headless opens no window: give the steps with --script")
    if not headless:
        require_screen()

    async def logged_in() -> None:
        if headless:
            return
        sys.stderr.write("log in, then type `done` here; Ctrl-C cancels\n")
        if await type_done() is None:
            raise SettingsError("the input ended before `done`: nothing was stored")

    path = asyncio.run(
        save_login(
            url,
            name=name,
            origins=origin or (),
            steps=steps,
            states=login_states(home_folder()),
            settings=resolve().settings.actors,
            headed=not headless,
            logged_in=logged_in,
        )
    )
    return Report(
        {"name": name, "file": str(path)},
        [f'stored as {name!r} in {path}. In a task file: login = {{ state = "{name}", signed_in = "…" }}'],
    )


demonstrations_app = typer.Typer(
    name="demonstrations", help="Import demonstrations from files.", no_args_is_help=True
)


@demonstrations_app.callback()
def group() -> None:
    """Import demonstrations from files."""


@demonstrations_app.command("import")
def import_file(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="JSONL file; for atif a trajectory or a folder of them.",
        ),
    ],
    format_name: Annotated[
        Literal["jsonl", "atif"], typer.Option("--format", help="Format of the file.")
    ] = "jsonl",
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Run that gets them; created if it does not exist.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe of a new run.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of a new run; repeatable."),
    ] = None,
) -> Report:
    """Import episodes from a file into a run's log as demonstrations for cloning. The run must not be running.

    It checks everything first: if one episode is invalid, it names file, line and key, and appends nothing. It skips episodes
    that the log has already, so the same command resumes an interrupted import. For the file formats, see docs/exports.md.
    Whole runs of other systems: hindcast import.

    Example: hindcast demonstrations import lines/episodes.jsonl taught --recipe sft
    """
    done = import_file_into(
        file,
        run,
        format_name="atif-pages" if format_name == "atif" else format_name,
        recipe=recipe,
        overrides=overrides or (),
    )
    return Report(
        done,
        [
            imported_text(done, "demonstrations"),
            f"To judge and train on them: hindcast start {done.run} (it takes as many as its curriculum.demonstrations says)",
        ],
    )


app.add_typer(demonstrations_app)
