"""States of folds, kept in blobs so that a start folds what follows them and not the whole history.

A snapshot is only a faster start (invariant 1, log is the truth): a reader that finds none folds from the beginning and
comes to the same state. One that is damaged, gone, of other code or of another log is passed over for the one before it.
Who has to know from the log alone (verify, rebuild, audit) never looks at one.
"""

import ast
import asyncio
import gc
import importlib
import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import cache, cached_property
from hashlib import sha256
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from hindcast.core.errors import BlobCorrupt, BlobMissing, CorruptEvent, ForeignLog, UnknownVersion
from hindcast.events.catalogue import SnapshotSaved
from hindcast.events.codec import UNDECODABLE, decode
from hindcast.events.envelope import BlobRef, Stored
from hindcast.events.log.port import EventLog, Expectation
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import Bookmark, check_log
from hindcast.events.subjects import subject_of
from hindcast.storage.blobs.store import BlobStore

S = TypeVar("S")
LOOK_BACK = 4
"""Snapshots that a start tries: retention keeps fewer, so that older ones are gone anyway."""

_log = structlog.get_logger(__name__)


class SnapshotKind(Generic[S]):
    """How the state of one projection is kept. Encoding and decoding are pure."""

    def __init__(
        self,
        projection: str,
        shape: type[S],
        *,
        rules: Sequence[str],
        conditions: str = "",
        to_plain: Callable[[Any], Any] | None = None,
        from_plain: Callable[[type, Any], Any] | None = None,
    ) -> None:
        """`rules`: the modules whose code decides what the state is; `conditions`: whatever else it depends on, such as
        settings; `to_plain`, `from_plain`: for types that msgspec lacks.
        """
        self.projection = projection
        self._shape = shape
        self._rules = rules
        self._conditions = conditions
        self._encoder = msgspec.msgpack.Encoder(enc_hook=to_plain)
        self._decoder = msgspec.msgpack.Decoder(shape, dec_hook=from_plain)

    @cached_property
    def schema(self) -> str:
        """Digest of the state's shape and of the code that folds it: what other code left is folded again, not guessed at."""
        _, shapes = msgspec.json.schema_components(
            [self._shape], schema_hook=lambda kind: {"title": getattr(kind, "__qualname__", str(kind))}
        )
        digest = sha256(msgspec.json.encode([shapes, self._conditions], order="sorted"))
        for name in self._rules:
            digest.update(code_of(name).encode())
        return digest.hexdigest()

    def encode(self, state: S) -> bytes:
        """The state as MessagePack."""
        return self._encoder.encode(state)

    def decode(self, content: bytes) -> S:
        """The state again.

        Raises:
            msgspec.ValidationError, ValueError: it is no such state.

        """
        return self._decoder.decode(content)


@cache
def code_of(module: str) -> str:
    """What a module's source does, without its prose: comments and docstrings change no state."""
    tree = _parsed(inspect.getsource(importlib.import_module(module)))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not _is_prose(line)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _parsed(source: str) -> ast.Module:
    """The syntax tree. Python 3.11 raises SystemError where garbage is collected meanwhile and runs Python code."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if collecting:
            gc.enable()


def _is_prose(line: ast.stmt) -> bool:
    return (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    )


class StoredSnapshot(msgspec.Struct, Generic[S], frozen=True):
    """A state read back, and the fact that names it."""

    saved: SnapshotSaved
    state: S
    content: bytes
    """The state as it is kept, to be decoded again."""

    @property
    def bookmark(self) -> Bookmark:
        """Which log it was folded from, and how far."""
        return Bookmark(position=self.saved.position, digest=self.saved.position_digest, first_digest=b"")


async def append_snapshot(
    log: EventLog,
    publisher: Publisher,
    kind: SnapshotKind[Any],
    blob: BlobRef,
    *,
    position: int,
    position_digest: bytes,
    log_digest: bytes = b"",
) -> int:
    """Record that a state stands in a blob, which is durable already; returns the event's position.

    Raises:
        ExpectationFailed: another process of the same role has recorded one meanwhile.

    """
    subject = subject_of(log.run, SnapshotSaved, key=kind.projection)
    before = await log.last_under(subject)
    fact = SnapshotSaved(
        projection=kind.projection,
        position=position,
        schema=kind.schema,
        position_digest=position_digest,
        log_digest=log_digest,
        previous=before.position if before else 0,
        blob=blob,
    )
    expect = Expectation(subject=subject, last=fact.previous)
    return await publisher.decide(fact, entity=kind.projection, expect=expect)


async def standings(
    log: EventLog, blobs: BlobStore, kind: SnapshotKind[S]
) -> AsyncGenerator[StoredSnapshot[S], None]:
    """The snapshots of a projection that can be gone on from, newest first. What is passed over is warned of."""
    stored = await log.last_under(subject_of(log.run, SnapshotSaved, key=kind.projection))
    for _ in range(LOOK_BACK):
        saved = _fact(stored, kind.projection)
        if saved is None:
            return
        standing = await _read(log, blobs, kind, saved)
        if standing is not None:
            yield standing
        before = await log.read(after=saved.previous - 1, limit=1) if saved.previous else []
        stored = before[0] if before else None


async def newest_standing(log: EventLog, blobs: BlobStore, kind: SnapshotKind[S]) -> StoredSnapshot[S] | None:
    """The newest snapshot that can be gone on from; None: fold from the beginning."""
    async with aclosing(standings(log, blobs, kind)) as found:
        return await anext(found, None)


def _fact(stored: Stored | None, projection: str) -> SnapshotSaved | None:
    """What an event says about a snapshot; None where it says nothing, or is damaged: whoever reads the log will tell."""
    try:
        recorded = None if stored is None else decode(stored, strict=False)
    except (CorruptEvent, UnknownVersion):
        return None
    fact = None if recorded is None else recorded.fact
    return fact if isinstance(fact, SnapshotSaved) and fact.projection == projection else None


async def _read(
    log: EventLog, blobs: BlobStore, kind: SnapshotKind[S], saved: SnapshotSaved
) -> StoredSnapshot[S] | None:
    reason = "it was written by code that folds otherwise"
    if saved.schema == kind.schema:
        try:
            content = await asyncio.to_thread(blobs.get, saved.blob)
            standing = StoredSnapshot(saved, kind.decode(content), content)
            await check_log(log, after=saved.position, bookmark=standing.bookmark)
        except (BlobMissing, BlobCorrupt, ForeignLog, ValueError, *UNDECODABLE) as error:
            reason = str(error)
        else:
            return standing
    _log.warning(
        "a snapshot is passed over; an older one or the whole log is folded",
        projection=saved.projection,
        position=saved.position,
        reason=reason,
    )
    return None
