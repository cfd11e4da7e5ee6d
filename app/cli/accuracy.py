"""`hindcast judge / orm / relabel accuracy`: measures the accuracy of judges and relabelers."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from hindcast.actors.published_versions import PublishedVersions
from hindcast.actors.replay.recorded import EpisodeSelection
from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import (
    EndpointValues,
    Episodes,
    Families,
    Origin,
    Seed,
    SourceName,
    select_episodes,
)
from hindcast.app.cli.output import Block, Report, Table
from hindcast.app.evaluation.judge_accuracy import AT_ONCE, AccuracyReport, measure_accuracy
from hindcast.app.evaluation.relabel_accuracy import RelabelReport, measure_relabeler
from hindcast.app.runs.sources import Source, open_source
from hindcast.app.settings.endpoint_overrides import concurrent_episodes, override_endpoint
from hindcast.app.system.judges import open_judge, open_relabeler
from hindcast.core.errors import SettingsError
from hindcast.core.plugins import plugin_names
from hindcast.core.rl.combined_state import ORM
from hindcast.core.rl.statistics import Confusion, Interval, of_failures, of_successes
from hindcast.core.settings.schema import Settings
from hindcast.core.text.nearest import advice


def accuracy_text(report: AccuracyReport) -> Iterator[Block]:
    """Format the confusion table, the table by family, and the accuracy figures."""
    table = report.table
    yield Table(
        (f"{report.truth} \\ {report.judge}", "success", "failure"),
        [
            ("success", table.hits, table.misses),
            ("failure", table.false_alarms, table.rejections),
        ],
    )
    yield ""
    yield Table(
        ("family", "n", "successes found", "failures found"),
        [(name, one.total, *_shares(one)) for name, one in report.by_family.items()],
        empty="No episode was judged by both.",
    )
    yield ""
    yield f"successes found {_share(report.successes_found, table.successes)}"
    yield f"failures found  {_share(report.failures_found, table.failures)}"
    commoner = "" if report.majority is None else f"; always the more frequent answer: {report.majority:.1%}"
    yield f"plain accuracy  {_share(report.accuracy, table.total)}{commoner}"
    balanced = "not defined: one outcome is missing" if report.balanced is None else band(report.balanced)
    yield f"balanced accuracy {balanced}; always the same answer: 50.0%"
    held_out = "" if report.held_out is None else f" held-out ({report.held_out:.0%} of all)"
    why = ", ".join(f"{reason} {count}" for reason, count in report.undecided_because.items())
    yield (
        f"run {report.run}: {report.judge} on {report.episodes} episodes of {report.tasks}{held_out} tasks of {report.on}; "
        f"{report.undecided} undecided{f' ({why})' if why else ''}"
    )
    if report.prompt_tokens or report.answer_tokens:
        yield f"asked: {report.prompt_tokens} prompt tokens, {report.answer_tokens} answer tokens, {report.cost_usd:.4f} dollars now"


def _shares(table: Confusion) -> tuple[str, str]:
    return _share(of_successes(table), table.successes), _share(of_failures(table), table.failures)


def _share(interval: Interval | None, n: int) -> str:
    return f"{band(interval)} n={n}"


def band(interval: Interval | None) -> str:
    """Format a rate with its interval; `not defined` if it is None."""
    if interval is None:
        return "not defined"
    return f"{interval.rate:.1%} [{interval.low:.1%}, {interval.high:.1%}]"


judge_app = typer.Typer(name="judge", help="Measure the accuracy of judges.", no_args_is_help=True)


@judge_app.command("accuracy")
def judge_accuracy(
    name: Annotated[
        str, typer.Argument(metavar="JUDGE", help=f"The judge: {', '.join(plugin_names('judges'))}.")
    ],
    run: SourceName = None,
    truth: Annotated[
        str, typer.Option(metavar="JUDGE", help="Judge whose verdicts in the log are the truth.")
    ] = "rules",
    episodes: Episodes = None,
    family: Families = None,
    origin: Origin = None,
    seed: Seed = 1,
    overrides: EndpointValues = None,
) -> Report:
    """Measure a judge's accuracy on a run's episodes against the truth in the log; appends nothing.

    Balanced accuracy is the mean of the shares of successes and of failures that the judge recognizes.

    Example: hindcast judge accuracy endpoint run-1 --episodes 200
    """
    if name == ORM:
        raise SettingsError(
            "the judge orm was trained on this run's episodes, so only held-out tasks can measure it. Run: hindcast orm accuracy"
        )
    wanted = select_episodes(None, episodes, every=False, family=family, origin=origin, seed=seed, usual=None)
    source = open_source(run)
    settings = override_endpoint(source.settings, overrides or [])
    with progress_bar() as bar:
        task = bar.add_task("judging", total=wanted.sample)
        report = asyncio.run(
            _measure(name, source, wanted, settings, truth=truth, said=lambda: bar.advance(task))
        )
    return Report(report, accuracy_text(report))


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
            at_once=concurrent_episodes(settings, usual=AT_ONCE),
            said=said,
        )


orm_app = typer.Typer(
    name="orm",
    help="Measure the outcome reward model that a run trains.",
    no_args_is_help=True,
)


@orm_app.command("accuracy")
def orm_accuracy(
    run: SourceName = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Run with the episodes; by default the run that trains the model."),
    ] = None,
    family: Families = None,
    origin: Origin = None,
) -> Report:
    """Measure the newest model's accuracy on held-out tasks against the truth in the log.

    Balanced accuracy is the mean of the shares of successes and of failures that the model recognizes.

    Example: hindcast orm accuracy run-1
    """
    wanted = select_episodes(None, None, every=True, family=family, origin=origin, seed=1, usual=None)
    source = open_source(run)
    with progress_bar() as bar:
        task = bar.add_task("reading", total=None)
        report = asyncio.run(
            _measure_orm(
                source,
                source if on is None else open_source(on),
                wanted,
                lambda: bar.advance(task),
            )
        )
    return Report(report, accuracy_text(report))


async def _measure_orm(
    source: Source, on: Source, wanted: EpisodeSelection, said: Callable[[], None]
) -> AccuracyReport:
    """Measure the newest published version of `source`'s model on the held-out episodes of `on`.

    Raises:
        SettingsError: no version was published, or no tasks are held out from its training.

    """
    from hindcast.actors.judges.orm import OrmJudge

    learner = source.settings.learner
    if not learner.orm_held_out:
        raise SettingsError(
            f"run {source.name} has no held-out tasks (learner.orm_held_out = 0): the model was trained on all tasks"
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


relabel_app = typer.Typer(name="relabel", help="Measure the accuracy of relabelers.", no_args_is_help=True)


@relabel_app.command("accuracy")
def relabel_accuracy(
    run: SourceName = None,
    relabeler: Annotated[
        str | None,
        typer.Option(
            help=f"The relabeler: {', '.join(plugin_names('relabelers'))}; by default the run's own."
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Run with the episodes; by default the run of the relabeler."),
    ] = None,
    family: Families = None,
    origin: Origin = "online",
    overrides: EndpointValues = None,
) -> Report:
    """Measure a relabeler on the store's episodes of held-out tasks, compared with the goals achieved according to the store.

    Precision: share of achieved goals among the goals it names. Recall: share of found goals among those the rules list. Balanced
    accuracy is over steps: the mean of the shares of goal-achieving and of other steps that the relabeler recognizes.

    Example: hindcast relabel accuracy run-1 --relabeler learned
    """
    wanted = select_episodes(None, None, every=True, family=family, origin=origin, seed=1, usual=None)
    source = open_source(run)
    settings = override_endpoint(source.settings, overrides or [])
    kind = relabeler or settings.relabeler.kind
    known = plugin_names("relabelers")
    if ":" not in kind and kind not in known:
        raise SettingsError(
            f"there is no relabeler {kind!r}; {advice(kind, known)}. Choose one with --relabeler"
        )
    own = settings.relabeler
    options = own.options if kind == own.kind else {}
    chosen = own.model_copy(update={"kind": kind, "options": options})
    named = settings.model_copy(update={"relabeler": chosen})
    with progress_bar() as bar:
        task = bar.add_task("relabelling", total=None)
        report = asyncio.run(
            _measure_relabeler(
                source,
                source if on is None else open_source(on),
                named,
                wanted,
                lambda: bar.advance(task),
            )
        )
    return Report(report, relabel_text(report))


async def _measure_relabeler(
    source: Source, on: Source, settings: Settings, wanted: EpisodeSelection, said: Callable[[], None]
) -> RelabelReport:
    """Measure the relabeler that the settings name, in its newest version if the run trains it.

    Raises:
        SettingsError: no version was published, or no tasks are held out from its training.

    """
    held_out, chosen = settings.learner.relabeler_held_out, settings.relabeler
    async with open_relabeler(settings, source.blobs, pages=on.blobs) as opened:
        speaker: Any = opened
        if isinstance(opened, PublishedVersions):
            if not held_out:
                raise SettingsError(
                    f"run {source.name} has no held-out tasks (learner.relabeler_held_out = 0): the relabeler was "
                    "trained on all tasks"
                )
            async with source.connect_log() as log:
                speaker = await opened.begin(log)
            if speaker.version is None:
                raise SettingsError(
                    f"run {source.name} has published no relabeler yet, or has deleted its weights. Set relabeler.kind = "
                    f"{chosen.kind} and learner.relabeler_every; then: hindcast log stats {source.name}"
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


def relabel_text(report: RelabelReport) -> Iterator[Block]:
    """Format the confusion table over steps and the accuracy figures."""
    table = report.table
    yield Table(
        (f"store \\ {report.relabeler}", "achieves a goal", "achieves none"),
        [
            ("achieves a goal", table.hits, table.misses),
            ("achieves none", table.false_alarms, table.rejections),
        ],
    )
    yield ""
    yield f"precision {band(report.precision)} of {report.named} goals named; {report.dropped} dropped because they are not goals"
    yield f"recall {band(report.recall)} of the goals that the rules list"
    yield f"cut at the first achievement {band(report.cut)} of the achieved goals named"
    yield f"steps that achieve a goal found {band(report.achieving_found)} n={table.successes}"
    yield f"other steps found {band(report.others_found)} n={table.failures}"
    commoner = "" if report.majority is None else f", which is right for {report.majority:.1%}"
    balanced = (
        "not defined: one kind of step is missing" if report.balanced is None else band(report.balanced)
    )
    yield f"balanced accuracy over steps {balanced}; always the same answer: 50.0%{commoner}"
    which = f"held-out ({report.held_out:.0%} of all) " if report.held_out else ""
    why = ", ".join(f"{reason} {count}" for reason, count in report.silent_because.items())
    yield (
        f"run {report.run}: {report.relabeler} on {report.episodes} episodes of {report.tasks} {which}tasks of {report.on}; "
        f"{report.silent} it could not decide{f' ({why})' if why else ''}"
    )


app = typer.Typer()
for _group in (judge_app, orm_app, relabel_app):
    app.add_typer(_group)
