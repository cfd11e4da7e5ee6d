"""`hindcast audit`."""

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated

import msgspec
import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import Json, SourceName
from hindcast.app.cli.output import print_json, print_text, shorten
from hindcast.app.runs.archive_source import ArchiveSource
from hindcast.app.runs.runs import RunHandle
from hindcast.app.runs.sources import Source, open_source
from hindcast.app.runs.witnesses import WitnessUnreadable, known_witnesses, note
from hindcast.core.errors import CorruptEvent, ForeignLog, ReplayDiverged, SettingsError
from hindcast.core.text.plain_values import read_count
from hindcast.events.jetstream.broker_store import StreamNotLoaded
from hindcast.events.jetstream.stream_log import LogMissing
from hindcast.storage.audit.audit import Ancestor, AuditReport, audit, unopened
from hindcast.storage.audit.blobs import Depth
from hindcast.storage.audit.defects import LOST, Defect
from hindcast.storage.audit.witnesses import Witness

SHOWN = 50
"""Defects printed as text; `--json` has more."""
WIDTH = 400
"""Characters of a value in a defect: enough for an error with its remedy."""
NOT_LOADED = "The broker's description of the stream or of a work queue is damaged; the events may be intact."

app = typer.Typer()


@app.command("audit")
def audit_run(
    run: SourceName = None,
    blobs: Annotated[
        Depth,
        typer.Option("--blobs", help="full: digests of all bytes; exist: only whether they are there; none."),
    ] = "full",
    expect: Annotated[
        list[str] | None,
        typer.Option(
            "--expect",
            metavar="POSITION:DIGEST",
            help="A position and its digest from an earlier audit; repeatable.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every event and blob of a run with independent code that trusts nothing: hash chains, digests, references.

    Exit code 3 if there are defects; each has its position, what is wrong, and what it may mean.

    Example: hindcast audit run-1 --json
    """
    source = open_source(run)
    report = asyncio.run(_audit(source, blobs, [_expected(text) for text in expect or ()], as_json=as_json))
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        _print_report(report)
    if not report.clean:
        raise typer.Exit(ReplayDiverged.exit_code)


def _expected(text: str) -> Witness:
    written, colon, digest = text.partition(":")
    position = read_count(written)
    try:
        rolling = bytes.fromhex(digest)
        if not colon or not position or len(rolling) != len(bytes(32)):
            raise ValueError
    except ValueError:
        raise SettingsError(
            f"--expect {text!r} is no position and digest; it looks like 812:5f3a…, with 64 hexadecimal digits, as "
            "an audit prints it"
        ) from None
    return Witness(name="--expect", position=position, rolling=rolling)


async def _audit(source: Source, depth: Depth, expected: list[Witness], *, as_json: bool) -> AuditReport:
    unreadable: WitnessUnreadable | None = None
    own: list[Witness] = []
    try:
        own = await asyncio.to_thread(known_witnesses, source) if isinstance(source, RunHandle) else []
    except WitnessUnreadable as error:
        unreadable = error
    report = await _audit_log(source, depth, [*own, *expected], as_json=as_json)
    if unreadable is not None:
        report = _with_unreadable(report, unreadable)
    if isinstance(source, RunHandle) and report.clean and report.events:
        await asyncio.to_thread(note, source, "audit", _seen(report))
    return report


def _with_unreadable(report: AuditReport, error: WitnessUnreadable) -> AuditReport:
    """Add a defect of the log's end, which the unreadable witness would have shown."""
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


async def _audit_log(source: Source, depth: Depth, witnesses: list[Witness], *, as_json: bool) -> AuditReport:
    async with AsyncExitStack() as stack:
        try:
            log = await stack.enter_async_context(source.connect_log())
        except (CorruptEvent, ForeignLog, LogMissing, StreamNotLoaded) as error:
            if isinstance(error, LogMissing) and not witnesses:
                raise
            meaning = NOT_LOADED if isinstance(error, StreamNotLoaded) else LOST
            return unopened(source.name, error, witnesses=witnesses, meaning=meaning)
        bar = stack.enter_context(progress_bar(as_json=as_json))
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
    """The run that this one was forked from, and the position; None for an archive, which holds a fork's whole log."""
    if not isinstance(source, RunHandle) or source.fork is None or source.parent is None:
        return None
    return source.parent, source.fork.at


async def _ancestors(source: Source, stack: AsyncExitStack) -> list[Ancestor]:
    """The logs of the runs that this one was forked from, nearest first."""
    found = []
    while (parent := _parent(source)) is not None:
        source, at = parent
        found.append(Ancestor(await stack.enter_async_context(source.connect_log()), at))
    return found


def _keeps_pages(source: Source) -> bool:
    """Whether every store that the run's blobs are read from keeps snapshots of pages."""
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


def _print_report(report: AuditReport) -> None:
    where = f"at positions {report.first} to {report.last}" if report.events else "that can be read"
    print_text(
        f"run {report.run}: {report.events} events {where}, {report.chains} hash "
        f"chains, {report.episodes} episodes, {report.batches} batches, {report.updates} updates; "
        f"{report.wall_s:.1f} s, {report.events_per_s:.0f} events/s"
    )
    looked = {"full": "digests compared", "exist": "existence checked", "none": "not checked"}
    print_text(
        f"blobs: {report.blobs} ({report.blob_bytes / 1e6:.1f} MB), {looked[report.blobs_checked]}; "
        f"{report.blobs_released} deleted according to an event"
    )
    if report.archived_until:
        print_text(f"positions 1 to {report.archived_until} are in an archive: audit it, too")
    for kind, number in report.unknown.items():
        print_text(f"not known to this Hindcast, content unchecked: {number} {kind}")
    under_way = report.open
    print_text(
        f"open at the end: {under_way.episodes} episodes, {under_way.verdicts} verdicts, "
        f"{under_way.minibatches} mini-batches"
    )
    print_text(f"compared with: {'; '.join(report.witnesses) or 'nothing outside the log'}")
    print_text(f"digest up to here: {report.last}:{report.digest}")
    if report.clean:
        print_text("no defects")
        return
    print_text(f"DEFECTS: {report.defects_found}")
    for defect in report.defects[:SHOWN]:
        _print_defect(defect)
    if report.defects_found > SHOWN:
        print_text(f"… {report.defects_found - SHOWN} more; `--json` lists the first {len(report.defects)}")


def _print_defect(defect: Defect) -> None:
    where = f"position {defect.position}"
    if defect.until != defect.position:
        where = f"positions {defect.position} to {defect.until}"
    event = f" ({defect.event})" if defect.event else ""
    print_text(f"{where}{event}: {defect.what}")
    if defect.suspects:
        print_text(f"  suspects  {', '.join(map(str, defect.suspects))}")
    for name, text in (("expected", defect.expected), ("found", defect.found), ("means", defect.meaning)):
        if text:
            print_text(f"  {name.ljust(8)}  {shorten(text, WIDTH)}")
