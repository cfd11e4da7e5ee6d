"""`hindcast bench loop`."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from bench.cli.printing import machine
from hindcast.app.cli.output import Block, Report, Table, say
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.home import home_folder
from hindcast.core.errors import SettingsError

if TYPE_CHECKING:
    from bench.loop import SeedReport

app = typer.Typer()

REPORTED_SEEDS = (101, 102, 103)
"""Run seeds of reported figures. Tuning used others, and evaluation tasks that none of these meets."""


@app.command("loop")
def bench_loop(
    seeds: Annotated[
        list[int] | None,
        typer.Option("--seed", help="Run seed; repeatable. Default: the three reported ones."),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.5, help="Training of each seed.")] = 20.0,
    updates: Annotated[
        int | None, typer.Option(min=1, help="End the training after so many, if that is sooner.")
    ] = None,
    episodes: Annotated[int, typer.Option(min=10, help="Episodes of each measurement, at least.")] = 320,
    points: Annotated[
        int, typer.Option(min=1, help="Versions measured along the way, the last included.")
    ] = 4,
    temperature: Annotated[float, typer.Option(min=0.0, help="Of the evaluation; 0 is greedy.")] = 0.0,
    recipe: Annotated[str, typer.Option(help="What is trained with.")] = "mgrpo",
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; repeatable.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where the runs are kept; a new folder. Default: bench-loop in the home."),
    ] = None,
) -> Report:
    """Success before and after training, on unseen tasks, for several seeds: does the loop learn?

    Example: hindcast bench loop --seed 101 --minutes 10
    """
    from bench.loop import run_seed
    from hindcast.app.system.sites import task_sources

    settings = resolve(recipe=recipe, overrides=overrides or []).settings
    if not settings.curriculum.families:
        raise SettingsError(
            f"recipe {recipe} names no families to measure. Name some: --set 'curriculum.families=[\"store/buy\"]'"
        )
    root = folder or home_folder() / "bench-loop"
    reports = []
    for seed in seeds or REPORTED_SEEDS:
        home = root / f"seed-{seed}"
        if home.exists():
            raise SettingsError(
                f"{home} holds an earlier run of this benchmark. Remove it or give another --folder."
            )
        report = asyncio.run(
            run_seed(
                seed,
                recipe=recipe,
                settings=settings,
                sources=task_sources(settings),
                overrides=overrides or [],
                minutes=minutes,
                updates=updates,
                episodes=episodes,
                points=points,
                temperature=temperature,
                home=home,
                say=say,
            )
        )
        (home / "report.json").write_text(json.dumps(msgspec.to_builtins(report), indent=1))
        reports.append(report)
    return Report({"machine": machine(), "seeds": reports}, _text(reports))


def _text(reports: "Sequence[SeedReport]") -> Iterator[Block]:
    yield Table(
        (
            "seed",
            "before",
            "95 %",
            "after",
            "95 %",
            "gain",
            "apart",
            "significant after",
            "updates",
            "episodes",
            "mastered",
        ),
        [
            (
                report.seed,
                f"{report.before.rate:.1%}",
                f"[{report.before.low:.1%}, {report.before.high:.1%}]",
                f"{report.after.rate:.1%}",
                f"[{report.after.low:.1%}, {report.after.high:.1%}]",
                f"{100 * report.gain:+.1f}",
                report.apart,
                "-" if report.significant_after is None else f"{report.significant_after:.1f} min",
                report.updates,
                report.training_episodes,
                f"{report.mastered_before.rate:.0%} -> {report.mastered_after.rate:.0%}",
            )
            for report in reports
        ],
        empty="no seed was run",
    )
    families = sorted({family for report in reports for family in report.before.by_task})
    yield Table(
        ("family", *(f"seed {report.seed}" for report in reports)),
        [
            (
                family,
                *(
                    f"{report.before.by_task[family].rate:.0%} -> {report.after.by_task[family].rate:.0%}"
                    for report in reports
                ),
            )
            for family in families
        ],
        empty="no family was measured",
    )
    for report in reports:
        yield (
            f"seed {report.seed}: log of {report.events} events, sha256 chain {report.log_digest[:16]}…, in {report.home}"
        )
    yield (f"n = {reports[0].before.episodes} episodes each; {machine()}")
