"""Checkpoints: weights, optimiser state and counters in one safetensors blob, never a pickle.

A checkpoint is only a faster start (invariant 1, log is the truth): what it holds can be computed again from the log.
The bytes are a function of the content, so that equal states make equal blobs.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from core.errors import BlobCorrupt, BlobMissing, CheckpointCorrupt
from events.envelope import BlobRef
from storage.blobs import BlobStore

Tensors = Mapping[str, NDArray[np.generic]]

_KEY = "hindcast"
"""The one metadata key: safetensors writes several in no fixed order."""


class Counters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where in the run a checkpoint stands."""

    update: int
    """Optimiser steps on the policy so far."""
    batch: int
    """Last batch it contains."""
    version: int
    """Policy version of its weights."""
    state: str
    """Digest of weights and optimiser states (`core.states.combined`)."""
    beside: dict[str, int] = {}
    """Optimiser steps of each model beside the policy, by name; left out where there is none."""


def encode_checkpoint(tensors: Tensors, counters: Counters) -> bytes:
    """The bytes of a checkpoint: the same for equal tensors and counters, in any order of the names."""
    ordered = {name: np.asarray(tensors[name], order="C") for name in sorted(tensors)}
    content: bytes = save(ordered, metadata={_KEY: json.dumps(msgspec.to_builtins(counters), sort_keys=True)})
    return content


def save_checkpoint(blobs: BlobStore, tensors: Tensors, counters: Counters) -> BlobRef:
    """Store a checkpoint; durable when this returns. Blocking."""
    return blobs.put(encode_checkpoint(tensors, counters))


def decode_checkpoint(content: bytes) -> tuple[dict[str, NDArray[np.generic]], Counters]:
    """What `encode_checkpoint` made bytes of: of whoever made them, in the same run."""
    with TemporaryDirectory() as folder:  # safetensors reads metadata from files alone
        path = Path(folder, "checkpoint")
        path.write_bytes(content)
        return _read(path)


def _read(path: Path) -> tuple[dict[str, NDArray[np.generic]], Counters]:
    with safe_open(path, framework="numpy") as file:
        counters = msgspec.json.decode((file.metadata() or {})[_KEY], type=Counters)
        return {name: file.get_tensor(name) for name in file.keys()}, counters  # noqa: SIM118


def load_checkpoint(blobs: BlobStore, ref: BlobRef) -> tuple[dict[str, NDArray[np.generic]], Counters]:
    """Tensors by name, and counters. Blocking.

    Raises:
        CheckpointCorrupt: the blob is gone, has other bytes than its digest says, or is not a checkpoint.

    """
    try:
        blobs.get(ref)
        return _read(blobs.path(ref))
    except (BlobMissing, BlobCorrupt, SafetensorError, KeyError, msgspec.MsgspecError, OSError) as error:
        raise CheckpointCorrupt(
            f"the checkpoint {ref.sha256[:16]}… ({ref.size} bytes) cannot be read: {error}. Its weights can be computed "
            "again from an older checkpoint or from the base policy, as the learner does by itself."
        ) from error
