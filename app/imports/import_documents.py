"""`hindcast demonstrations import` and `hindcast import`: import a file into a run's log, all of it or nothing.

    file ──> documents ──> check ──> replay ──> (all are valid) ──> append, one episode after the other

Every document is read and replayed twice: first to check all of them, then to append them, so that memory holds one. A
document's content identifies its episode: those already in the log are skipped, so the same command resumes an
interrupted import.

Episodes of another system's run have scores already, so the run's training judge judges them at once.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hindcast.actors.environments.base import TaskSource
from hindcast.actors.episodes.recorder import Abandoned
from hindcast.actors.judges.rules import RULES
from hindcast.actors.judges.second_opinion import SecondOpinion
from hindcast.actors.replay.recorded import EpisodeSelection
from hindcast.app.demonstrations.pending import Appender, DemonstratedEpisode, appending
from hindcast.app.evaluation.rejudge import rejudge
from hindcast.app.exports.document import EpisodeDocument
from hindcast.app.imports.check import check
from hindcast.app.imports.conversation import Conversation
from hindcast.app.imports.decoder import DocumentError
from hindcast.app.imports.documents import (
    DEMONSTRATIONS,
    ImportRefused,
    LocatedDocument,
    read_documents,
    refused,
)
from hindcast.app.imports.imported_episode import episode_of, request_of_conversation
from hindcast.app.imports.player import SOURCE, play, request_of
from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.judges import open_judge
from hindcast.app.system.sites import task_sources
from hindcast.core.models.folders import policy_folder
from hindcast.core.models.tokenizer import load_tokenizer
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue.curriculum import IMPORTED

NAME = "importer"
"""Name of the importing actor, `actor.importer` in the facts."""


class ImportedEpisodes(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an import."""

    run: str
    episodes: int
    """Episodes appended."""
    present: int
    """Episodes skipped because the log has them already or the file has them twice."""
    steps: int
    """Steps of the appended episodes."""
    abandoned: int
    """Appended episodes that failed where they were recorded, so nobody judges them."""
    judge: str
    """Name of the judge of the outcomes."""
    outcomes: dict[str, int]
    """Outcomes of the appended episodes. Those by the rules are not recorded: the run's judges judge at its next start."""
    position: int
    """Position of the last event of the last episode; 0: nothing was appended."""


async def try_out(
    path: Path, settings: Settings, *, format_name: str, said: Callable[[int], None] = lambda _: None
) -> int:
    """Read, check and replay every document without a run. Returns the number of documents.

    Raises:
        ImportRefused: a document is invalid; names file, line and key.

    """
    tokenizer = await asyncio.to_thread(load_tokenizer, policy_folder(settings.policy.base))
    sources, number = task_sources(settings), 0
    for read in read_documents(path, format_name):
        try:
            await _demonstration(read.document, settings, tokenizer, sources=sources)
        except DocumentError as wrong:
            raise refused(read.where, wrong) from wrong
        number += 1
        said(number)
    if not number:
        raise ImportRefused(f"{path} holds no demonstration")
    return number


async def import_documents(
    handle: RunHandle, path: Path, *, format_name: str, said: Callable[[int], None] = lambda _: None
) -> ImportedEpisodes:
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
    appended: set[str] = set()
    position, judge = 0, RULES.name
    async with appending(handle, name=NAME, source=SOURCE) as appender:
        for number, read in enumerate(read_documents(path, format_name), 1):
            said(number)
            attempt = await _attempt(appender, read.document, settings)
            if attempt is None:
                counts["present"] += 1
                continue
            try:
                shown = await _demonstration(
                    read.document, settings, tokenizer, sources=sources, attempt=attempt
                )
            except DocumentError as wrong:
                raise ImportRefused(f"{_late(read)}: {wrong}. What was appended before stays") from wrong
            position = await appender.append(shown)
            appended.add(shown.request.episode)
            counts["steps"] += len(shown.steps)
            if isinstance(shown.ended, Abandoned):
                counts["abandoned"] += 1
            else:
                outcomes[shown.judgment.outcome] += 1
    if format_name not in DEMONSTRATIONS:
        judge, outcomes = settings.judge.judges[0], await _judge(handle, appended)
    return ImportedEpisodes(
        run=handle.name,
        episodes=len(appended),
        present=counts["present"],
        steps=counts["steps"],
        abandoned=counts["abandoned"],
        judge=judge,
        outcomes=dict(sorted(outcomes.items())),
        position=position,
    )


async def _judge(handle: RunHandle, appended: Collection[str]) -> Counter[str]:
    """Append verdicts of the run's training judge; returns the outcomes of the episodes that this import appended."""
    outcomes: Counter[str] = Counter()

    def count(opinion: SecondOpinion) -> None:
        if opinion.episode in appended:
            outcomes[opinion.new.outcome] += 1

    settings = handle.settings
    async with open_judge(settings.judge.judges[0], handle, settings) as judge:
        await rejudge(handle, EpisodeSelection(origin=IMPORTED), judge=judge, save_to=handle, said=count)
    return outcomes


def _late(read: LocatedDocument) -> str:
    return f"{read.where} has changed since it was checked"


async def _demonstration(
    document: EpisodeDocument | Conversation,
    settings: Settings,
    tokenizer: Any,
    *,
    sources: Mapping[str, TaskSource],
    attempt: int = 0,
) -> DemonstratedEpisode:
    """Convert a document to the facts of an episode. Raises DocumentError."""
    if isinstance(document, Conversation):
        return await episode_of(document, settings, tokenizer, attempt=attempt)
    check(document, settings, sources=sources)
    return await play(document, settings, tokenizer, attempt=attempt)


async def _attempt(
    appender: Appender, document: EpisodeDocument | Conversation, settings: Settings
) -> int | None:
    """Number of this attempt to append a document; None if the log has it. Abandons an interrupted attempt."""
    standing, attempt = appender.standing, 0
    while True:
        request = (
            request_of_conversation(document, settings, attempt=attempt)
            if isinstance(document, Conversation)
            else request_of(document, settings, attempt=attempt)
        )
        episode = request.episode
        if episode in standing.ended:
            return None
        if episode in standing.open:
            await appender.give_up(episode)
        if episode not in standing.gone:
            return attempt
        if isinstance(document, Conversation) and document.failure:
            return None  # it was to be abandoned
        attempt += 1
