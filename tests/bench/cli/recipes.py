"""`hindcast bench recipes`."""

import asyncio
import time
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
        Literal["claims", "ablations", "all"], typer.Option(help="Which claims' rows are run.")
    ] = "claims",
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--row", help="A row of the table, with those that it begins with, instead; repeatable."
        ),
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
    power: Annotated[
        bool, typer.Option("--power", help="Run nothing: how likely each claim's interval is to exclude 1.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where runs are kept. Default: bench-recipes in the home.")
    ] = None,
    results_folder: Annotated[
        Path | None, typer.Option("--results", help="Where results are kept. Default: beside the table.")
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(help="Folder for report.md, claims.svg and curves.svg. Default: that of the runs."),
    ] = None,
) -> Report:
    """The published systems head to head, on the same unseen tasks. Goes on where it was cut off, over days if need be.

    Seed by seed, so that the arms of a seed share a checkpoint. Every finished row is a file beside the table.

    A row that does not come to its updates within the table's minutes is told at the end; the next start goes on with it.

    Example: hindcast bench recipes --row webrl --seed 31
    """
    from bench.recipes.config import load_table
    from bench.recipes.picture import curves, forest
    from bench.recipes.report import findings, power_report, report
    from bench.recipes.results import KEPT, Results
    from bench.recipes.running import Runner
    from bench.recipes.training_run import TrainingFailed

    table = load_table(table_file)
    if unknown := sorted(set(rows or ()) - {row.name for row in table.rows}):
        raise SettingsError(
            f"the table has no row {', '.join(unknown)}; it has {', '.join(row.name for row in table.rows)}"
        )
    if power:
        text = power_report(table)
        return Report({"power": text}, [text])
    chosen_seeds = tuple(seeds or (table.tuning_seeds if tuning else table.reported_seeds))
    claims = {"claims": table.claims, "ablations": table.ablations, "all": (*table.claims, *table.ablations)}
    root = folder or home_folder() / "bench-recipes"
    runner = Runner(table, folder=root, results=Results(results_folder or KEPT), say=say)
    unfinished: list[str] = []
    for seed in () if show else chosen_seeds:
        chosen = table.with_parents(set(rows)) if rows else table.claimed(claims[only], seed=seed)
        for number, row in enumerate(chosen, start=1):
            say(f"seed {seed}, row {number} of {len(chosen)}: {row.name}")
            began = time.monotonic()
            try:
                asyncio.run(runner.run(row, seed=seed))
            except TrainingFailed as error:
                unfinished.append(f"{row.name}, seed {seed}: {error}")
                say(f"not finished, going on with the others: {error}")
            say(f"{row.name}, seed {seed}: {(time.monotonic() - began) / 60:.1f} min")
    found = {
        (row.name, seed): result
        for row in table.rows
        for seed in chosen_seeds
        if (result := runner.kept(row, seed)) is not None
    }
    text = report(table, found, chosen_seeds)
    kept = write or root
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "report.md").write_text(text)
    by_row = [
        (row.name, [found[row.name, s] for s in chosen_seeds if (row.name, s) in found]) for row in table.rows
    ]
    primary = table.temperatures[0]
    (kept / "curves.svg").write_text(curves(by_row, temperature=primary))
    stand = findings(table, (*table.claims, *table.ablations), found, chosen_seeds, temperature=primary)
    (kept / "claims.svg").write_text(forest(stand))
    return Report(
        {"machine": machine(), "results": [*found.values()], "unfinished": unfinished},
        [
            text,
            *(f"Not finished: {line}" for line in unfinished),
            f"Written to {kept}: report.md, claims.svg, curves.svg; {machine()}",
        ],
    )
