"""`hindcast audit` checks events and blobs with independent code; `hindcast rebuild` checks the read model by the log."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hindcast.app.cli.bars import progress_bar, watched
from hindcast.app.cli.options import SourceName
from hindcast.app.cli.output import Block, Report, shorten
from hindcast.app.runs.archive_source import ArchiveSource
from hindcast.app.runs.runs import RunHandle
from hindcast.app.runs.sources import Source, open_source
from hindcast.app.runs.witnesses import WitnessUnreadable, known_witnesses, note
from hindcast.app.system.home import home_folder, users_umask
from hindcast.core.errors import CorruptEvent, ForeignLog, ReplayDiverged, SettingsError
from hindcast.core.scratch import scratch_folder
from hindcast.core.text.counts import count_of
from hindcast.core.text.plain_values import read_count
from hindcast.events.jetstream.broker_store import StreamNotLoaded
from hindcast.events.jetstream.stream_log import LogMissing
from hindcast.storage.audit.audit import Ancestor, AuditReport, audit, unopened
from hindcast.storage.audit.blobs import Depth
from hindcast.storage.audit.defects import LOST, Defect
from hindcast.storage.audit.witnesses import Witness
from hindcast.storage.readmodel.rebuild import RebuildReport, rebuild
from hindcast.storage.readmodel.sqlite_address import sqlite_address

SHOWN = 50
"""Defects printed as text; `--json` has more."""
WIDTH = 400
"""Maximum number of characters of a value in a defect; an error with its remedy fits."""
NOT_LOADED = "The broker's description of the stream or of a work queue is damaged; the events may be intact."

app = typer.Typer()


@app.command("audit")
def audit_run(
    run: SourceName = None,
    blobs: Annotated[
        Depth,
        typer.Option(
            "--blobs", help="Check of blobs: full: digests of all bytes; exist: only existence; none."
        ),
    ] = "full",
    expect: Annotated[
        list[str] | None,
        typer.Option(
            "--expect",
            metavar="POSITION:DIGEST",
            help="A position and its digest from an earlier audit; repeatable.",
        ),
    ] = None,
) -> Report:
    """Check every event and blob of a run with independent code that trusts nothing: hash chains, digests, references.

    Exit code 3 if there are defects; each has its position, what is wrong, and what it may mean. Probable faults of training,
    such as errors that count as failures, are named as suspicions and leave the exit code at 0.

    Example: hindcast audit run-1 --json
    """
    source = open_source(run)
    report = asyncio.run(_audit(source, blobs, [_expected(text) for text in expect or ()]))
    return Report(report, _report_text(report), exit_code=ReplayDiverged.exit_code if not report.clean else 0)


def _expected(text: str) -> Witness:
    written, colon, digest = text.partition(":")
    position = read_count(written)
    try:
        rolling = bytes.fromhex(digest)
        if not colon or not position or len(rolling) != len(bytes(32)):
            raise ValueError
    except ValueError:
        raise SettingsError(
            f"--expect {text!r} is not POSITION:DIGEST, such as 812:5f3a… with 64 hexadecimal digits, as an audit "
            "prints it"
        ) from None
    return Witness(name="--expect", position=position, rolling=rolling)


async def _audit(source: Source, depth: Depth, expected: list[Witness]) -> AuditReport:
    unreadable: WitnessUnreadable | None = None
    own: list[Witness] = []
    try:
        own = await asyncio.to_thread(known_witnesses, source) if isinstance(source, RunHandle) else []
    except WitnessUnreadable as error:
        unreadable = error
    report = await _audit_log(source, depth, [*own, *expected])
    if unreadable is not None:
        report = _with_unreadable(report, unreadable)
    if isinstance(source, RunHandle) and report.clean and report.events:
        await asyncio.to_thread(note, source, "audit", _seen(report))
    return report


def _with_unreadable(report: AuditReport, error: WitnessUnreadable) -> AuditReport:
    """Add a defect at the log's end: the unreadable witness cannot confirm that the log is complete."""
    defect = Defect(
        check="witness",
        position=max(1, report.last),
        until=max(1, report.last),
        event="",
        what="the records of starts and audits cannot be read",
        expected="the records of the last start and of the last audit without defects",
        found=str(error),
        meaning="The file was damaged or emptied; it cannot show whether the log lost its end.",
    )
    return msgspec.structs.replace(
        report, defects=(*report.defects, defect), defects_found=report.defects_found + 1
    )


async def _audit_log(source: Source, depth: Depth, witnesses: list[Witness]) -> AuditReport:
    async with AsyncExitStack() as stack:
        try:
            log = await stack.enter_async_context(source.connect_log())
        except (CorruptEvent, ForeignLog, LogMissing, StreamNotLoaded) as error:
            if isinstance(error, LogMissing) and not witnesses:
                raise
            meaning = NOT_LOADED if isinstance(error, StreamNotLoaded) else LOST
            return unopened(source.name, error, witnesses=witnesses, meaning=meaning)
        bar = stack.enter_context(progress_bar())
        task = bar.add_task("auditing", total=None)
        return await audit(
            log,
            source.blobs,
            depth=depth,
            pages=_keeps_pages(source),
            witnesses=witnesses,
            ancestors=await _ancestors(source, stack),
            progressed=lambda position, last: bar.update(task, completed=position, total=last),
        )


def _parent(source: Source) -> tuple[Source, int] | None:
    """Parent run and position of a fork; None for other runs and for an archive, which holds a fork's whole log."""
    if not isinstance(source, RunHandle) or source.fork is None or source.parent is None:
        return None
    return source.parent, source.fork.at


async def _ancestors(source: Source, stack: AsyncExitStack) -> list[Ancestor]:
    """Open the logs of a fork's ancestors, nearest first."""
    found = []
    while (parent := _parent(source)) is not None:
        source, at = parent
        found.append(Ancestor(await stack.enter_async_context(source.connect_log()), at))
    return found


def _keeps_pages(source: Source) -> bool:
    """Whether every store of the run's blobs keeps page snapshots."""
    while (parent := _parent(source)) is not None:
        source, _ = parent
    return source.keeps_pages if isinstance(source, ArchiveSource) else True


def _seen(report: AuditReport) -> Witness:
    return Witness(
        name="audit",
        position=report.last,
        digest=bytes.fromhex(report.last_digest),
        rolling=bytes.fromhex(report.digest),
        first_digest=bytes.fromhex(report.first_digest),
    )


def _report_text(report: AuditReport) -> Iterator[Block]:
    where = f"at positions {report.first} to {report.last}" if report.events else "that can be read"
    yield (
        f"run {report.run}: {count_of(report.events, 'event')} {where}, {report.chains} hash "
        f"chains, {count_of(report.episodes, 'episode')}, {count_of(report.batches, 'batch')}, {count_of(report.updates, 'update')}; "
        f"{report.wall_s:.1f} s, {report.events_per_s:.0f} events/s"
    )
    looked = {"full": "digests compared", "exist": "existence checked", "none": "not checked"}
    yield (
        f"blobs: {report.blobs} ({report.blob_bytes / 1e6:.1f} MB), {looked[report.blobs_checked]}; "
        f"{report.blobs_released} deleted according to an event"
    )
    if report.archived_until:
        yield f"positions 1 to {report.archived_until} are in an archive: audit it, too"
    for kind, number in report.unknown.items():
        yield f"not known to this Hindcast, content unchecked: {number} {kind}"
    under_way = report.open
    yield (
        f"open at the end: {count_of(under_way.episodes, 'episode')}, {under_way.verdicts} verdicts, "
        f"{under_way.minibatches} mini-batches"
    )
    yield f"compared with: {'; '.join(report.witnesses) or 'nothing outside the log'}"
    yield f"digest up to here: {report.last}:{report.digest}"
    for one in report.suspicions:
        yield (
            f"SUSPICION {one.name}, {count_of(one.episodes, 'episode')}, first at position {one.position}: {one.what}. "
            f"{one.advice}"
        )
    if report.clean:
        yield "no defects"
        return
    yield f"DEFECTS: {report.defects_found}"
    for defect in report.defects[:SHOWN]:
        yield from _defect_text(defect)
    if report.defects_found > SHOWN:
        yield f"… {report.defects_found - SHOWN} more; `--json` lists the first {len(report.defects)}"


def _defect_text(defect: Defect) -> Iterator[Block]:
    where = f"position {defect.position}"
    if defect.until != defect.position:
        where = f"positions {defect.position} to {defect.until}"
    event = f" ({defect.event})" if defect.event else ""
    yield f"{where}{event}: {defect.what}"
    if defect.suspects:
        yield f"  suspects  {', '.join(map(str, defect.suspects))}"
    for name, text in (("expected", defect.expected), ("found", defect.found), ("means", defect.meaning)):
        if text:
            yield f"  {name.ljust(8)}  {shorten(text, WIDTH)}"


@app.command("rebuild")
def rebuild_run(
    run: SourceName = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the live read model if they differ.")
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="FILE",
            help="SQLite file to create or to compare with; without it, an archive's rebuild is not kept.",
        ),
    ] = None,
) -> Report:
    """Rebuild the read model from the log and compare it with the live one, byte for byte.

    Creates the live one first if there is none. Exit code 3 if they differ, whether or not it was replaced.

    Example: hindcast rebuild run-1 --json
    """
    source = open_source(run)
    home = home_folder()
    with scratch_folder() as scratch, users_umask(into or home, home):
        url = _database(source, into, scratch)
        report = asyncio.run(_rebuild(source, url, replace=replace))
    return Report(
        report, _rebuild_text(report), exit_code=ReplayDiverged.exit_code if not report.identical else 0
    )


def _database(source: Source, into: Path | None, scratch: Path) -> str:
    """Address of the read model to compare with. An archive has none, so two new ones are compared."""
    if into is None and isinstance(source, RunHandle):
        return source.database_url
    return sqlite_address(into or scratch / "readmodel.sqlite")


async def _rebuild(source: Source, url: str, *, replace: bool) -> RebuildReport:
    async with source.connect_log() as log:
        with progress_bar() as bar:
            return await rebuild(watched(log, bar, "folding"), url, replace=replace)


def _rebuild_text(report: RebuildReport) -> Iterator[Block]:
    if report.notice:
        yield report.notice
    if report.filled and not report.replaced:
        yield f"the read model was created from {count_of(report.filled, 'event')}"
    yield (
        f"run {report.run}: {report.events} events up to position {report.position} folded again, "
        f"{report.events_per_s:.0f} events/s"
    )
    if report.identical:
        yield "identical"
        return
    for difference in report.differing:
        yield f"{difference.table}: {difference.rows} rows differ; the first, as {', '.join(difference.columns)}:"
        yield f"  live     {difference.live or 'missing'}"
        yield f"  rebuilt  {difference.rebuilt or 'not in the log'}"
    what = "it was folded again" if report.replaced else "`hindcast rebuild --replace` folds it again"
    yield f"DIFFERENT: the read model does not follow from the log. The log is the truth; {what}."
