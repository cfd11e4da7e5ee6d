"""`hindcast bench`: benchmarks against peers, loaded from the repository's tests/bench; the installed package lacks them."""

import sys
from pathlib import Path

import typer

from hindcast.core.errors import HindcastError

TESTS = Path(__file__).resolve().parents[2] / "tests"


class BenchmarksMissing(HindcastError):
    """The installed package lacks the benchmarks, which are in the repository's folder `tests`."""


def _load() -> typer.Typer:
    if not (TESTS / "bench" / "cli" / "__init__.py").exists():
        missing = typer.Typer(name="bench", invoke_without_command=True)

        @missing.callback(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
        def refuse() -> None:
            """Benchmarks against peers; only in a checkout of the repository."""
            raise BenchmarksMissing(
                f"benchmarks are not installed with the package: {TESTS / 'bench'} does not exist. "
                "Clone the repository and run `hindcast bench` from its environment (make setup)"
            )

        return missing
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))
    from bench.cli import app as benchmarks

    return benchmarks


app = _load()
