"""`hindcast rejudge`: judges a run's stored evidence again."""

import asyncio
from collections.abc import Iterator
from typing import Annotated

import typer

from hindcast.actors.judges.second_opinion import NO_VERDICT, Agreement, SecondOpinion
from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import (
    EndpointValues,
    Episode,
    Episodes,
    Families,
    Origin,
    Seed,
    SourceName,
    select_episodes,
)
from hindcast.app.cli.output import Block, Report, Table
from hindcast.app.evaluation.rejudge import AT_ONCE, RejudgeReport, rejudge
from hindcast.app.runs.runs import RunHandle
from hindcast.app.runs.sources import Source, open_source
from hindcast.app.settings.endpoint_overrides import concurrent_episodes, override_endpoint
from hindcast.app.system.judges import open_judge
from hindcast.core.errors import ReplayDiverged, SettingsError
from hindcast.core.plugins import plugin_names
from hindcast.core.text.counts import count_of

app = typer.Typer()

OUTCOMES = ("success", "failure", "undecided")


@app.command("rejudge")
def rejudge_run(
    run: SourceName = None,
    judge: Annotated[
        str | None,
        typer.Option(
            help=f"The judge: {', '.join(plugin_names('judges'))}; by default the one that training uses."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="JUDGE", help="Judge of the old verdicts; by default the one that training uses."
        ),
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Append the verdicts to the log; earlier verdicts stay.")
    ] = False,
    by_family: Annotated[
        bool, typer.Option("--by-family", help="Also print a table for every family.")
    ] = False,
    episode: Episode = None,
    episodes: Episodes = None,
    family: Families = None,
    origin: Origin = None,
    seed: Seed = 1,
    overrides: EndpointValues = None,
) -> Report:
    """Judge a run's stored evidence again: prints episodes whose outcome flips, then a table of old and new outcomes.

    Appends nothing without --save. Without --judge, the current version of the training judge judges its own verdicts again;
    exit code 3 if a judge contradicts an earlier verdict of the same version.

    Example: hindcast rejudge run-1 --judge strict --by-family
    """
    wanted = select_episodes(
        episode, episodes, every=False, family=family, origin=origin, seed=seed, usual=None
    )
    source = open_source(run)
    settings = override_endpoint(source.settings, overrides or [])
    with progress_bar() as bar:
        task = bar.add_task("judging", total=wanted.sample)

        def said(_: SecondOpinion) -> None:
            bar.advance(task)

        async def judged() -> RejudgeReport:
            name = judge or settings.judge.judges[0]
            async with open_judge(name, source, settings) as speaker:
                return await rejudge(
                    source,
                    wanted,
                    judge=speaker,
                    against=against,
                    save_to=_writable(source) if save else None,
                    timeout_s=settings.judge.timeout_s,
                    at_once=concurrent_episodes(settings, usual=AT_ONCE),
                    said=said,
                )

        report = asyncio.run(judged())
    return Report(
        report,
        _report_text(report, by_family=by_family),
        exit_code=ReplayDiverged.exit_code if report.contradictions else 0,
    )


def _writable(source: Source) -> RunHandle:
    """Return the source as a run that can be appended to. Raises SettingsError if it is read-only, such as an archive."""
    if not isinstance(source, RunHandle):
        raise SettingsError(
            f"--save appends to a run's own log, and {source.name} is read-only here. Omit --save, or name a run of "
            "this home: hindcast run list"
        )
    return source


def _report_text(report: RejudgeReport, *, by_family: bool) -> Iterator[Block]:
    yield Table(
        ("episode", "family", report.against, report.judge, "why"),
        [
            (
                said.episode,
                said.family,
                said.old.outcome if said.old else None,
                said.new.outcome,
                said.new.reason,
            )
            for said in report.flips
        ],
        empty=f"No outcome flips between {report.against} and {report.judge}.",
    )
    yield ""
    yield from _agreement_text(report.agreement, report)
    if by_family:
        for family, agreement in report.by_family.items():
            yield ""
            yield family
            yield from _agreement_text(agreement, report)
    yield ""
    yield (
        f"run {report.run}: {report.judge} judged {count_of(report.episodes, 'episode')}, {count_of(len(report.flips), 'flip')} against "
        f"{report.against}; {report.without_evidence} left no evidence"
    )
    if report.saved or report.already:
        yield f"{report.saved} verdicts appended, {report.already} were there already"
    for said in report.contradictions:
        before = said.before
        assert before is not None
        yield (
            f"CONTRADICTION {said.episode}: {report.judge} said {before.outcome} ({before.reward:g}, {before.reason}), "
            f"now {said.new.outcome} ({said.new.reward:g}, {said.new.reason})"
        )


def _agreement_text(agreement: Agreement, report: RejudgeReport) -> Iterator[Block]:
    rows = [name for name in (*OUTCOMES, NO_VERDICT) if name in agreement.counts]
    yield Table(
        (f"{report.against} \\ {report.judge}", *OUTCOMES),
        [(name, *(agreement.counts[name].get(outcome, 0) for outcome in OUTCOMES)) for name in rows],
        empty="No episode left evidence.",
    )
    if agreement.decided:
        kappa = "not defined" if agreement.kappa is None else f"{agreement.kappa:.3f}"
        yield f"they agree on {agreement.agreed} of {agreement.decided} that both decided; kappa {kappa}"
