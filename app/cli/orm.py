"""`hindcast orm accuracy`."""

import asyncio
from collections.abc import Callable
from typing import Annotated

import msgspec
import typer

from hindcast.actors.replay.recorded import EpisodeSelection
from hindcast.app.cli.accuracy import print_accuracy
from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.episode_options import Families, Origin, wanted_of
from hindcast.app.cli.options import Json, SourceName
from hindcast.app.cli.output import print_json
from hindcast.app.evaluation.judge_accuracy import AccuracyReport, measure_accuracy
from hindcast.app.runs.sources import Source, open_source
from hindcast.app.system.judges import open_judge
from hindcast.core.errors import SettingsError
from hindcast.core.rl.combined_state import ORM

app = typer.Typer(
    name="orm",
    help="Measure the outcome reward model that a run trains.",
    no_args_is_help=True,
)


@app.callback()
def orm() -> None:
    """Measure the outcome reward model that a run trains."""


@app.command("accuracy")
def accuracy(
    run: SourceName = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Run with the episodes; by default the run that trains the model."),
    ] = None,
    family: Families = None,
    origin: Origin = None,
    as_json: Json = False,
) -> None:
    """Measure the newest model's accuracy on held-out tasks against the truth in the log.

    Balanced accuracy is the mean of the shares of successes and of failures that the model recognizes.

    Example: hindcast orm accuracy run-1
    """
    wanted = wanted_of(None, None, every=True, family=family, origin=origin, seed=1, usual=None)
    source = open_source(run)
    with progress_bar(as_json=as_json) as bar:
        task = bar.add_task("reading", total=None)
        report = asyncio.run(
            _measure(
                source,
                source if on is None else open_source(on),
                wanted,
                lambda: bar.advance(task),
            )
        )
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        print_accuracy(report)


async def _measure(
    source: Source, on: Source, wanted: EpisodeSelection, said: Callable[[], None]
) -> AccuracyReport:
    """Measure the newest published version of `source`'s model on the held-out episodes of `on`.

    Raises:
        SettingsError: no version was published, or the model may have learned from every task.

    """
    from hindcast.actors.judges.orm import OrmJudge

    learner = source.settings.learner
    if not learner.orm_held_out:
        raise SettingsError(
            f"run {source.name} holds no task out (learner.orm_held_out = 0): the model learned from all of them"
        )
    async with open_judge(ORM, source, source.settings) as judge:
        assert isinstance(judge, OrmJudge)
        if judge.version is None:
            raise SettingsError(
                f"run {source.name} has published no outcome reward model yet, or has deleted its weights. Set "
                f"learner.orm_every, and judge.judges to name {ORM} and {learner.orm_truth}; then: hindcast log stats "
                f"{source.name}"
            )
        return await measure_accuracy(
            judge,
            on,
            wanted,
            truth=learner.orm_truth,
            run=source.name,
            held_out=learner.orm_held_out,
            timeout_s=source.settings.judge.timeout_s,
            said=said,
        )
