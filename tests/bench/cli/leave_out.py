"""`hindcast bench why`."""

import asyncio
from typing import Annotated

import typer

from hindcast.app.cli.options import RunName
from hindcast.app.cli.output import Report, Table, say
from hindcast.app.runs.runs import open_run
from hindcast.core.fast_import import loading

app = typer.Typer()


@app.command("why")
def why(
    family: Annotated[str, typer.Argument(metavar="FAMILY", help="The family whose success is asked about.")],
    run: RunName = None,
    cases: Annotated[
        int, typer.Option(min=1, help="Families to leave out: those with the largest pulls.")
    ] = 5,
    tasks: Annotated[int, typer.Option(min=2, help="Held-out tasks that every policy plays.")] = 200,
) -> Report:
    """Whether leaving data out does what `hindcast why` says that the data did.

    Asks which families moved FAMILY, leaves each out with `hindcast without --plan keep`, and plays held-out tasks. The derived
    runs stay next to the run.

    Example: hindcast bench why store/buy run-1 --cases 5
    """
    handle = open_run(run)
    with loading():
        from bench.leave_out import confirm  # loads torch, so only now
    found = asyncio.run(confirm(handle, family, cases=cases, tasks=tasks, said=say))
    agreeing = sum(case.agrees for case in found.cases)
    sure = [case for case in found.cases if case.is_sure]
    return Report(
        found,
        [
            Table(
                ("left out", "episodes", "pull, points", "left out, points", "95 %", "agrees"),
                [
                    (
                        case.family,
                        case.episodes,
                        f"{100 * case.pull:+.2f}",
                        f"{100 * case.effect.difference:+.1f}",
                        f"[{100 * case.effect.low:+.1f}, {100 * case.effect.high:+.1f}]",
                        "yes" if case.agrees else "no",
                    )
                    for case in found.cases
                ],
            ),
            "",
            f"direction agrees in {agreeing} of {len(found.cases)}; of the {len(sure)} whose interval leaves 0 out, in "
            f"{sum(case.agrees for case in sure)}",
        ],
    )
