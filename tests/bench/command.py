"""The command line as a benchmark starts it, which must be the one that is measured."""

import sys

MAIN = "from hindcast.app.cli import main; main()"


def hindcast(*arguments: str) -> list[str]:
    """`hindcast` with these arguments, in the environment of this process."""
    return [sys.executable, "-P", "-c", MAIN, *arguments]
