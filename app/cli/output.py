"""Output of commands: one JSON document, or plain text in columns, without colors, so that a pipe changes nothing.

Pages, models and judges wrote much of the text; control characters are removed before it reaches a terminal.
"""

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import typer

from hindcast.core.rl.statistics import Interval
from hindcast.core.text.printable import printable
from hindcast.storage.readmodel.results import Success

GAP = "  "
NOTHING = "-"


def print_json(value: Any) -> None:
    """Print one JSON document on one line."""
    typer.echo(msgspec.json.encode(value).decode())


def print_text(text: str) -> None:
    """Print a line of text."""
    typer.echo(printable(text))


def say(line: str) -> None:
    """Print progress on standard error, so that `--json` stays one document."""
    sys.stderr.write(f"{printable(line)}\n")


def print_table(heads: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """Print columns as wide as their content, numbers right-aligned. `empty`: text to print without rows."""
    listed = list(rows)
    if not listed:
        typer.echo(empty)
        return
    texts = [list(heads), *([printable(show(value)) for value in row] for row in listed)]
    right = [all(isinstance(row[i], int | float | None) for row in listed) for i in range(len(heads))]
    widths = [max(len(row[i]) for row in texts) for i in range(len(heads))]
    for row in texts:
        cells = (
            text.rjust(width) if aligned else text.ljust(width)
            for text, width, aligned in zip(row, widths, right, strict=True)
        )
        typer.echo(GAP.join(cells).rstrip())


def print_fields(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print one name and value per line."""
    listed = [(name, printable(show(value))) for name, value in pairs]
    width = max(len(name) for name, _ in listed)
    for name, value in listed:
        typer.echo(f"{name.ljust(width)}{GAP}{value}")


def show(value: Any) -> str:
    """A value as readable text on one line."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {show(item)}" for name, item in value.items()) or NOTHING
    return " ".join(str(value).split())


def shorten(text: str | None, width: int) -> str:
    """Text on one line, cut to a width and marked with an ellipsis if it was cut."""
    line = show(text)
    return line if len(line) <= width else f"{line[: width - 1]}…"


def rate(success: Success) -> str:
    """A rate with its interval and n; a rate is never shown alone."""
    if success.judged == 0:
        return "no verdict"
    return f"{success.rate:.0%} [{success.low:.0%}, {success.high:.0%}] n={success.judged}"


def weighted_rate(weighted: Interval | None, success: Success | None) -> str | None:
    """A rate over families in fixed shares, with its interval and n; None without episodes."""
    if success is None:
        return None
    if weighted is None or success.judged == 0:
        return "no verdict"
    return f"{weighted.rate:.0%} [{weighted.low:.0%}, {weighted.high:.0%}] n={success.judged}"


def moment(unix_ns: int | None) -> str:
    """A time in UTC to the second."""
    if not unix_ns:
        return NOTHING
    return datetime.fromtimestamp(unix_ns / 1e9, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
