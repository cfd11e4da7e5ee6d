"""`hindcast bench profile`."""

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.printing import machine
from bench.profile import SETTLED_S, measure_shares
from hindcast.app.cli.output import Report, Table, say
from hindcast.core.scratch import scratch_folder

LEAST = 0.001
"""Share of a core below which a process is not listed."""

app = typer.Typer()


@app.command("profile")
def profile(
    minutes: Annotated[float, typer.Option(min=0.2, help="How long the running system is measured.")] = 3.0,
    paused: Annotated[
        bool, typer.Option("--paused", help="Measure a paused run: what waiting costs.")
    ] = False,
    flames: Annotated[
        Path | None, typer.Option(help="Folder for a flame graph of each worker; needs py-spy.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the run; repeatable.")
    ] = None,
) -> Report:
    """Where the processor time of a default run goes, process by process.

    Example: hindcast bench profile --minutes 3 --flames flames
    """
    with scratch_folder() as home:
        found = measure_shares(
            home, minutes=minutes, overrides=overrides or [], paused=paused, flames=flames, say=say
        )
    total = sum(one.cpu_s for one in found) or 1.0
    return Report(
        {"machine": machine(), "minutes": minutes, "processes": found},
        [
            Table(
                ("process", "processor time, s", "of a core", "of all"),
                [
                    (one.process, f"{one.cpu_s:.1f}", f"{one.of_a_core:.1%}", f"{one.cpu_s / total:.0%}")
                    for one in found
                    if one.of_a_core >= LEAST
                ],
                empty="no process took any time",
            ),
            f"{machine()}; {total:.0f} s of processor time in {minutes:g} minutes, begun {SETTLED_S:.0f} s after the start",
        ],
    )
