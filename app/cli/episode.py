"""`hindcast episode list / index / show / dispute`."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hindcast.app.cli.bars import progress_bar
from hindcast.app.cli.options import (
    AsOf,
    Environment,
    Family,
    Limit,
    OfOutcome,
    OfState,
    Origin,
    RunName,
    SourceName,
    site_and_family,
)
from hindcast.app.cli.output import Block, Fields, Report, Table, shorten
from hindcast.app.cli.read_model import connect_read_model, position_at, update_read_models
from hindcast.app.runs.controls import dispute, this_user
from hindcast.app.runs.runs import open_run
from hindcast.app.runs.sources import open_source
from hindcast.app.system.home import home_folder, users_umask
from hindcast.core.domain.observation import Mark
from hindcast.core.errors import BlobCorrupt, BlobMissing
from hindcast.core.structs import decode_json
from hindcast.events.envelope import BlobRef
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.page_index import PageIndex, episodes_with_text
from hindcast.storage.readmodel.episode_queries import (
    EpisodeDetail,
    EpisodeFilter,
    Mention,
    Narrowing,
    ScreenshotRow,
    list_episodes,
    show_episode,
)
from hindcast.storage.readmodel.task_queries import refuse_unknown

app = typer.Typer(name="episode", help="Episodes: attempts at tasks, step by step.", no_args_is_help=True)

ANSWER_WIDTH = 60


@app.command("list")
def list_all(
    run: SourceName = None,
    state: OfState = None,
    outcome: OfOutcome = None,
    environment: Environment = None,
    family: Family = None,
    origin: Origin = None,
    task: Annotated[str | None, typer.Option(help="Only attempts at this task.")] = None,
    group: Annotated[str | None, typer.Option(help="Only members of this group.")] = None,
    policy: Annotated[int | None, typer.Option(help="Only episodes that this policy version began.")] = None,
    text: Annotated[
        str | None,
        typer.Option(
            help="Only those with this text in instruction, answers, the reason of their end, or their pages "
            "(after `hindcast episode index`)."
        ),
    ] = None,
    before: Annotated[
        int | None,
        typer.Option(
            metavar="POSITION", help="Only episodes requested before this position, for the next page."
        ),
    ] = None,
    limit: Limit = 50,
    as_of: AsOf = None,
) -> Report:
    """List episodes, latest request first.

    Example: hindcast episode list --outcome success --family find_price --limit 10
    """
    environment, family = site_and_family(environment, family)
    with connect_read_model(run) as connection:
        position = position_at(connection, as_of)
        places: dict[str, Mention] | None = None
        if text is not None:
            index = PageIndex(open_source(run).folder)
            places = episodes_with_text(connection, index, text, as_of=position)
        found = list_episodes(
            connection,
            as_of=position,
            state=state,
            environment=environment,
            family=family,
            origin=origin,
            outcome=outcome,
            narrow=Narrowing(task=task, group=group, version=policy, among=places),
            before=before,
            limit=limit,
        )
        if not found:
            named = EpisodeFilter(environment=environment, family=family, task=task, policy=policy)
            refuse_unknown(connection, named, group=group, as_of=position)
    more = found[-1].requested_position if len(found) == limit else None
    heads = ["episode", "family", "origin", "state", "outcome", "steps", "policy", "actor", "reason"]
    rows: list[list[object]] = [
        [
            e.episode,
            f"{e.environment}/{e.family}",
            e.origin,
            e.state,
            e.outcome,
            e.steps,
            e.version_low,
            e.actor,
            e.reason,
        ]
        for e in found
    ]
    if places is not None:
        heads.append("found in")
        for row, e in zip(rows, found, strict=True):
            row.append(places[e.episode].words)
    blocks: list[Block] = [Table(heads, rows, empty="No such episode.")]
    if more is not None:
        blocks.append(f"more: --before {more}")
    return Report(
        {"episodes": found, "before": more}
        | ({} if places is None else {"found": {e.episode: places[e.episode] for e in found}}),
        blocks,
    )


@app.command("index")
def index_pages(
    run: RunName = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the index instead.")] = False,
) -> Report:
    """Index the texts of a run's pages, so that `episode list --text` and the page's search find episodes by them.

    The index is a file in the run's folder and no part of the read model. Run it again to add the pages since.

    Example: hindcast episode index
    """
    handle = open_run(run)
    index = PageIndex(handle.folder)
    if delete:
        deleted = index.delete()
        return Report(
            {"deleted": deleted},
            [f"deleted {index.file}" if deleted else f"run {handle.name} has no index of pages"],
        )

    async def build() -> None:
        with progress_bar() as bar:
            async with handle.connect_log() as log, aclosing(index.extend(log, handle.blobs)) as positions:
                shown = bar.add_task("indexing pages", total=(await log.identity()).last)
                async for position in positions:
                    bar.update(shown, completed=position)

    asyncio.run(build())
    status = index.status()
    assert status is not None
    missing = f"; {status.missing} could not be read" if status.missing else ""
    line = (
        f"{status.pages} pages of run {handle.name}, shown {status.shown} times, are indexed up to position "
        f"{status.position} in {status.size_bytes / 2**20:.1f} MiB{missing}"
    )
    return Report(status, [line, f"delete it: hindcast episode index {handle.name} --delete"])


@app.command("show")
def show_one(
    episode: Annotated[str, typer.Argument(help="The episode's id, such as ep_9f2c41d07ab3.")],
    run: SourceName = None,
    screenshots: Annotated[
        Path | None,
        typer.Option(metavar="DIR", file_okay=False, help="Write its screenshots into this folder."),
    ] = None,
    marks: Annotated[
        bool,
        typer.Option("--marks", help="Also write each screenshot with numbered boxes (screenshot/marks/1)."),
    ] = False,
    as_of: AsOf = None,
) -> Report:
    """Show one episode: its steps, verdicts, batches and updates.

    Example: hindcast episode show ep_9f2c41d07ab3 --screenshots pictures
    """
    with connect_read_model(run) as connection:
        detail = show_episode(connection, episode, as_of=position_at(connection, as_of))
    files: list[Path] = []
    without: list[str] = []
    if screenshots is not None:
        with users_umask(screenshots, home_folder()):
            files, without = write_screenshots(
                detail.screenshots, open_source(run).blobs, screenshots, marked=marks
            )
    names = [str(file) for file in files]
    wrote = (f"wrote {name}" for name in names)
    return Report({**msgspec.to_builtins(detail), "files": names}, (*_detail_text(detail), *wrote, *without))


@app.command("dispute")
def dispute_one(
    episode: Annotated[str, typer.Argument(help="The episode's id, such as ep_9f2c41d07ab3.")],
    outcome: Annotated[str, typer.Argument(help="The true outcome: success or failure.")],
    reason: Annotated[str, typer.Option(help="Why the verdict is wrong.")],
    judge: Annotated[
        str | None, typer.Option(help="Judge of the wrong verdict; default: the judge that training uses.")
    ] = None,
    run: RunName = None,
    author: Annotated[str | None, typer.Option(help="Author; by default the user of this machine.")] = None,
) -> Report:
    """Dispute a verdict. The dispute is recorded and shown with the verdict; training ignores it.

    Example: hindcast episode dispute ep_9f2c41d07ab3 success --reason "the order was placed"
    """
    handle = open_run(run)
    update_read_models([handle])
    disputed = asyncio.run(
        dispute(handle, episode, outcome=outcome, author=author or this_user(), reason=reason, judge=judge)
    )
    return Report(
        disputed,
        [
            f"recorded at position {disputed.position}: {disputed.author} says {disputed.outcome} of {episode}, against {disputed.judge}"
        ],
    )


def _detail_text(detail: EpisodeDetail) -> Iterator[Block]:
    row = detail.episode
    versions = (
        f"{row.version_low}"
        if row.version_low == row.version_high
        else f"{row.version_low}-{row.version_high}"
    )
    yield Fields(
        [
            ("episode", row.episode),
            ("task", f"{row.task} {row.environment}/{row.family}"),
            ("instruction", detail.instruction),
            ("group", f"{row.group_id} member {row.member}, attempt {row.attempt}, {row.origin}"),
            ("state", " ".join(filter(None, (row.state, row.reason, detail.detail)))),
            ("actor", row.actor),
            ("policy", versions if row.version_low is not None else None),
            ("answer", detail.answer),
            ("swept", row.swept),
        ]
    )
    yield ""
    several = any(s.context for s in detail.steps)
    contexts = ("context",) if several else ()
    yield Table(
        ("step", "position", *contexts, "state", "action", "element", "result", "answer", "tokens", "ms"),
        [
            (
                s.step,
                s.position,
                *((s.context,) if several else ()),
                s.scaffold_state,
                s.action,
                s.element,
                s.result,
                shorten(s.answer, ANSWER_WIDTH),
                s.answer_tokens,
                round(sum(filter(None, (s.observe_ms, s.generate_ms, s.act_ms)))),
            )
            for s in detail.steps
        ],
        empty="No step yet.",
    )
    if detail.pages_released:
        yield (
            f"pages of {detail.pages_released} steps were deleted (storage.keep_page_episodes); their fingerprints "
            "are in the log, and an archive may have the pages"
        )
    yield from screenshot_summary(detail.screenshots)
    for verdict in detail.verdicts:
        yield f"verdict by {verdict.judge} {verdict.judge_version}: {verdict.outcome} ({verdict.reason})"
    for one in detail.disputes:
        yield f"disputed at position {one.position}: {one.author} says {one.outcome} ({one.reason})"
    for batch in detail.batches:
        updates = ", ".join(map(str, batch.updates)) or "none yet"
        how = "rehearsed" if batch.rehearsed else "trained"
        if batch.replaces is not None:
            how = f"replayed in place of {batch.replaces}"
        more = f", {batch.epochs} times each sample" if batch.epochs > 1 else ""
        what = f"{how} in updates {updates}{more}" if batch.epochs else "consumed without training"
        yield f"batch {batch.batch} at position {batch.position}: {what}"


def screenshot_summary(rows: Sequence[ScreenshotRow]) -> list[str]:
    """Summarize in lines how many screenshots are stored, and why others are missing."""
    kept = [row for row in rows if row.sha256 is not None and row.released is None]
    released = [row for row in rows if row.released is not None]
    lines = []
    if kept:
        size = sum(row.size_bytes or 0 for row in kept)
        lines.append(f"{len(kept)} screenshots, {size / 1024:.0f} KiB; --screenshots DIR writes them out")
    if released:
        lines.append(f"{len(released)} screenshots were deleted (storage.keep_page_episodes)")
    lines += [f"no screenshot {_where(row)}: {row.missing}" for row in rows if row.missing]
    return lines


def write_screenshots(
    rows: Sequence[ScreenshotRow], blobs: BlobStore, folder: Path, *, marked: bool = False
) -> tuple[list[Path], list[str]]:
    """Write the stored screenshots into a folder, created if necessary; returns the files and why others are missing.

    `marked`: also write each with numbered boxes over the interactive elements (`core.prompts.rendering.marks`).
    """
    folder.mkdir(parents=True, exist_ok=True)
    files, without = [], []
    for row in rows:
        if row.sha256 is None:
            continue
        file = folder / f"{_name(row)}.jpg"
        try:
            image = blobs.get(BlobRef(row.sha256, row.size_bytes or 0))
        except (BlobMissing, BlobCorrupt) as error:
            gone = f"deleted at position {row.released}" if row.released is not None else str(error)
            without.append(f"no {file.name}: {gone}")
            continue
        file.write_bytes(image)
        files.append(file)
        if marked:
            other = file.with_name(f"{file.stem}-marks.png")
            try:
                other.write_bytes(_with_marks(image, row))
            except ValueError as error:
                without.append(f"no {other.name}: {error}")
            else:
                files.append(other)
    return files, without


def _with_marks(image: bytes, row: ScreenshotRow) -> bytes:
    from hindcast.core.prompts.rendering.marks import draw_marks  # imports Pillow

    marks = decode_json(row.marks or "[]", tuple[Mark, ...])
    return draw_marks(image, marks, scale=row.scale or 1.0)


def _name(row: ScreenshotRow) -> str:
    return "end" if row.step is None else f"step-{row.step:03d}-{row.shows}"


def _where(row: ScreenshotRow) -> str:
    return "of the page it ended on" if row.step is None else f"{row.shows} step {row.step}"
