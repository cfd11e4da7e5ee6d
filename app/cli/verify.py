"""`hindcast verify`: recomputes a run's updates from its log."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import PLACES, SourceName
from hindcast.app.cli.output import Block, Fields, Report, Table
from hindcast.app.runs.sources import Source, open_source
from hindcast.core.errors import HindcastError, NoSuchPlace, ReplayDiverged
from hindcast.core.fast_import import loading
from hindcast.core.text.counts import count_of
from hindcast.events.log.places import END, Place, parse_place, position_of
from hindcast.events.log.port import EventLog

if TYPE_CHECKING:
    from hindcast.events.catalogue.run import Fingerprint
    from hindcast.learner.verify.diagnosis import Divergence
    from hindcast.learner.verify.verify import VerifyReport

app = typer.Typer()

LISTED = 10
"""Number of updates listed with the largest differences."""


class VerifyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `hindcast verify`."""

    run: str
    since: Place | None
    until: Place
    tolerance: float | None
    processes: int
    ranks: bool


@app.command("verify")
def verify_run(
    run: SourceName = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help=f"Recompute from the last checkpoint at or before this place, not from the base weights: {PLACES}.",
        ),
    ] = None,
    until: Annotated[
        str,
        typer.Option("--until", metavar="PLACE", help="Verify the log up to this place; default: its end."),
    ] = "end",
    parallel: Annotated[
        int,
        typer.Option(
            "--parallel",
            metavar="N",
            min=1,
            max=256,
            help="Divide the stretches between checkpoints among N processes, each with its own model.",
        ),
    ] = 1,
    ranks: Annotated[
        bool,
        typer.Option(
            "--ranks",
            help="Compute each update in as many processes as its learner had (learner.processes), instead of emulating them in one.",
        ),
    ] = False,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="T",
            min=0,
            help="Accept differences up to T, for another processor or other versions than those of the recording.",
        ),
    ] = None,
) -> Report:
    """Recompute every batch and update of a run from its log, and compare the digests.

    Exit code 3 if one differs: prints the first differing position, the difference, and the likely cause. Exit code 1 if updates
    were computed on a device that this machine lacks: names them, and recomputes the others.

    Example: hindcast verify run-1 --from checkpoint=40 --parallel 2 --json
    """
    if ranks and (parallel > 1 or tolerance is not None):
        other = "--parallel" if parallel > 1 else "--tolerance"
        raise typer.BadParameter(f"--ranks repeats the bits of the run's own processes: leave out {other}")
    source = open_source(run)
    asked = VerifyOptions(
        run=run or source.name,
        since=None if since is None else parse_place(since),
        until=parse_place(until),
        tolerance=tolerance,
        processes=parallel,
        ranks=ranks,
    )
    report = asyncio.run(_verify(source, asked))
    return Report(
        report,
        _report_text(report),
        exit_code=_exit_code(report),
    )


def _exit_code(report: "VerifyReport") -> int:
    if not (report.identical or report.within_tolerance):
        return ReplayDiverged.exit_code
    return HindcastError.exit_code if report.left_out else 0


async def _verify(source: Source, asked: VerifyOptions) -> "VerifyReport":
    with loading():
        from hindcast.app.replay.recomputers import (  # loads torch, so only now
            Assignment,
            recomputing_processes,
        )
        from hindcast.app.replay.recomputing_ranks import recomputing_ranks
        from hindcast.core.models.folders import policy_folder
        from hindcast.learner.training import MakeTrainer, Training
        from hindcast.learner.verify.verify import verify

    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(source.connect_log())
        begin, end = await _places(log, asked)
        bar = stack.enter_context(progress_bar())
        recomputing = bar.add_task("recomputing updates", total=None)
        make_trainer: MakeTrainer = Training
        if asked.ranks:
            learner = source.settings.learner
            make_trainer = stack.enter_context(recomputing_ranks(learner, asked.run))
        assignment = Assignment(run=asked.run, code_rev=source.code_rev, tolerance=asked.tolerance)
        count = asked.processes if asked.processes > 1 else 0
        return await verify(
            log,
            source.blobs,
            policy=policy_folder(source.settings.policy.base),
            code_rev=source.code_rev,
            since=begin,
            until=end,
            tolerance=asked.tolerance,
            recomputers=await stack.enter_async_context(recomputing_processes(count, assignment)),
            together=asked.ranks,
            make_trainer=make_trainer,
            progress=lambda done, total: bar.update(recomputing, completed=done, total=total),
        )


async def _places(log: EventLog, asked: VerifyOptions) -> tuple[int, int | None]:
    """First and last position to verify; a last of None means the end of the log."""
    end = None if asked.until == END else await position_of(log, asked.until)
    begin = 0 if asked.since is None else await position_of(log, asked.since)
    if end is not None and begin >= end:
        raise NoSuchPlace(
            f"--from {asked.since} is position {begin}, --until {asked.until} is position {end}: nothing is between them"
        )
    return begin, end


def _report_text(report: "VerifyReport") -> Iterator[Block]:
    yield (
        f"run {report.run}: {count_of(report.events, 'event')} checked, {count_of(report.updates, 'update')}, {report.weights} "
        f"weight versions and "
        f"{report.checkpoints} checkpoints recomputed in {report.wall_s:.1f} s"
    )
    yield from _how(report)
    if report.tolerance is not None:
        yield from _deviations_text(report)
    if report.first_divergence is not None:
        yield from _divergence_text(report.first_divergence)
    elif report.identical and report.left_out:
        yield "identical, bit for bit, as far as recomputed"
    elif report.identical:
        yield "identical, bit for bit"
    else:
        yield f"the same within {report.tolerance:g}"


def _how(report: "VerifyReport") -> list[str]:
    """Describe the verification: recomputed part, processes, time."""
    lines = []
    if report.stretches and report.stretches[0].stretch.begin.position > 0 and not report.left_out:
        begin = report.stretches[0].stretch.begin
        lines.append(
            f"recomputed from the checkpoint of update {begin.update} (position {begin.position}) on; before it, chains, order "
            "and plans were checked, and no number was recomputed"
        )
    if report.processes > 1:
        joined = "" if report.left_out else "; each ends in the state that the next begins with"
        lines.append(f"{report.processes} processes, {len(report.stretches)} stretches{joined}")
    if report.tolerance is None and report.digests < report.updates:
        lines.append(
            f"{report.digests} of {report.updates} updates record a digest of weights and optimizer state "
            "(learner.digest_every); of the others inputs and all reported numbers were compared"
        )
    if report.cpu_ratio is not None:
        lines.append(
            f"{report.cpu_s:.1f} s of CPU time, {report.cpu_ratio:.2f} times what the updates took when they were recorded"
        )
    lines += [f"not recomputed: {part.reason}" for part in report.left_out]
    if report.left_out:
        lines.append(
            f"verify those where they were computed, or within rounding. Run: hindcast verify {report.run} --tolerance 1e-2"
        )
    return [*lines, *report.notices]


def _deviations_text(report: "VerifyReport") -> Iterator[Block]:
    furthest = sorted(report.deviations, key=lambda one: -one.largest)[:LISTED]
    rows = [
        (one.update, f"{one.largest:.2e}", one.where, "-" if one.policy is None else f"{one.policy:.2e}")
        for one in furthest
        if one.largest > 0
    ]
    heads = ("update", "apart", "where", "policy")
    yield Table(heads, rows, empty="no number differs")


def _divergence_text(found: "Divergence") -> Iterator[Block]:
    yield f"DIVERGED at position {found.position} ({found.event} of {found.entity}): {found.what}"
    fields = [("recorded", found.expected), ("recomputed", found.found)]
    if found.same or len(found.differing) > 1:
        fields.append(("the same", ", ".join(found.same) or "nothing"))
        fields.append(("different", ", ".join(found.differing)))
    if found.apart is not None:
        fields.append(("numbers apart by", f"{found.apart:.1e} at most"))
    fields.append(("code then, now", f"{found.code_then}, {found.code_now or 'unknown'}"))
    fields.append(("machine", _machines(found.machine_then, found.machine_now)))
    yield Fields([*fields, ("likely", found.cause)])


def _machines(then: "Fingerprint | None", now: "Fingerprint | None") -> str:
    """Hardware and versions that determine the bits of a result, then and now."""
    if then is None or now is None:
        return "unknown"
    return ", ".join(
        f"{name} {before}" if before == after else f"{name} {before} then, {after} now"
        for name in then.__struct_fields__
        for before, after in [(getattr(then, name), getattr(now, name))]
    )
