"""Blobs: stored once, owner-only, checked against their name."""

import errno
import fcntl
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from hindcast.core.errors import BlobCorrupt, BlobMissing, DiskFull
from hindcast.core.ids import digest_hex
from hindcast.events.envelope import BlobRef
from hindcast.storage.blobs.store import BlobStore


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


def test_another_runs_blob_is_kept_whatever_becomes_of_it_there(tmp_path: Path) -> None:
    theirs = BlobStore(tmp_path / "theirs")
    own = BlobStore(tmp_path / "own", also=[tmp_path / "theirs"])
    ref, damaged = theirs.put(b"weights"), theirs.put(b"other")
    theirs.path(damaged).write_bytes(b"OTHER")
    for _ in range(2):
        own.keep(ref)
    assert own.path(ref).stat().st_ino == theirs.path(ref).stat().st_ino, "it takes up no room"
    theirs.release(ref)
    assert BlobStore(tmp_path / "own").get(ref) == b"weights"
    with pytest.raises(BlobCorrupt):
        own.keep(damaged)
    theirs.release(damaged)
    with pytest.raises(BlobMissing):
        own.keep(damaged)


def test_a_blob_that_cannot_be_linked_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = BlobStore(tmp_path / "theirs")
    own = BlobStore(tmp_path / "own", also=[tmp_path / "theirs"])
    ref = theirs.put(b"weights")

    def refused(*_: object) -> None:
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    own.keep(ref)
    theirs.release(ref)
    assert own.get(ref) == b"weights"


def test_a_name_cannot_leave_the_folder(store: BlobStore) -> None:
    with pytest.raises(BlobCorrupt, match=r"no blob's name"):
        store.get(BlobRef("../../etc/passwd", 1))


def test_a_failed_write_leaves_nothing_behind(
    store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match=r"Input/output"):
        BlobStore(tmp_path).put(b"page")
    assert files(tmp_path) == []


@pytest.fixture
def little_room() -> Iterator[int]:
    """A file of this process may not grow beyond this: a write that really fails, wherever the tests run."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    yield 1 << 20
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_without_room_a_put_waits_with_growing_pauses_then_says_so_and_leaves_nothing(
    tmp_path: Path, little_room: int
) -> None:
    pauses: list[float] = []
    store = BlobStore(tmp_path, full_wait_s=20, sleep=pauses.append)
    with pytest.raises(DiskFull, match=r"no room for a blob of 1048577 bytes.*storage\.full_wait_s"):
        store.put(bytes(little_room + 1))
    assert files(tmp_path) == []
    assert pauses == sorted(pauses)
    assert sum(pauses) >= 20
    assert store.put(bytes(little_room)).size == little_room, "what fits is stored"


def test_a_put_goes_on_by_itself_once_there_is_room(tmp_path: Path, little_room: int) -> None:
    pauses: list[float] = []

    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    def make_room(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (64 * little_room, hard))

    store = BlobStore(tmp_path, full_wait_s=20, sleep=make_room)
    content = bytes(10 * little_room)
    assert store.get(store.put(content)) == content
    assert len(pauses) == 3
    assert len(files(tmp_path)) == 1


WRITER = """
import os, stat, sys
from pathlib import Path
from hindcast.storage.blobs.store import BlobStore
sync = os.fsync
def stand_still(descriptor):
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        print("writing", flush=True)
        sys.stdin.readline()
    sync(descriptor)
os.fsync = stand_still
BlobStore(Path(sys.argv[1])).put(b"a page")
print("done", flush=True)
"""


def writing(folder: Path) -> "subprocess.Popen[str]":
    """A process in the midst of a put."""
    command = [sys.executable, "-c", WRITER, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


def test_what_a_killed_process_left_is_swept_and_nothing_of_one_that_lives(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    kept = store.put(b"another page")
    assert store.sweep() == 0
    killed, alive = writing(tmp_path), writing(tmp_path)
    assert len(files(tmp_path)) == 3
    assert store.sweep() == 0, "both are being written"
    killed.kill()
    killed.communicate()
    assert store.sweep() == 1
    assert store.sweep() == 0
    assert alive.communicate("\n", timeout=60)[0] == "done\n"
    assert store.get(BlobRef(digest_hex(b"a page"), 6)) == b"a page"
    assert store.get(kept) == b"another page"
    assert len(files(tmp_path)) == 2


def test_a_file_that_is_swept_before_it_is_locked_is_written_again(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    swept: list[int] = []

    def sweep_first(file: IO[bytes], how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        swept.append(store.sweep())
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    assert store.get(store.put(b"page")) == b"page"
    assert swept == [1]
