"""`hindcast bench starts`."""

from statistics import fmean
from typing import Annotated

import typer

from bench.cli.printing import machine
from bench.comparison import interval_of_mean
from bench.starts import KILLED, Start, measure_start
from hindcast.app.cli.output import Report, Table, say
from hindcast.core.scratch import scratch_folder

app = typer.Typer()


@app.command("starts")
def starts(
    repeats: Annotated[int, typer.Option(min=1, help="How often the system is started.")] = 3,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the run; repeatable.")
    ] = None,
) -> Report:
    """Time, processor time and memory until a whole system works, and time until a killed actor and learner work again.

    Example: hindcast bench starts --repeats 5
    """
    found = []
    for _ in range(repeats):
        with scratch_folder() as home:
            found.append(measure_start(home, overrides or [], say))
    return Report(
        {"machine": machine(), "starts": found},
        [
            Table(("what", "mean", "95 %", "n"), _rows(found), empty="nothing was measured"),
            machine(),
        ],
    )


def _rows(found: list[Start]) -> list[tuple[str, ...]]:
    figures = {
        "every process ready, s": [one.ready_s for one in found],
        "processor time until then, s": [one.cpu_s for one in found],
        "memory then, MiB (PSS)": [one.memory_mib for one in found],
        **{f"{name} ready after kill -9, s": [one.again_s[name] for one in found] for name in KILLED},
    }
    rows: list[tuple[str, ...]] = []
    for name, values in figures.items():
        low, high = interval_of_mean(values)
        rows.append((name, f"{fmean(values):.1f}", f"[{low:.1f}, {high:.1f}]", str(len(values))))
    return rows
