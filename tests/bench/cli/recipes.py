"""`hindcast bench recipes`."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from bench.cli.printing import machine
from hindcast.app.cli.output import Report, say
from hindcast.app.system.home import home_folder
from hindcast.core.errors import SettingsError

app = typer.Typer()


@app.command("recipes")
def bench_recipes(
    only: Annotated[
        Literal["pairs", "ablations", "all"], typer.Option(help="Which claims' rows are run.")
    ] = "pairs",
    rows: Annotated[
        list[str] | None, typer.Option("--row", help="A row of the table, instead; repeatable.")
    ] = None,
    seeds: Annotated[
        list[int] | None, typer.Option("--seed", help="Run seed; repeatable. Default: the reported ones.")
    ] = None,
    tuning: Annotated[
        bool, typer.Option("--tuning", help="The tuning seeds instead of the reported.")
    ] = False,
    table_file: Annotated[
        Path | None, typer.Option("--table", help="Another table than the repository's.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Run nothing: what the results kept so far say.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where runs and results are kept. Default: bench-recipes in the home.")
    ] = None,
) -> Report:
    """The published systems head to head from one base policy. Goes on where it was cut off, over days if need be.

    A row that does not come to its updates within the table's minutes is told at the end; the next start goes on with it.

    Example: hindcast bench recipes --row sft --row webrl --seed 31
    """
    from bench.loop import LoopFailed
    from bench.recipes.config import load_table
    from bench.recipes.picture import curves
    from bench.recipes.report import report
    from bench.recipes.results import Result, Results
    from bench.recipes.running import identity_of, run_row

    table = load_table(table_file)
    if unknown := sorted(set(rows or ()) - {row.name for row in table.rows}):
        raise SettingsError(
            f"the table has no row {', '.join(unknown)}; it has {', '.join(row.name for row in table.rows)}"
        )
    chosen_seeds = tuple(seeds or (table.tuning_seeds if tuning else table.reported_seeds))
    claims = {"pairs": table.pairs, "ablations": table.ablations, "all": (*table.pairs, *table.ablations)}
    chosen = table.claimed(claims[only])
    if rows:
        chosen = tuple(row for row in table.rows if row.name in rows)
    root = folder or home_folder() / "bench-recipes"
    results = Results(root / "results")
    unfinished: list[str] = []
    for seed in () if show else chosen_seeds:
        for number, row in enumerate(chosen, start=1):
            say(f"seed {seed}, row {number} of {len(chosen)}: {row.name}")
            try:
                asyncio.run(run_row(table, row, seed=seed, folder=root, results=results, say=say))
            except LoopFailed as error:
                unfinished.append(f"{row.name}, seed {seed}: {error}")
                say(f"not finished, going on with the others: {error}")
    found: dict[tuple[str, int], Result] = {}
    for row in table.rows:
        known = identity_of(table, row)
        for seed in chosen_seeds:
            if (result := results.find(row.name, seed, known)) is not None:
                found[row.name, seed] = result
    text = report(table, found, chosen_seeds)
    root.mkdir(parents=True, exist_ok=True)
    (root / "report.md").write_text(text)
    by_row = [
        (row.name, [found[row.name, s] for s in chosen_seeds if (row.name, s) in found]) for row in table.rows
    ]
    (root / "curves.svg").write_text(curves(by_row))
    return Report(
        {"machine": machine(), "results": [*found.values()], "unfinished": unfinished},
        [
            text,
            *(f"Not finished: {line}" for line in unfinished),
            f"Written to {root / 'report.md'}, learning curves to {root / 'curves.svg'}; {machine()}",
        ],
    )
