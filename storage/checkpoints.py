"""Checkpoints: weights, optimizer state and counters as safetensors blobs, never a pickle.

    one process:  blob     = every tensor, counters
    several:      shard r  = the rows of each sharded tensor that process r holds; concatenated in order of r
                  blob     = tensors that are not sharded, counters, shapes of sharded tensors, digests of the shards

A checkpoint is only a faster start (invariant 1, log is the truth): its content can be recomputed from the log.
Equal states give equal bytes. A shard means nothing alone: the event `checkpoint.saved`, appended once all are stored,
makes them a checkpoint. Reading returns whole tensors, so any number of processes can read what any other number wrote.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from hindcast.core.errors import BlobCorrupt, BlobMissing, CheckpointCorrupt
from hindcast.core.ids import digest_hex
from hindcast.core.structs import convert, decode_json
from hindcast.events.codec import UNDECODABLE
from hindcast.events.envelope import BlobRef
from hindcast.storage.blobs.store import BlobStore

Tensors = Mapping[str, NDArray[np.generic]]

_KEY = "hindcast"
"""The only metadata key: safetensors writes several keys in no fixed order."""
UNREADABLE = (
    BlobMissing,
    BlobCorrupt,
    SafetensorError,
    OSError,
    MemoryError,
    *UNDECODABLE,
    LookupError,
    TypeError,
    ValueError,
)
"""Errors of a blob that is no checkpoint: a shape without rows, a type that numpy lacks, a nested head."""


class Counters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The point of a run that a checkpoint was saved at."""

    update: int
    """Optimizer steps of the policy so far."""
    batch: int
    """Last batch it contains."""
    version: int
    """Policy version of its weights."""
    state: str
    """Digest of weights and optimizer states (`core.rl.combined_state.combined`)."""
    beside: dict[str, int] = {}
    """Optimizer steps of each auxiliary model, by name; left out if there is none."""


class _Head(Counters, frozen=True, kw_only=True, omit_defaults=True):
    """Metadata of a checkpoint's file."""

    shards: tuple[BlobRef, ...] = ()
    shapes: dict[str, tuple[int, ...]] = {}
    """Whole shapes of the sharded tensors."""


class Checkpoint(NamedTuple):
    """A checkpoint that was read."""

    ref: BlobRef
    tensors: Tensors
    """Whole tensors. Of a sharded checkpoint each is joined on access, so that only one is in memory."""
    counters: Counters


class Saved(NamedTuple):
    """A checkpoint that was stored."""

    blob: BlobRef
    counters: Counters
    shards: tuple[BlobRef, ...] = ()


class BlobSink(Protocol):
    """The part of a blob store that saving a checkpoint needs."""

    def put(self, content: bytes) -> BlobRef:
        """See `BlobStore.put`."""
        ...

    def has(self, ref: BlobRef) -> bool:
        """See `BlobStore.has`."""
        ...


class DigestOnlySink:
    """Computes references of blobs without storing them, for comparisons with stored ones."""

    content = b""
    """Content of the last blob."""

    def put(self, content: bytes) -> BlobRef:
        """See `BlobStore.put`."""
        self.content = content
        return BlobRef(digest_hex(content), len(content))

    def has(self, ref: BlobRef) -> bool:
        """Always True: what has a reference counts as stored, as the parts of other processes do."""
        return True


class TensorPart(Mapping[str, NDArray[np.generic]]):
    """Tensors whose names have one of the prefixes; read on access."""

    def __init__(self, tensors: Tensors, *prefixes: str, within: str = "") -> None:
        """`within`: a folder that the names begin with, and that is cut off here."""
        cut = len(within) + 1 if within else 0
        self._tensors = tensors
        self._names = {name[cut:]: name for name in tensors if name.startswith(prefixes)}

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        return self._tensors[self._names[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _ShardedTensors(Mapping[str, NDArray[np.generic]]):
    """Whole tensors of a sharded checkpoint."""

    def __init__(self, whole_tensors: Tensors, head: _Head, shards: Sequence[Path]) -> None:
        self._whole_tensors = whole_tensors
        self._head = head
        self._shards = shards

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        if name in self._whole_tensors:
            return self._whole_tensors[name]
        if name not in self._head.shapes:
            raise KeyError(name)
        rows = []
        for path in self._shards:
            try:
                with safe_open(path, framework="numpy") as file:
                    rows.append(file.get_tensor(name))
            except (SafetensorError, OSError) as error:  # it was complete when the checkpoint was opened
                raise BlobMissing(
                    f"the part {path.name[:16]}… of a checkpoint went while it was being read: {error}. Start again: if this "
                    "checkpoint was released, an older one is used."
                ) from error
        tensor: NDArray[np.generic] = np.concatenate(rows)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._whole_tensors, *self._head.shapes}))

    def __len__(self) -> int:
        return len(self._whole_tensors) + len(self._head.shapes)


def encode_checkpoint(tensors: Tensors, counters: Counters) -> bytes:
    """The bytes of a checkpoint: equal for equal tensors and counters, in any order of the names."""
    content: bytes = save(
        _ordered(tensors), metadata={_KEY: json.dumps(msgspec.to_builtins(counters), sort_keys=True)}
    )
    return content


def _ordered(tensors: Tensors) -> dict[str, NDArray[np.generic]]:
    return {name: np.asarray(tensors[name], order="C") for name in sorted(tensors)}


def save_checkpoint(blobs: BlobSink, tensors: Tensors, counters: Counters) -> BlobRef:
    """Store a checkpoint as one blob; durable on return. Blocking."""
    return blobs.put(encode_checkpoint(tensors, counters))


def save_shard(blobs: BlobSink, rows: Tensors) -> BlobRef:
    """Store one process's rows of every sharded tensor; durable on return. Blocking."""
    return blobs.put(save(_ordered(rows)))


def save_manifest(
    blobs: BlobSink,
    tensors: Tensors,
    counters: Counters,
    *,
    shapes: Mapping[str, tuple[int, ...]],
    shards: Sequence[BlobRef],
) -> BlobRef:
    """Store a sharded checkpoint's other tensors and the list of its shards by rank, once all shards are stored. Blocking."""
    fields = msgspec.structs.asdict(counters)
    return blobs.put(encode_checkpoint(tensors, _Head(**fields, shards=tuple(shards), shapes=dict(shapes))))


def load_checkpoint(blobs: BlobStore, ref: BlobRef) -> Checkpoint:
    """Read a checkpoint, whole or sharded, after checking every blob against its digest. Blocking.

    Raises:
        CheckpointCorrupt: a blob is missing, has other bytes than its digest says, or is not a checkpoint.
    """
    try:
        tensors, head = _read_file(blobs.checked_path(ref))
        counters = convert(head, Counters, from_attributes=True)
        if not head.shards:
            return Checkpoint(ref, tensors, counters)
        paths = [blobs.checked_path(shard) for shard in head.shards]
        _require_rows(head, paths)
        return Checkpoint(ref, _ShardedTensors(tensors, head, paths), counters)
    except UNREADABLE as error:
        raise CheckpointCorrupt(
            f"the checkpoint {ref.sha256[:16]}… ({ref.size} bytes) cannot be read: {error}. Its weights can be computed "
            "again from an older checkpoint or from the base policy, as the learner does by itself."
        ) from error


def _read_file(path: Path) -> tuple[dict[str, NDArray[np.generic]], _Head]:
    with safe_open(path, framework="numpy") as file:
        head = decode_json((file.metadata() or {})[_KEY], _Head)
        return {name: file.get_tensor(name) for name in file.keys()}, head  # noqa: SIM118


def _require_rows(head: _Head, shards: Sequence[Path]) -> None:
    """Raise KeyError if the shards do not match the tensors of their manifest."""
    rows = dict.fromkeys(head.shapes, 0)
    for path in shards:
        with safe_open(path, framework="numpy") as file:
            for name, shape in head.shapes.items():
                first, *row_shape = file.get_slice(name).get_shape()
                if row_shape != list(shape[1:]):
                    raise KeyError(
                        f"{name} has rows of {row_shape} in a shard, {list(shape[1:])} in the manifest"
                    )
                rows[name] += first
    for name, shape in head.shapes.items():
        if rows[name] != shape[0]:
            raise KeyError(f"{name} has {rows[name]} rows in the shards, {shape[0]} in the manifest")
