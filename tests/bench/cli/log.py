"""`hindcast bench log`."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer
import uvloop

from bench.cli.printing import comparisons_report, machine
from hindcast.app.cli.output import Report, say
from hindcast.app.system.home import home_folder

app = typer.Typer()


@app.command("log")
def log(
    repeats: Annotated[int, typer.Option(min=1, help="Pairs of measurements per comparison.")] = 7,
    appended: Annotated[int, typer.Option(min=100, help="Events appended each time.")] = 8000,
    read: Annotated[int, typer.Option(min=100, help="Events of the log that is read.")] = 30_000,
    inserted: Annotated[int, typer.Option(min=10, help="Events the peer saves one by one.")] = 200,
    folder: Annotated[
        Path | None,
        typer.Option(help="On the disk that is measured; emptied of it afterwards. Default: the home."),
    ] = None,
) -> Report:
    """Appending durably and reading back checked, beside the raw broker and another event store.

    Example: hindcast bench log --repeats 3 --appended 4000
    """
    from bench.log import Sizes, measure_log

    home = home_folder()
    (folder or home).mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="bench-log-", dir=folder or home) as where:
        report = uvloop.run(
            measure_log(
                Path(where),
                home=home,
                sizes=Sizes(appended=appended, read=read, inserted=inserted),
                repeats=repeats,
                said=say,
            )
        )
    costs = ", ".join(f"{name} {cost:.0f}" for name, cost in report.cpu_us.items())
    return Report(
        {"machine": machine(), **msgspec.to_builtins(report)},
        [
            *comparisons_report(report.comparisons).text,
            f"processor time in µs per event, client and broker together: {costs}",
            f"tail: an event is in a following reader's hands {report.latency.p50_ms:+.2f} ms (p50), "
            f"{report.latency.p99_ms:+.2f} ms (p99) after its acknowledgement, n = {report.latency.events}",
            f"disk alone: {report.synced_blocks_per_s:,.0f} blocks/s of {report.block_bytes / 1024:.0f} KiB, a mean batch, "
            "written and synced",
        ],
    )
