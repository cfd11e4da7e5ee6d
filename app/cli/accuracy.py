"""Prints a judge's accuracy report."""

from hindcast.app.cli.output import print_table, print_text
from hindcast.app.evaluation.judge_accuracy import AccuracyReport
from hindcast.core.rl.confusion import Confusion, of_failures, of_successes
from hindcast.core.rl.statistics import Interval


def print_accuracy(report: AccuracyReport) -> None:
    """Print the confusion table, the table by family, and the accuracy figures."""
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
        empty="No episode was judged by both.",
    )
    print_text("")
    print_text(f"successes found {_share(report.successes_found, table.successes)}")
    print_text(f"failures found  {_share(report.failures_found, table.failures)}")
    commoner = "" if report.majority is None else f"; always the commoner answer: {report.majority:.1%}"
    print_text(f"plain accuracy  {_share(report.accuracy, table.total)}{commoner}")
    balanced = "not defined: one outcome is missing" if report.balanced is None else band(report.balanced)
    print_text(f"balanced accuracy {balanced}; always the same answer: 50.0%")
    held_out = "" if report.held_out is None else f" held-out ({report.held_out:.0%} of all)"
    why = ", ".join(f"{reason} {count}" for reason, count in report.undecided_because.items())
    print_text(
        f"run {report.run}: {report.judge} on {report.episodes} episodes of {report.tasks}{held_out} tasks of {report.on}; "
        f"{report.undecided} undecided{f' ({why})' if why else ''}"
    )
    if report.prompt_tokens or report.answer_tokens:
        print_text(
            f"asked: {report.prompt_tokens} prompt tokens, {report.answer_tokens} answer tokens, {report.cost_usd:.4f} dollars now"
        )


def _shares(table: Confusion) -> tuple[str, str]:
    return _share(of_successes(table), table.successes), _share(of_failures(table), table.failures)


def _share(interval: Interval | None, n: int) -> str:
    return f"{band(interval)} n={n}"


def band(interval: Interval | None) -> str:
    """A rate with its interval; `not defined` without one."""
    if interval is None:
        return "not defined"
    return f"{interval.rate:.1%} [{interval.low:.1%}, {interval.high:.1%}]"
