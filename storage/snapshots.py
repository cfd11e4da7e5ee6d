"""Snapshots: states of folds in blobs, so that a start folds only the events after them.

A snapshot is only a faster start (invariant 1, log is the truth): folding from the beginning gives the same state. A
snapshot that is damaged, missing, of other code or of another log is skipped for the one before it.
Verify, rebuild and audit never use one: they must rely on the log alone.
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
from hindcast.core.structs import msgpack_decoder
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
"""Snapshots that a start tries; retention keeps fewer."""

_log = structlog.get_logger(__name__)


class SnapshotKind(Generic[S]):
    """How one projection's state is stored. Encoding and decoding are pure."""

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
        """Describe a projection's snapshots.

        `rules`: modules whose code decides what the state is. `conditions`: other dependencies, such as settings. `to_plain`,
        `from_plain`: for types that msgspec lacks.
        """
        self.projection = projection
        self._shape = shape
        self._rules = rules
        self._conditions = conditions
        self._encoder = msgspec.msgpack.Encoder(enc_hook=to_plain)
        self._decoder = msgpack_decoder(shape, hook=from_plain)

    @cached_property
    def schema(self) -> str:
        """Digest of the state's shape and of the code that folds it: a state left by other code is folded again."""
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
        """Decode a state.

        Raises:
            msgspec.ValidationError, ValueError: the content is no such state.
        """
        return self._decoder.decode(content)


@cache
def code_of(module: str) -> str:
    """A module's code without comments and docstrings, which change no state."""
    tree = _parsed(inspect.getsource(importlib.import_module(module)))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not _is_prose(line)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _parsed(source: str) -> ast.Module:
    """The syntax tree. Python 3.11 raises SystemError if a garbage collection runs Python code meanwhile."""
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
    """A state read back, and the event that names it."""

    saved: SnapshotSaved
    state: S
    content: bytes
    """The encoded state, to be decoded again."""

    @property
    def bookmark(self) -> Bookmark:
        """The log and position that it was folded from."""
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
    """Record that a durable blob holds a state; returns the event's position.

    Raises:
        ExpectationFailed: another process of the same role recorded one meanwhile.
    """
    subject = subject_of(log.run, SnapshotSaved, key=kind.projection)
    previous = await log.last_under(subject)
    fact = SnapshotSaved(
        projection=kind.projection,
        position=position,
        schema=kind.schema,
        position_digest=position_digest,
        log_digest=log_digest,
        previous=previous.position if previous else 0,
        blob=blob,
    )
    expect = Expectation(subject=subject, last=fact.previous)
    return await publisher.decide(fact, entity=kind.projection, expect=expect)


async def standings(
    log: EventLog, blobs: BlobStore, kind: SnapshotKind[S]
) -> AsyncGenerator[StoredSnapshot[S], None]:
    """The usable snapshots of a projection, newest first. Logs a warning for each skipped one."""
    event = await log.last_under(subject_of(log.run, SnapshotSaved, key=kind.projection))
    for _ in range(LOOK_BACK):
        saved = _fact(event, kind.projection)
        if saved is None:
            return
        standing = await _load_state(log, blobs, kind, saved)
        if standing is not None:
            yield standing
        earlier_events = await log.read(after=saved.previous - 1, limit=1) if saved.previous else []
        event = earlier_events[0] if earlier_events else None


async def newest_standing(log: EventLog, blobs: BlobStore, kind: SnapshotKind[S]) -> StoredSnapshot[S] | None:
    """The newest usable snapshot; None: fold from the beginning."""
    async with aclosing(standings(log, blobs, kind)) as usable:
        return await anext(usable, None)


def _fact(stored: Stored | None, projection: str) -> SnapshotSaved | None:
    """The snapshot event, or None if it is another event or damaged: the log's reader reports damage."""
    try:
        recorded = None if stored is None else decode(stored, strict=False)
    except (CorruptEvent, UnknownVersion):
        return None
    fact = None if recorded is None else recorded.fact
    return fact if isinstance(fact, SnapshotSaved) and fact.projection == projection else None


async def _load_state(
    log: EventLog, blobs: BlobStore, kind: SnapshotKind[S], saved: SnapshotSaved
) -> StoredSnapshot[S] | None:
    reason = "it was written by code that folds in another way"
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
        "a snapshot is skipped; an older one is used, or the whole log is folded",
        projection=saved.projection,
        position=saved.position,
        reason=reason,
    )
    return None
