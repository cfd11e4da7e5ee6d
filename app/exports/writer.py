"""Writes an export: reads the log once, and each format takes what it needs.

    log ──> facts ─────────────> Writer.fact
              └─> Assembler ───> Writer.episode ──> pages and images from the blobs, verdicts from the read model

Reads the log up to a position and the read model as of it. Produces files in a folder, and `export.json` with the run,
the position and the log digest.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
from sqlalchemy import Connection

from hindcast.app.exports.episodes import AssembledEpisode, EpisodeAssembler
from hindcast.core.domain.observation import Page
from hindcast.core.errors import HindcastError
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import RunStarted
from hindcast.events.envelope import BlobRef, Recorded
from hindcast.events.log.hash_chain import RollingDigest
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import read
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.readmodel.episode_filter import EpisodeFilter, matching_episodes, verdicts_of
from hindcast.storage.readmodel.results import VerdictRow

MANIFEST = "export.json"


class Verdict(msgspec.Struct, frozen=True):
    """Verdict of the training judge on an episode."""

    outcome: str | None
    """None: no verdict yet."""
    reward: float | None


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Provenance of an export."""

    run: str
    position: int
    """Position of the last event in the export."""
    filter: EpisodeFilter
    settings: Settings
    code_rev: str
    """Revision of the Hindcast that wrote it."""


class Sources:
    """Data that a writer may read in addition to the facts."""

    def __init__(
        self,
        origin: Origin,
        *,
        connection: Connection,
        blobs: BlobStore,
        chosen: Mapping[str, Verdict],
    ) -> None:
        self.origin = origin
        self.connection = connection
        self.chosen = chosen
        self._blobs = blobs

    def verdicts(self, episode: str) -> list[VerdictRow]:
        """Verdicts of every judge on an episode."""
        return verdicts_of(self.connection, episode, as_of=self.origin.position)

    def page(self, ref: BlobRef | None) -> Page | None:
        """A recorded page; None: it was not recorded, or was deleted."""
        content = self.content(ref)
        return None if content is None else msgspec.msgpack.decode(content, type=Page)

    def text(self, page: Page) -> str:
        """A page as the run's policy reads it."""
        return RENDERERS[self.origin.settings.actors.renderer](page)

    def content(self, ref: BlobRef | None) -> bytes | None:
        """A blob's content; None: it was not recorded, or was deleted. Raises BlobCorrupt."""
        return None if ref is None or not self._blobs.has(ref) else self._blobs.get(ref)


class Writer(Protocol):
    """Writer of one format."""

    def fact(self, recorded: Recorded) -> None:
        """Take every event of the run up to the position, in order; of episodes, only those of wanted ones."""
        ...

    def episode(self, played: AssembledEpisode) -> None:
        """Take every wanted episode that ended by itself, in the order of their ends."""
        ...

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Finish the files; returns counts by kind. `log_digest`: rolling digest of everything up to the position."""
        ...


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an export, also written to `export.json`."""

    format: str
    run: str
    position: int
    log_digest: str
    """Rolling sha256 over the events up to there, as in `batch.planned`."""
    recipe: str
    base_policy: str
    base_policy_sha256: str
    filter: dict[str, Any]
    counts: dict[str, int]
    code_rev: str


def choose(connection: Connection, origin: Origin) -> dict[str, Verdict]:
    """The wanted episodes with their verdicts; about 100 bytes each."""
    shared: dict[tuple[str | None, float | None], Verdict] = {}
    return {
        row.episode: shared.setdefault((row.outcome, row.reward), Verdict(row.outcome, row.reward))
        for row in matching_episodes(connection, origin.filter, as_of=origin.position)
    }


async def write_export(
    log: EventLog,
    sources: Sources,
    writer: Writer,
    folder: Path,
    *,
    format_name: str,
    on_event: Callable[[int], None] = lambda _: None,
) -> Exported:
    """Read the log once through the writer; afterwards `folder` holds the files.

    Raises:
        CorruptEvent, ForeignLog, UnknownVersion: the log cannot be trusted or understood.

    """
    origin, chosen = sources.origin, sources.chosen
    assembler, digest = EpisodeAssembler(chosen), RollingDigest()
    started: RunStarted | None = None
    async for recorded in read(log, until=origin.position):
        digest.advance(recorded.digest)
        fact = recorded.fact
        if isinstance(fact, RunStarted) and started is None:
            started = fact
        about = getattr(fact, "episode", None)
        if about is None or origin.filter.everything or about in chosen:
            writer.fact(recorded)
        played = assembler.take(recorded)
        if played is not None:
            writer.episode(played)
        on_event(recorded.position)
    if started is None:
        raise HindcastError(f"the log of run {origin.run} holds nothing up to position {origin.position} yet")
    done = Exported(
        format=format_name,
        run=origin.run,
        position=origin.position,
        log_digest=digest.value.hex(),
        recipe=started.recipe,
        base_policy=started.base_policy_name,
        base_policy_sha256=started.base_policy.sha256,
        filter={k: v for k, v in msgspec.to_builtins(origin.filter).items() if v is not None},
        counts=dict(writer.close(digest.value.hex())),
        code_rev=origin.code_rev,
    )
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(done), indent=2) + b"\n")
    return done
