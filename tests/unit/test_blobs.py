"""Blobs: stored once, owner-only, checked against their name."""

import os
import stat
from pathlib import Path

import pytest

from core.errors import BlobCorrupt, BlobMissing
from events.envelope import BlobRef
from storage.blobs import BlobStore


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "runs" / "r1" / "blobs")


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_is_put_can_be_got(store: BlobStore) -> None:
    content = os.urandom(100_000)
    ref = store.put(content)
    assert store.get(ref) == content
    assert store.path(ref).read_bytes() == content
    assert store.has(ref)


def test_the_empty_blob_is_a_blob(store: BlobStore) -> None:
    assert store.get(store.put(b"")) == b""


def test_equal_content_is_stored_once(store: BlobStore, tmp_path: Path) -> None:
    assert store.put(b"page") == store.put(b"page")
    assert BlobStore(tmp_path / "runs" / "r1" / "blobs").put(b"page") == store.put(b"page")
    assert len(files(tmp_path)) == 1


def test_blobs_are_fanned_out_on_two_levels(store: BlobStore) -> None:
    ref = store.put(b"page")
    assert store.path(ref).parts[-3:] == (ref.sha256[:2], ref.sha256[2:4], ref.sha256)


def test_only_the_owner_can_read_blobs(store: BlobStore, tmp_path: Path) -> None:
    path = store.path(store.put(b"secret"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_missing_blob_is_named(store: BlobStore) -> None:
    absent = BlobRef("ab" * 32, 7)
    for call in (store.get, store.path):
        with pytest.raises(BlobMissing, match=r"abababab.*not in"):
            call(absent)
    assert not store.has(absent)


def test_changed_bytes_are_noticed(store: BlobStore) -> None:
    ref = store.put(b"one page")
    store.path(ref).write_bytes(b"one pagE")
    with pytest.raises(BlobCorrupt, match=r"damaged"):
        store.get(ref)


def test_a_truncated_blob_is_noticed_without_reading_it_and_healed_by_putting_again(store: BlobStore) -> None:
    ref = store.put(b"one page")
    store.path(ref).write_bytes(b"one")
    assert not store.has(ref)
    with pytest.raises(BlobCorrupt, match=r"3 bytes"):
        store.path(ref)
    store.put(b"one page")
    assert store.get(ref) == b"one page"


def test_a_released_blob_is_gone_and_may_be_released_again(store: BlobStore) -> None:
    ref = store.put(b"old weights")
    store.release(ref)
    store.release(ref)
    assert not store.has(ref)


def test_a_name_cannot_leave_the_folder(store: BlobStore) -> None:
    with pytest.raises(BlobCorrupt, match=r"no blob's name"):
        store.get(BlobRef("../../etc/passwd", 1))


def test_a_failed_write_leaves_nothing_behind(
    store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match=r"No space"):
        BlobStore(tmp_path).put(b"page")
    assert files(tmp_path) == []
