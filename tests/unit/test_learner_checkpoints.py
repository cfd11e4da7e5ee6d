"""Checkpoints are exact, a function of their content, and never trusted."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from core.errors import CheckpointCorrupt
from events.envelope import BlobRef
from storage.blobs import BlobStore
from storage.checkpoints import Counters, encode_checkpoint, load_checkpoint, save_checkpoint

COUNTERS = Counters(update=7, batch=3, version=4, state="ab" * 32)
TENSORS = {
    "weights/b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "optimizer/b/step": np.array(7.0, dtype=np.float32),
    "optimizer/b/exp_avg": np.array([[np.nan, np.inf, -0.0]], dtype=np.float32),
}


def test_a_checkpoint_comes_back_bit_for_bit_scalars_included(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    tensors, counters = load_checkpoint(blobs, save_checkpoint(blobs, TENSORS, COUNTERS))
    assert counters == COUNTERS
    assert set(tensors) == set(TENSORS)
    for name, value in TENSORS.items():
        assert tensors[name].shape == value.shape
        assert tensors[name].tobytes() == value.tobytes()


def test_equal_content_makes_equal_bytes_in_any_order_of_names() -> None:
    turned = dict(reversed(TENSORS.items()))
    assert encode_checkpoint(turned, COUNTERS) == encode_checkpoint(TENSORS, COUNTERS)
    other = Counters(update=8, batch=3, version=4, state="ab" * 32)
    assert encode_checkpoint(TENSORS, other) != encode_checkpoint(TENSORS, COUNTERS)


def test_a_flipped_bit_a_cut_file_and_a_missing_one_are_worded_errors(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    ref = save_checkpoint(blobs, TENSORS, COUNTERS)
    path = blobs.path(ref)
    content = path.read_bytes()
    for damaged in (content[:-1] + bytes([content[-1] ^ 1]), content[:-9]):
        path.write_bytes(damaged)
        with pytest.raises(
            CheckpointCorrupt, match=r"cannot be read.*computed again from an older checkpoint"
        ):
            load_checkpoint(blobs, ref)
    blobs.release(ref)
    with pytest.raises(CheckpointCorrupt, match="is not in"):
        load_checkpoint(blobs, ref)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not safetensors at all",
        save({"a": np.zeros(1)}),
        save({"a": np.zeros(1)}, metadata={"hindcast": "{}"}),
    ],
    ids=["empty", "text", "no counters", "empty counters"],
)
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, content: bytes) -> None:
    blobs = BlobStore(tmp_path)
    with pytest.raises(CheckpointCorrupt, match=r"cannot be read"):
        load_checkpoint(blobs, blobs.put(content))


def test_a_name_that_is_no_digest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointCorrupt):
        load_checkpoint(BlobStore(tmp_path), BlobRef("../../etc/passwd", 3))
