"""The command line as a benchmark starts it, which must be the one that is measured."""

import sys
from pathlib import Path

SOURCES = Path(__file__).parents[2]
MAIN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from app.cli import main; main()"


def hindcast(*arguments: str) -> list[str]:
    """`hindcast` with these arguments out of our own source tree, in whatever folder it is started.

    A child would otherwise import what is installed in the environment, or what lies in its folder.
    """
    return [sys.executable, "-c", MAIN, str(SOURCES), *arguments]
