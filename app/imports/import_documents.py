"""`hindcast demonstrations import`: imports a file into a run's log, all of it or nothing.

    file ──> documents ──> check ──> replay ──> (all are valid) ──> append, one episode after the other

Every document is read and replayed twice: first to check all of them, then to append them, so that memory holds one. A
document's content identifies its episode: those already in the log are skipped, so the same command resumes an
interrupted import.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from hindcast.app.demonstrations.pending import Appender, appending
from hindcast.app.exports.document import EpisodeDocument
from hindcast.app.imports.check import check
from hindcast.app.imports.decoder import DocumentError
from hindcast.app.imports.documents import (
    Format,
    ImportRefused,
    LocatedDocument,
    read_documents,
    refused,
)
from hindcast.app.imports.player import SOURCE, play, request_of
from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.sites import task_sources
from hindcast.core.models.folders import policy_folder
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.settings.schema import Settings

NAME = "importer"
"""Name of the importing actor, `actor.importer` in the facts."""


class ImportedDemonstrations(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an import."""

    run: str
    episodes: int
    """Episodes appended."""
    present: int
    """Episodes skipped because the log has them already or the file has them twice."""
    steps: int
    """Steps of the appended episodes."""
    outcomes: dict[str, int]
    """Outcomes by the rules; the run's judges judge at its next start."""
    position: int
    """Last position of the log."""


async def try_out(
    path: Path, settings: Settings, *, format_name: Format, said: Callable[[int], None] = lambda _: None
) -> int:
    """Read, check and replay every document without a run. Returns the number of documents.

    Raises:
        ImportRefused: a document is invalid; names file, line and key.

    """
    tokenizer = await asyncio.to_thread(load_tokenizer, policy_folder(settings.policy.base))
    sources, number = task_sources(settings), 0
    for read in read_documents(path, format_name):
        try:
            check(read.document, settings, sources=sources)
            await play(read.document, settings, tokenizer)
        except DocumentError as wrong:
            raise refused(read.where, wrong) from wrong
        number += 1
        said(number)
    if not number:
        raise ImportRefused(f"{path} holds no demonstration")
    return number


async def import_documents(
    handle: RunHandle, path: Path, *, format_name: Format, said: Callable[[int], None] = lambda _: None
) -> ImportedDemonstrations:
    """Append every document of a file that `try_out` has checked.

    Raises:
        ImportRefused: the file has changed since the check.
        EngineFailed: another process requests episodes in the run.

    """
    settings = handle.settings
    tokenizer = await asyncio.to_thread(load_tokenizer, policy_folder(settings.policy.base))
    sources = task_sources(settings)
    counts: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    position = 0
    async with appending(handle, name=NAME, source=SOURCE) as appender:
        for number, read in enumerate(read_documents(path, format_name), 1):
            said(number)
            attempt = await _attempt(appender, read.document, settings)
            if attempt is None:
                counts["present"] += 1
                continue
            try:
                check(read.document, settings, sources=sources)
                shown = await play(read.document, settings, tokenizer, attempt=attempt)
            except DocumentError as wrong:
                raise ImportRefused(f"{_late(read)}: {wrong}. What was appended before stays") from wrong
            position = await appender.append(shown)
            counts["episodes"] += 1
            counts["steps"] += len(shown.steps)
            outcomes[shown.judgment.outcome] += 1
    return ImportedDemonstrations(
        run=handle.name,
        episodes=counts["episodes"],
        present=counts["present"],
        steps=counts["steps"],
        outcomes=dict(sorted(outcomes.items())),
        position=position,
    )


def _late(read: LocatedDocument) -> str:
    return f"{read.where} has changed since it was checked"


async def _attempt(appender: Appender, document: EpisodeDocument, settings: Settings) -> int | None:
    """Number of this attempt to append a document; None if the log has it. Abandons an interrupted attempt."""
    standing, attempt = appender.standing, 0
    while True:
        episode = request_of(document, settings, attempt=attempt).episode
        if episode in standing.ended:
            return None
        if episode in standing.open:
            await appender.give_up(episode)
        if episode not in standing.gone:
            return attempt
        attempt += 1
