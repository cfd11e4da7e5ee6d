"""`hindcast orm accuracy`."""

import asyncio
from typing import Annotated

import msgspec
import typer

from app.cli.bars import progress_bar
from app.cli.options import Json, SourceName
from app.cli.output import print_json, print_table, print_text
from app.cli.selecting import Families, Origin, wanted_of
from app.orm_accuracy import AccuracyReport, measure_accuracy
from app.sources import open_source
from core.agreement import Confusion, of_failures, of_successes
from core.statistics import Interval

app = typer.Typer(
    name="orm",
    help="The outcome reward model: the judge that a run trains itself.",
    no_args_is_help=True,
)


@app.callback()
def orm() -> None:
    """The outcome reward model: the judge that a run trains itself."""


@app.command("accuracy")
def accuracy(
    run: SourceName = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Whose episodes; by default those of the run whose model it is."),
    ] = None,
    family: Families = None,
    origin: Origin = None,
    as_json: Json = False,
) -> None:
    """How often the newest model is right about episodes of tasks that it never learned from, by the truth in the log.

    Balanced accuracy is the mean of two shares: of the successes, and of the failures, that it calls so.

    Example: hindcast orm accuracy run-1
    """
    wanted = wanted_of(None, None, every=True, family=family, origin=origin, seed=1, usual=None)
    source = open_source(run)
    with progress_bar(as_json=as_json) as bar:
        task = bar.add_task("reading", total=None)
        report = asyncio.run(
            measure_accuracy(
                source,
                source if on is None else open_source(on),
                wanted,
                said=lambda: bar.advance(task),
            )
        )
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        _print_report(report)


def _print_report(report: AccuracyReport) -> None:
    table = report.table
    print_table(
        (f"{report.truth} \\ {report.judge}", "success", "failure"),
        [
            ("success", table.hits, table.misses),
            ("failure", table.false_alarms, table.rejections),
        ],
        empty="",
    )
    print_text("")
    print_table(
        ("family", "n", "successes found", "failures found"),
        [(name, one.total, *_shares(one)) for name, one in report.by_family.items()],
        empty="No episode of a held-out task was judged by both.",
    )
    print_text("")
    print_text(f"successes found {_share(report.successes_found, table.successes)}")
    print_text(f"failures found  {_share(report.failures_found, table.failures)}")
    print_text(
        f"plain accuracy  {_share(report.accuracy, table.total)}; always the commoner answer: {report.majority:.1%}"
    )
    balanced = "not defined: one outcome is missing" if report.balanced is None else _band(report.balanced)
    print_text(f"balanced accuracy {balanced}; always the same answer: 50.0%")
    print_text(
        f"run {report.run}: {report.judge} on {report.episodes} episodes of {report.tasks} held-out tasks of {report.on} "
        f"({report.held_out:.0%} of all tasks); {report.undecided} undecided"
    )


def _shares(table: Confusion) -> tuple[str, str]:
    return _share(of_successes(table), table.successes), _share(of_failures(table), table.failures)


def _share(interval: Interval, n: int) -> str:
    return f"{_band(interval)} n={n}" if n else "none"


def _band(interval: Interval) -> str:
    return f"{interval.rate:.1%} [{interval.low:.1%}, {interval.high:.1%}]"
