"""What commands print: a command returns a `Report`, and `Output` prints it as text or as JSON.

Text is plain columns without colors, so that a pipe changes nothing. Pages, models and judges wrote much of it; control
characters are removed before it reaches a terminal.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import typer

from hindcast.core.rl.statistics import Interval
from hindcast.core.text.printable import printable

if TYPE_CHECKING:
    from hindcast.storage.readmodel.query_parts import Success

GAP = "  "
NOTHING = "-"


class Table(NamedTuple):
    """Columns as wide as their content, numbers right-aligned."""

    heads: Sequence[str]
    rows: Iterable[Sequence[Any]]
    empty: str = ""
    """Text to print without rows."""

    def lines(self) -> Iterator[str]:
        """The table as lines of text."""
        listed = list(self.rows)
        if not listed:
            yield self.empty
            return
        texts = [list(self.heads), *([printable(show(value)) for value in row] for row in listed)]
        right = [
            all(isinstance(row[i], int | float | None) for row in listed) for i in range(len(self.heads))
        ]
        widths = [max(len(row[i]) for row in texts) for i in range(len(self.heads))]
        for row in texts:
            cells = (
                text.rjust(width) if aligned else text.ljust(width)
                for text, width, aligned in zip(row, widths, right, strict=True)
            )
            yield GAP.join(cells).rstrip()


class Fields(NamedTuple):
    """One name and value per line."""

    pairs: Iterable[tuple[str, Any]]

    def lines(self) -> Iterator[str]:
        """The fields as lines of text."""
        listed = [(name, printable(show(value))) for name, value in self.pairs]
        width = max(len(name) for name, _ in listed)
        for name, value in listed:
            yield f"{name.ljust(width)}{GAP}{value}"


Block = str | Table | Fields
"""A part of a report's text; a string is one line."""


class Report(NamedTuple):
    """The result of a command."""

    data: Any
    """The JSON document that `--json` prints."""
    text: Iterable[Block]
    """Text that is printed without `--json`; with `--json` it is not computed."""
    exit_code: int = 0


class Output:
    """Prints reports on standard output, as text or as JSON. A command that prints several takes it as parameter `output`."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def print(self, report: Report) -> None:
        """Print one JSON document on one line, or text."""
        if self.as_json:
            typer.echo(msgspec.json.encode(report.data).decode())
            return
        for block in report.text:
            for line in (printable(block),) if isinstance(block, str) else block.lines():
                typer.echo(line)


def say(line: str) -> None:
    """Print progress on standard error, so that `--json` stays one document."""
    sys.stderr.write(f"{printable(line)}\n")


def show(value: Any) -> str:
    """Format a value as text on one line."""
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
    """Fit text into one line of `width` characters; an ellipsis marks a cut."""
    line = show(text)
    return line if len(line) <= width else f"{line[: width - 1]}…"


def rate(success: "Success") -> str:
    """Format a rate with its interval and n; a rate is never shown without them."""
    if success.judged == 0:
        return "no verdict"
    return f"{success.rate:.0%} [{success.low:.0%}, {success.high:.0%}] n={success.judged}"


def weighted_rate(weighted: Interval | None, success: "Success | None") -> str | None:
    """Format a rate over families in fixed shares, with its interval and n; None without episodes."""
    if success is None:
        return None
    if weighted is None or success.judged == 0:
        return "no verdict"
    return f"{weighted.rate:.0%} [{weighted.low:.0%}, {weighted.high:.0%}] n={success.judged}"


def moment(unix_ns: int | None) -> str:
    """Format a time in UTC, to the second. `unix_ns`: nanoseconds since 1970."""
    if not unix_ns:
        return NOTHING
    return datetime.fromtimestamp(unix_ns / 1e9, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
