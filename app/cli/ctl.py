"""`hindcast ctl pause / resume / drain / cancel / set`."""

import asyncio
from typing import Annotated, Any

import typer

from hindcast.app.cli.options import RunName, one_run
from hindcast.app.cli.output import Report
from hindcast.app.runs.controls import Command, ask_run, this_user
from hindcast.app.runs.recipe_change import change_recipe
from hindcast.app.runs.runs import open_run

app = typer.Typer(
    name="ctl", help="Control a run; each command is an event with its author.", no_args_is_help=True
)

Reason = Annotated[str, typer.Option(help="Why; recorded in the log.")]
Author = Annotated[str | None, typer.Option(help="Author; by default the user of this machine.")]


@app.command("pause")
def pause(run: RunName = None, reason: Reason = "", author: Author = None) -> Report:
    """Pause a run: begin no new episode until it is resumed; running ones end normally. Restarts keep the pause.

    Example: hindcast ctl pause --reason "the machine is needed"
    """
    return _ask(run, "pause", {}, reason, author)


@app.command("resume")
def resume(
    run: RunName = None,
    of: Annotated[
        str | None, typer.Option(metavar="AUTHOR", help="Lift another author's pause instead of your own.")
    ] = None,
    reason: Reason = "",
    author: Author = None,
) -> Report:
    """Lift a pause; the run continues once no other pause is in force.

    Example: hindcast ctl resume --of root
    """
    return _ask(run, "resume", {} if of is None else {"of": of}, reason, author)


@app.command("drain")
def drain(run: RunName = None, reason: Reason = "", author: Author = None) -> Report:
    """Cancel requests that no actor has started, and request no more until the system is started again.

    Example: hindcast ctl drain --reason "done for today"
    """
    return _ask(run, "drain", {}, reason, author)


@app.command("cancel")
def cancel(
    episode: Annotated[str, typer.Argument(help="The episode's id, such as ep_9f2c41d07ab3.")],
    run: RunName = None,
    reason: Reason = "",
    author: Author = None,
) -> Report:
    """Cancel one waiting or running episode: it counts as cancelled and is not trained on.

    Example: hindcast ctl cancel ep_9f2c41d07ab3 --reason "the site was down"
    """
    return _ask(run, "cancel", {"episode": episode}, reason, author)


@app.command("set")
def set_settings(
    overrides: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE… [RUN]",
            help="Settings with their new values; then the run, by default the one started last.",
        ),
    ],
    run_option: Annotated[str | None, typer.Option("--run", hidden=True)] = None,
    reason: Reason = "",
    author: Author = None,
) -> Report:
    """Change settings of a run, also while it is running; they hold from the recorded position on.

    Only settings that one role alone reads can change; a fork can change the others. Either all are recorded or none.

    Example: hindcast ctl set learner.options.kl_coefficient=0.1 --reason "it drifts"
    """
    named = overrides.pop() if len(overrides) > 1 and "=" not in overrides[-1] else None
    run = one_run(named, run_option)
    changed = asyncio.run(
        change_recipe(open_run(run), overrides, author=author or this_user(), reason=reason)
    )
    lines = [
        f"{key}: {before} before, {after} from position {changed.position} on"
        for key, (before, after) in changed.changes.items()
    ]
    return Report(changed, lines)


def _ask(
    run: str | None, command: Command, arguments: dict[str, Any], reason: str, author: str | None
) -> Report:
    asked = asyncio.run(
        ask_run(open_run(run), command, author=author or this_user(), reason=reason, arguments=arguments)
    )
    later = "" if asked.works else "; the run is not running, so it takes effect at the next start"
    return Report(asked, [f"{command} of run {asked.run} recorded at position {asked.position}{later}"])
