"""`hindcast judge accuracy`."""

import asyncio
from collections.abc import Callable
from typing import Annotated

import msgspec
import typer

from hindcast.actors.judges.registry import judge_names
from hindcast.actors.replay.recorded import EpisodeSelection
from hindcast.app.cli.accuracy import print_accuracy
from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.episode_options import Episodes, Families, Origin, Seed, wanted_of
from hindcast.app.cli.options import EndpointValues, Json, SourceName
from hindcast.app.cli.output import print_json
from hindcast.app.evaluation.judge_accuracy import AT_ONCE, AccuracyReport, measure_accuracy
from hindcast.app.runs.sources import Source, open_source
from hindcast.app.settings.endpoint_overrides import asked_at_once, asked_settings
from hindcast.app.system.judges import open_judge
from hindcast.core.errors import SettingsError
from hindcast.core.rl.combined_state import ORM
from hindcast.core.settings.schema import Settings

app = typer.Typer(name="judge", help="Measure the accuracy of judges.", no_args_is_help=True)


@app.callback()
def judge() -> None:
    """Measure the accuracy of judges."""


@app.command("accuracy")
def accuracy(
    name: Annotated[str, typer.Argument(metavar="JUDGE", help=f"The judge: {', '.join(judge_names())}.")],
    run: SourceName = None,
    truth: Annotated[
        str, typer.Option(metavar="JUDGE", help="Judge whose verdicts in the log are the truth.")
    ] = "rules",
    episodes: Episodes = None,
    family: Families = None,
    origin: Origin = None,
    seed: Seed = 1,
    overrides: EndpointValues = None,
    as_json: Json = False,
) -> None:
    """Measure a judge's accuracy on a run's episodes against the truth in the log; appends nothing.

    Balanced accuracy is the mean of the shares of successes and of failures that the judge recognizes.

    Example: hindcast judge accuracy endpoint run-1 --episodes 200
    """
    if name == ORM:
        raise SettingsError(
            "the judge orm learned from this run's episodes, so that only held-out tasks can measure it. Run: hindcast orm accuracy"
        )
    wanted = wanted_of(None, episodes, every=False, family=family, origin=origin, seed=seed, usual=None)
    source = open_source(run)
    settings = asked_settings(source.settings, overrides or [])
    with progress_bar(as_json=as_json) as bar:
        task = bar.add_task("judging", total=wanted.sample)
        report = asyncio.run(
            _measure(name, source, wanted, settings, truth=truth, said=lambda: bar.advance(task))
        )
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        print_accuracy(report)


async def _measure(
    name: str,
    source: Source,
    wanted: EpisodeSelection,
    settings: Settings,
    *,
    truth: str,
    said: Callable[[], None],
) -> AccuracyReport:
    async with open_judge(name, source, settings) as judge:
        return await measure_accuracy(
            judge,
            source,
            wanted,
            truth=truth,
            run=source.name,
            held_out=None,
            timeout_s=settings.judge.timeout_s,
            at_once=asked_at_once(settings, usual=AT_ONCE),
            said=said,
        )
