"""`hindcast start`: starts or resumes a run."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hindcast.actors.agents.process import require_agent
from hindcast.actors.environments.plugin import program_of
from hindcast.actors.judges.plugin import require_judges
from hindcast.app.cli.output import Output, Report
from hindcast.app.plugins import require_plugins
from hindcast.app.runs.runs import RunHandle, open_run
from hindcast.app.runs.selection import select_run
from hindcast.app.settings.checks.sites import require_accounts, require_one_resetter
from hindcast.app.settings.web_tasks import overrides_for, require_actors, require_task_secrets
from hindcast.app.system.home import home_folder
from hindcast.app.system.launch import Launch, elsewhere, parse_until, require_reachable, write_launch
from hindcast.app.system.start import Summary, run_system
from hindcast.app.system.system import check_home_is_free
from hindcast.core.errors import SettingsError
from hindcast.core.models.engine import find_engine
from hindcast.core.settings.schema import Settings
from hindcast.core.text.counts import count_of

MANY_EPISODES = 1000
"""Episodes of one process of another project's environment, whose imports take seconds (`actors.agent_episodes`)."""

app = typer.Typer()


@app.command("start")
def start(
    output: Output,
    recipe: Annotated[str | None, typer.Option(help="Recipe of a new run, such as mgrpo or cloning.")] = None,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN", help="Name of the run: resumed if it exists, else created. Default: the last one."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of a new run; repeatable."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings file of a new run; default: hindcast.toml if it exists.")
    ] = None,
    tasks: Annotated[
        Path | None, typer.Option(help="Task file of your own site (docs/your-site.md), for a new run.")
    ] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Environment of a new run: a name; a Python class, MODULE:CLASS (docs/python.md); or another project's, such "
            "as verifiers:ENVIRONMENT (docs/protocols.md). Repeatable.",
        ),
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Python function that judges episodes of a new run (docs/python.md).",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Agent of your own, started once an episode; it asks the policy by OPENAI_BASE_URL (docs/agents.md). Or a "
            "program that comes with Hindcast, such as mcp:COMMAND (docs/protocols.md).",
        ),
    ] = None,
    until: Annotated[
        list[str] | None, typer.Option(metavar="GOAL=N", help="End at updates=N, episodes=N or minutes=N.")
    ] = None,
    actors: Annotated[
        int,
        typer.Option(
            min=0, max=64, help="Actor processes, each with a browser; 0: they join from other machines."
        ),
    ] = 1,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE", help="Leave a role to another machine (hindcast join); repeatable."),
    ] = None,
) -> Report:
    """Start or resume a run: start the whole system under honcho and show its progress. Ctrl-C stops it in order.

    The same command resumes the run. A second Ctrl-C ends everything at once (exit code 130); the log stays intact. With
    --until it ends by itself with exit code 0. With --json it prints one line when every part answers, and one at the end.

    Example: hindcast start --recipe mgrpo --until updates=5 --json
    """
    home = home_folder()
    check_home_is_free(home)
    goals = parse_until(until or [])
    chosen = [
        *overrides_for(tasks),
        *overrides_of_python(environment or [], reward, agent),
        *(overrides or []),
    ]

    def require(settings: Settings) -> None:
        require_plugins(settings)
        require_actors(settings, actors)
        require_reachable(goals, settings)
        find_engine(settings.policy.engine).require(settings)
        require_judges(settings.judge.judges, settings)
        require_task_secrets(settings)
        require_accounts(settings)
        require_one_resetter(settings, actors)
        require_agent(settings.actors)
        elsewhere(without or [], settings)

    handle = select_run(home, name=run, recipe=recipe, config=config, overrides=chosen, require=require)
    require_own_episodes(handle)
    left_out = elsewhere(without or [], handle.settings)
    launch = Launch(run=handle.name, until=goals, actors=actors, without=left_out)
    write_launch(home, launch)
    summary = asyncio.run(
        run_system(lambda: open_run(handle.name, home=home), launch, home=home, as_json=output.as_json)
    )
    return Report(summary, [summary_text(summary)])


def require_own_episodes(run: RunHandle) -> None:
    """Raises SettingsError for a derived run: its episodes were played by its parent's policies."""
    if run.fork is not None and run.fork.without:
        raise SettingsError(
            f"run {run.name} was derived from {run.fork.parent} ({run.fork.without} left out) and plays no episodes of its own. "
            f"Continue from it in a fork: hindcast fork {run.name} --name NAME, then hindcast start NAME"
        )


def overrides_of_python(environments: Sequence[str], reward: str | None, agent: str | None) -> list[str]:
    """Overrides for environments, a judge and an agent that are named as options. An agent brings its own tasks by default.

    Raises:
        SettingsError: an environment with a program of its own is not the only one, or has another agent.

    """
    played = next((one for one in environments if program_of(one) is not None), None)
    if played is not None:
        if agent or len(environments) > 1:
            raise SettingsError(
                f"--environment {played!r} is played by a program of its own: leave out --agent and other environments"
            )
        environments, agent = [played.partition(":")[0]], played
    elif agent and not environments:
        environments = ["agent"]
    chosen = [f"curriculum.environments={msgspec.json.encode(environments).decode()}"] if environments else []
    chosen += [f"judge.judges={msgspec.json.encode([reward]).decode()}"] if reward else []
    if agent:
        chosen += [f"actors.agent={msgspec.json.encode(agent).decode()}", 'actors.answer_format="text"']
        chosen.append(f"actors.agent_folder={msgspec.json.encode(str(Path.cwd())).decode()}")
        program = program_of(agent)
        if program is not None and program.many_episodes:
            chosen.append(f"actors.agent_episodes={MANY_EPISODES}")
    return chosen


def summary_text(summary: Summary) -> str:
    """Format the numbers of the run when its system has ended, and the commands that show more."""
    played = [count_of(summary.episodes, "episode")] if summary.episodes or not summary.demonstrations else []
    played += [count_of(summary.demonstrations, "demonstration")] if summary.demonstrations else []
    return (
        f"run {summary.run}: {count_of(summary.updates, 'update')}, {', '.join(played)}, {count_of(summary.events, 'event')} after "
        f"{summary.wall_s:.0f} s. See: hindcast run show {summary.run} · hindcast verify {summary.run}"
    )
