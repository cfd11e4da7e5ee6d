"""`hindcast relabel accuracy`."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from hindcast.actors.published_versions import PublishedVersions
from hindcast.actors.replay.recorded import EpisodeSelection
from hindcast.app.cli.accuracy import band
from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.episode_options import Families, Origin, wanted_of
from hindcast.app.cli.options import EndpointValues, Json, SourceName
from hindcast.app.cli.output import print_json, print_table, print_text
from hindcast.app.evaluation.relabel_accuracy import RelabelReport, measure_relabeler
from hindcast.app.runs.sources import Source, open_source
from hindcast.app.settings.endpoint_overrides import asked_settings
from hindcast.app.system.relabelers import LEARNED, open_relabeler
from hindcast.core.errors import SettingsError
from hindcast.core.settings.endpoint import ENDPOINT
from hindcast.core.settings.schema import Settings
from hindcast.core.text.nearest import advice

app = typer.Typer(name="relabel", help="Measure the accuracy of relabelers.", no_args_is_help=True)
KINDS = ("rules", ENDPOINT, LEARNED)


@app.callback()
def relabel() -> None:
    """Measure the accuracy of relabelers."""


@app.command("accuracy")
def accuracy(
    run: SourceName = None,
    relabeler: Annotated[
        str | None, typer.Option(help=f"The relabeler: {', '.join(KINDS)}; by default the run's own.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Run with the episodes; by default the run of the relabeler."),
    ] = None,
    family: Families = None,
    origin: Origin = "online",
    overrides: EndpointValues = None,
    as_json: Json = False,
) -> None:
    """Measure a relabeler on the store's episodes of held-out tasks, against the goals that the store knows were achieved.

    Precision: share of achieved goals among the named. Recall: share of found goals among those that the rules list. Balanced
    accuracy is over steps: the mean of the shares of goal-achieving and of other steps that the relabeler recognizes.

    Example: hindcast relabel accuracy run-1 --relabeler learned
    """
    wanted = wanted_of(None, None, every=True, family=family, origin=origin, seed=1, usual=None)
    source = open_source(run)
    settings = asked_settings(source.settings, overrides or [])
    kind = relabeler or settings.relabeler.kind
    if kind not in KINDS:
        raise SettingsError(f"there is no relabeler {kind!r}; {advice(kind, KINDS)}. Name one by --relabeler")
    named = settings.model_copy(update={"relabeler": settings.relabeler.model_copy(update={"kind": kind})})
    with progress_bar(as_json=as_json) as bar:
        task = bar.add_task("relabelling", total=None)
        report = asyncio.run(
            _measure(
                source,
                source if on is None else open_source(on),
                named,
                wanted,
                lambda: bar.advance(task),
            )
        )
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        print_relabel_report(report)


async def _measure(
    source: Source, on: Source, settings: Settings, wanted: EpisodeSelection, said: Callable[[], None]
) -> RelabelReport:
    """Measure the relabeler that the settings name, in its newest version if the run trains it.

    Raises:
        SettingsError: no version was published, or the relabeler may have learned from every task.

    """
    held_out, chosen = settings.learner.relabeler_held_out, settings.relabeler
    async with open_relabeler(settings, source.blobs, pages=on.blobs) as opened:
        speaker: Any = opened
        if isinstance(opened, PublishedVersions):
            if not held_out:
                raise SettingsError(
                    f"run {source.name} holds no task out (learner.relabeler_held_out = 0): the relabeler learned "
                    "from all of them"
                )
            async with source.connect_log() as log:
                speaker = await opened.begin(log)
            if speaker.version is None:
                raise SettingsError(
                    f"run {source.name} has published no relabeler yet, or has deleted its weights. Set relabeler.kind = "
                    f"{LEARNED} and learner.relabeler_every; then: hindcast log stats {source.name}"
                )
        return await measure_relabeler(
            speaker,
            on,
            wanted,
            run=source.name,
            held_out=held_out,
            most=chosen.goals,
            timeout_s=chosen.timeout_s,
            said=said,
        )


def print_relabel_report(report: RelabelReport) -> None:
    """Print the confusion table over steps and the accuracy figures."""
    table = report.table
    print_table(
        (f"store \\ {report.relabeler}", "achieves a goal", "achieves none"),
        [
            ("achieves a goal", table.hits, table.misses),
            ("achieves none", table.false_alarms, table.rejections),
        ],
        empty="",
    )
    print_text("")
    print_text(
        f"precision {band(report.precision)} of {report.named} goals named; {report.dropped} dropped as no goals"
    )
    print_text(f"recall {band(report.recall)} of the goals that the rules list")
    print_text(f"cut at the first achievement {band(report.cut)} of the achieved goals named")
    print_text(f"steps that achieve a goal found {band(report.achieving_found)} n={table.successes}")
    print_text(f"other steps found {band(report.others_found)} n={table.failures}")
    commoner = "" if report.majority is None else f", which is right for {report.majority:.1%}"
    balanced = (
        "not defined: one kind of step is missing" if report.balanced is None else band(report.balanced)
    )
    print_text(f"balanced accuracy over steps {balanced}; always the same answer: 50.0%{commoner}")
    which = f"held-out ({report.held_out:.0%} of all) " if report.held_out else ""
    why = ", ".join(f"{reason} {count}" for reason, count in report.silent_because.items())
    print_text(
        f"run {report.run}: {report.relabeler} on {report.episodes} episodes of {report.tasks} {which}tasks of {report.on}; "
        f"{report.silent} it could not decide{f' ({why})' if why else ''}"
    )
