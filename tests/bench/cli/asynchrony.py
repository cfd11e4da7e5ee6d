"""`hindcast bench async`."""

import asyncio
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from msgspec.structs import replace

from bench.cli.printing import comparisons_report
from bench.comparison import Comparison, compare
from hindcast.app.cli.output import Report, say
from hindcast.app.system.home import home_folder

GOAL = 1.5

app = typer.Typer()


@app.command("async")
def asynchrony(
    updates: Annotated[int, typer.Option(min=2, help="Updates of each run.")] = 6,
    repeats: Annotated[int, typer.Option(min=1, help="Pairs of runs per latency.")] = 2,
    latency_ms: Annotated[float, typer.Option(min=0, help="Delay of every page load.")] = 200.0,
    fast_pages: Annotated[bool, typer.Option(help="Report the ratio without delay too.")] = True,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of every run; repeatable."),
    ] = None,
) -> Report:
    """Updates per second of the whole system, beside its own lock-step mode (`learner.max_staleness=0`).

    Real runs of the default recipe on the store with the shipped policy, in turn; time from the first request to the
    last update. With pages at full speed both halves want the same cores: that ratio is reported without a goal.

    Example: hindcast bench async --updates 4 --repeats 1 --no-fast-pages
    """
    latencies = [latency_ms, *([0.0] if fast_pages and latency_ms else [])]
    found = asyncio.run(
        _measure(latencies, updates=updates, repeats=repeats, overrides=tuple(overrides or ()))
    )
    return comparisons_report(found)


async def _measure(
    latencies: list[float], *, updates: int, repeats: int, overrides: tuple[str, ...]
) -> list[Comparison]:
    from bench.asynchrony import measure_pace

    home = home_folder()
    home.mkdir(parents=True, exist_ok=True)
    found: list[Comparison] = []
    with TemporaryDirectory(prefix="bench-async-", dir=home) as folder:
        for latency in latencies:
            words: list[str] = []
            bounds: list[float] = []

            async def rate(
                lock_step: bool,
                latency: float = latency,
                words: list[str] = words,
                bounds: list[float] = bounds,
            ) -> float:
                pace = await measure_pace(
                    Path(folder),
                    updates=updates,
                    latency_ms=latency,
                    lock_step=lock_step,
                    overrides=overrides,
                )
                name = "lock-step" if lock_step else "asynchronous"
                words.append(f"{name}: {pace.describe()}")
                say(words[-1])
                if lock_step:
                    bounds.append(pace.bound)
                return updates / pace.wall_s

            one = await compare(
                lambda rate=rate: rate(False),  # type: ignore[misc]
                lambda rate=rate: rate(True),  # type: ignore[misc]
                figure=f"acting while learning, pages {latency:g} ms late",
                unit="updates/s",
                peer_name="lock-step",
                goal=GOAL if latency else None,
                repeats=repeats,
                said=say,
            )
            bound = fmean(bounds)
            words.append(
                f"lock-step's parts allow a ratio of {bound:.2f} if they share no cores; {one.ratio / bound:.0%} of it"
            )
            found.append(replace(one, detail="; ".join(words)))
    return found
