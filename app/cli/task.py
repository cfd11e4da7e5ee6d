"""`hindcast task list / select / solve` and `hindcast curriculum show`."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import (
    AsOf,
    Environment,
    Family,
    Limit,
    OfTaskState,
    SourceName,
    site_and_family,
)
from hindcast.app.cli.output import Report, Table, rate, shorten, show
from hindcast.app.cli.read_model import connect_read_model, position_at
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.home import home_folder, users_umask
from hindcast.core.text.counts import count_of
from hindcast.storage.readmodel.episode_queries import EpisodeFilter
from hindcast.storage.readmodel.task_queries import PhaseRow, list_phases, list_tasks, refuse_unknown

task_app = typer.Typer(name="task", help="Tasks: list, select, solve.", no_args_is_help=True)

INSTRUCTION_WIDTH = 60


@task_app.command("list")
def list_all(
    run: SourceName = None,
    environment: Environment = None,
    family: Family = None,
    state: OfTaskState = None,
    phase: Annotated[
        int | None, typer.Option(help="Only tasks generated or admitted for this phase.")
    ] = None,
    limit: Limit = 50,
    as_of: AsOf = None,
) -> Report:
    """List tasks with their success, most attempted first.

    Example: hindcast task list --environment store
    """
    environment, family = site_and_family(environment, family)
    with connect_read_model(run) as connection:
        position = position_at(connection, as_of)
        found = list_tasks(
            connection,
            as_of=position,
            environment=environment,
            family=family,
            state=state,
            phase=phase,
            limit=limit,
        )
        if not found:
            named = EpisodeFilter(environment=environment, family=family)
            refuse_unknown(connection, named, phase=phase, as_of=position)
    return Report(
        {"tasks": found},
        [
            Table(
                ("task", "family", "seed", "state", "phase", "value", "episodes", "success", "instruction"),
                [
                    (
                        t.task,
                        f"{t.environment}/{t.family}",
                        t.seed,
                        t.state if t.reason is None else f"{t.state}: {t.reason}",
                        t.phase,
                        t.value,
                        t.episodes,
                        rate(t.success),
                        shorten(t.instruction, INSTRUCTION_WIDTH),
                    )
                    for t in found
                ],
                empty="No such task.",
            )
        ],
    )


@task_app.command("select")
def select(
    out: Annotated[
        Path,
        typer.Option(
            help="Settings file to write; held-out tasks are written to a second file in its folder."
        ),
    ] = Path("tasks.toml"),
    attempts: Annotated[int, typer.Option(min=1, help="Attempts at each task.")] = 16,
    held_out: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of the kept tasks that is held out from training.")
    ] = 0.25,
    recipe: Annotated[str, typer.Option(help="Recipe whose task families are used.")] = "arpo",
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; repeatable.")
    ] = None,
) -> Report:
    """Run the base policy on every task of a recipe, and keep the tasks that it solves at least once.

    Use the file in a run with `hindcast start --config`, and in an evaluation with `hindcast eval --tasks`.

    Example: hindcast task select --attempts 16 --out tasks.toml
    """
    from hindcast.actors.curriculum.pool import configured_pool
    from hindcast.app.evaluation.task_selection import held_out_file, select_tasks, settings_file
    from hindcast.app.system.sites import task_sources
    from hindcast.core.errors import SettingsError
    from hindcast.core.models.folders import policy_folder

    settings = resolve(recipe=recipe, overrides=overrides or []).settings
    if out.exists() or held_out_file(out).exists():
        raise SettingsError(f"{out} or {held_out_file(out)} exists; name another file with --out")
    pool = configured_pool(task_sources(settings), settings.curriculum)
    tasks = [task for family in pool.values() for task in family.values()]
    with progress_bar() as bar:
        shown = bar.add_task(count_of(len(tasks), "task"), total=len(tasks) * attempts)
        said: Callable[[int, int], None] = lambda done, _: bar.update(shown, completed=done)  # noqa: E731
        found = asyncio.run(
            select_tasks(
                tasks,
                attempts=attempts,
                held_out=held_out,
                folder=policy_folder(settings.policy.base),
                settings=settings,
                said=said,
            )
        )
    inside, outside = found.names(held_out=False), found.names(held_out=True)
    if not inside:
        raise SettingsError(
            f"none of {len(tasks)} tasks was solved in {attempts} attempts: nothing can be learned from them. Try other "
            "families (--set curriculum.families=…), more attempts, or a policy that was cloned on them first"
        )
    with users_umask(out, home_folder()):
        out.write_text(settings_file(inside, recipe=recipe))
        if outside:
            held_out_file(out).write_text(settings_file(outside, recipe=recipe))
    rows = [
        (one.task, one.successes, one.attempts, "held out" if one.held_out else "yes" if one.kept else "no")
        for one in found.tasks
    ]
    parts = (("in-domain", found.in_domain, inside), ("out-of-domain", found.out_of_domain, outside))
    rates = (
        f"{name}: {count_of(len(listed), 'task')}, {part.rate:.1%} [{part.low:.1%}, {part.high:.1%}] n={part.episodes}"
        for name, part, listed in parts
        if listed
    )
    table = Table(("task", "solved", "of", "kept"), rows, empty="No task.")
    return Report(found, [table, *rates, f"Run: hindcast start --recipe {recipe} --config {out}"])


@task_app.command("solve")
def solve_all(
    environment: Annotated[
        str, typer.Option(help="Environment: store, miniwob, webshop, or a plugin's.")
    ] = "miniwob",
    family: Annotated[list[str] | None, typer.Option(help="Only these families; repeatable.")] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of each family.")] = 20,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting.")
    ] = None,
) -> Report:
    """Play the scripted demonstrators in a real browser and count their successes by family.

    Example: hindcast task solve --environment miniwob --episodes 20
    """
    from hindcast.app.demonstrations.scripted import Solved, opening, solvable, solve

    settings = resolve(overrides=[*(overrides or []), *opening(environment)]).settings
    families = solvable(environment, family or [], settings)

    async def play() -> list[Solved]:
        found: list[Solved] = []
        with progress_bar() as bar:
            task = bar.add_task(environment, total=len(families))
            async for one in solve(environment, families, episodes=episodes, settings=settings):
                found.append(one)
                bar.update(task, advance=1)
        return found

    found = asyncio.run(play())
    return Report(
        {"families": msgspec.to_builtins(found)},
        [
            Table(
                ("family", "won", "n", "steps"),
                [(one.family, one.won, one.episodes, one.mean_steps) for one in found],
                empty="No family.",
            ),
            f"{sum(one.won for one in found)} of {sum(one.episodes for one in found)} episodes won in {len(found)} families",
        ],
    )


curriculum_app = typer.Typer(
    name="curriculum", help="The curriculum: phases and their generated tasks.", no_args_is_help=True
)


@curriculum_app.command("show")
def show_phases(run: SourceName = None, as_of: AsOf = None) -> Report:
    """Show the phases: tasks proposed, admitted and rejected, the critic's values, and the success on the phase's tasks.

    For single tasks with values and reasons: hindcast task list --phase N.

    Example: hindcast curriculum show
    """
    with connect_read_model(run) as connection:
        found = list_phases(connection, as_of=position_at(connection, as_of))
    return Report(
        {"phases": found},
        [
            Table(
                (
                    "phase",
                    "policy",
                    "proposed",
                    "admitted",
                    "rejected",
                    "values",
                    "episodes",
                    "success",
                    "revisits",
                ),
                [
                    (
                        p.phase,
                        p.reference_version,
                        p.proposed,
                        p.admitted,
                        p.rejected,
                        _values(p),
                        p.episodes,
                        rate(p.success),
                        rate(p.revisits),
                    )
                    for p in found
                ],
                empty="No phase has begun yet.",
            )
        ],
    )


def _values(phase: PhaseRow) -> str:
    """Format lowest, median and highest value, and the number of values."""
    if not phase.valued:
        return show(None)
    low, middle, high = map(show, (phase.value_low, phase.value_median, phase.value_high))
    return f"{low} / {middle} / {high} n={phase.valued}"


app = typer.Typer()
app.add_typer(task_app)
app.add_typer(curriculum_app)
