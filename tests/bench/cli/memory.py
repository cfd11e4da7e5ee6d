"""`hindcast bench memory`."""

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.printing import machine
from bench.memory import BLOCKS, Growth, growths, to_csv
from bench.memory_run import EVERY_S, watch_memory
from hindcast.app.cli.output import Report, Table, say
from hindcast.app.system.home import home_folder, users_umask
from hindcast.core.errors import SettingsError
from hindcast.core.scratch import scratch_folder

WARM_UP_SHARE = 1 / 6

app = typer.Typer()


@app.command("memory")
def memory(
    minutes: Annotated[float, typer.Option(help="How long the system runs.")] = 60.0,
    warm_up: Annotated[
        float | None, typer.Option(help="Minutes left out at the beginning; default: a sixth of the run.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the run; repeatable.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write all samples to this file.")] = None,
) -> Report:
    """Memory of every process of a whole system over time, and its slope: flat, growing, or too short a run to tell.

    Example: hindcast bench memory --minutes 60 --csv memory.csv
    """
    warm_up_s = 60 * (minutes * WARM_UP_SHARE if warm_up is None else warm_up)
    if minutes * 60 - warm_up_s < 2 * BLOCKS * EVERY_S:
        raise SettingsError(
            f"--minutes {minutes:g} leaves {minutes - warm_up_s / 60:.2g} after the warm-up; at least "
            f"{2 * BLOCKS * EVERY_S / 60:g} are needed for a slope"
        )
    with scratch_folder() as home:
        samples = watch_memory(home, minutes=minutes, overrides=overrides or [], said=say)
    if csv is not None:
        with users_umask(csv, home_folder()):
            csv.write_text(to_csv(samples))
    found = growths(samples, warm_up_s=warm_up_s)
    return Report(
        {"machine": machine(), "minutes": minutes, "processes": found},
        [
            Table(
                (
                    "process",
                    "MiB, first",
                    "last",
                    "peak",
                    "MiB/hour, 95 %",
                    "verdict",
                    "restarts",
                    "over time",
                ),
                [_row(one) for one in found],
                empty="no process was there all the time",
            ),
            f"{machine()}; {minutes:g} minutes, the first {warm_up_s / 60:.2g} left out, "
            f"{len(samples)} samples (resident)",
        ],
    )


def _row(one: Growth) -> tuple[str, ...]:
    return (
        one.process,
        f"{one.first_mib:.1f}",
        f"{one.last_mib:.1f}",
        f"{one.peak_mib:.1f}",
        f"{one.slope:+.1f} [{one.low:+.1f}, {one.high:+.1f}]",
        one.verdict,
        str(one.restarts),
        one.shape,
    )
