"""Checkpoints are exact, a function of their content, and never trusted."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from hindcast.core.errors import BlobMissing, CheckpointCorrupt
from hindcast.events.envelope import BlobRef
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.checkpoints import (
    Counters,
    TensorPart,
    encode_checkpoint,
    load_checkpoint,
    save_checkpoint,
    save_manifest,
    save_shard,
)

pytestmark = pytest.mark.torch

COUNTERS = Counters(update=7, batch=3, version=4, state="ab" * 32)
TENSORS = {
    "weights/b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "optimizer/b/step": np.array(7.0, dtype=np.float32),
    "optimizer/b/exp_avg": np.array([[np.nan, np.inf, -0.0]], dtype=np.float32),
}


def test_a_checkpoint_comes_back_bit_for_bit_scalars_included(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    _, tensors, counters = load_checkpoint(blobs, save_checkpoint(blobs, TENSORS, COUNTERS))
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


def in_shards(blobs: BlobStore) -> tuple[BlobRef, list[BlobRef]]:
    """`weights/b` in three parts, as processes hold them: the last has no row of it."""
    split = np.asarray(TENSORS["weights/b"])
    shards = [save_shard(blobs, {"weights/b": rows}) for rows in (split[:1], split[1:], split[2:])]
    rest = {name: value for name, value in TENSORS.items() if name != "weights/b"}
    return save_manifest(blobs, rest, COUNTERS, shapes={"weights/b": (2, 3)}, shards=shards), shards


def test_shards_come_back_as_the_whole_and_can_be_written_in_one_piece(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    found = load_checkpoint(blobs, in_shards(blobs)[0])
    assert found.counters == COUNTERS
    assert encode_checkpoint(found.tensors, found.counters) == encode_checkpoint(TENSORS, COUNTERS)
    with pytest.raises(KeyError):
        found.tensors["weights/c"]


def test_files_are_checked_without_being_held_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is checked in chunks; `get` would hold it in memory."""
    blobs = BlobStore(tmp_path)
    ref, shards = in_shards(blobs)

    def get(_ref: BlobRef) -> bytes:
        raise AssertionError("a whole file was read")

    monkeypatch.setattr(blobs, "get", get)
    assert load_checkpoint(blobs, ref).counters == COUNTERS
    place = blobs.path(shards[0])
    place.write_bytes(place.read_bytes()[:-1] + b"\x01")
    with pytest.raises(CheckpointCorrupt, match="is damaged"):
        load_checkpoint(blobs, ref)


def test_a_shard_that_goes_while_its_checkpoint_is_read_is_a_worded_error(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    ref, shards = in_shards(blobs)
    found = load_checkpoint(blobs, ref)
    blobs.release(shards[1])
    with pytest.raises(BlobMissing, match="went while it was being read"):
        found.tensors["weights/b"]


def test_a_part_of_the_tensors_is_named_without_its_folder() -> None:
    tensors = {"critic/weights/a": np.zeros(1), "weights/a": np.ones(2)}
    inner = TensorPart(tensors, "critic/", within="critic")
    assert (list(inner), len(inner["weights/a"])) == (["weights/a"], 1)
    assert list(TensorPart(tensors, "weights/", "optimizer/")) == ["weights/a"]


def test_a_shard_that_is_gone_damaged_or_of_another_shape_is_a_worded_error(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    ref, shards = in_shards(blobs)
    kept = blobs.path(shards[1]).read_bytes()
    blobs.path(shards[1]).write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(CheckpointCorrupt, match=r"cannot be read"):
        load_checkpoint(blobs, ref)
    blobs.path(shards[1]).write_bytes(kept)
    assert load_checkpoint(blobs, ref).counters == COUNTERS
    for wanted, told in ((3, 3), "2 rows in the shards, 3"), ((2, 4), r"rows of \[3\] in a shard, \[4\]"):
        other = save_manifest(blobs, {}, COUNTERS, shapes={"weights/b": wanted}, shards=shards)
        with pytest.raises(CheckpointCorrupt, match=told):
            load_checkpoint(blobs, other)
    blobs.release(shards[0])
    with pytest.raises(CheckpointCorrupt, match="is not in"):
        load_checkpoint(blobs, ref)
