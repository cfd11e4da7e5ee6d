"""Blobs in a bucket, over a real connection to a server that speaks S3."""

import errno
import os
import time
import uuid
from pathlib import Path

import pytest

from bench.peaks import forget_peak, peak_mib
from hindcast.app.runs.runs import RunHandle
from hindcast.app.settings.configuration import resolve
from hindcast.core.errors import BlobCorrupt, BlobMissing, BlobsUnreachable, DiskFull, SettingsError
from hindcast.core.ids import digest_hex
from hindcast.core.settings.operation import StorageSettings
from hindcast.events.envelope import BlobRef
from hindcast.storage.blobs.bucket import Bucket
from hindcast.storage.blobs.remote import FRESH_S, RemoteBlobStore, open_blobs
from servers.s3_server import BUCKET, S3Server, s3_server  # noqa: F401  # fixture

LONG_AGO_S = FRESH_S + 60


@pytest.fixture
def prefix(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: F811
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


def bucket(prefix: str, run: str = "r") -> Bucket:
    return Bucket(f"{prefix}/{run}", retry_s=10)


def machine(
    folder: Path, prefix: str, *, cache_bytes: int = 1 << 20, run: str = "r", older: str = ""
) -> RemoteBlobStore:
    buckets = [bucket(prefix, run), *([bucket(prefix, older)] if older else [])]
    return RemoteBlobStore(folder, buckets, cache_bytes=cache_bytes)


def test_what_one_machine_puts_another_reads_by_content_and_by_path(tmp_path: Path, prefix: str) -> None:
    first, second = machine(tmp_path / "a", prefix), machine(tmp_path / "b", prefix)
    ref = first.put(b"weights")
    assert ref == BlobRef(digest_hex(b"weights"), 7)
    assert second.has(ref)
    assert second.path(ref).read_bytes() == b"weights"
    assert second.path(ref).is_relative_to(tmp_path / "b")
    assert machine(tmp_path / "c", prefix).get(ref) == b"weights"


def test_a_name_that_is_taken_keeps_its_content(prefix: str) -> None:
    store = bucket(prefix)
    store.put("name", b"first")
    store.put("name", b"other")
    assert store.get("name") == b"first"


def test_a_blob_sent_in_parts_arrives_whole_and_once(
    tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hindcast.storage.blobs.bucket.PART_BYTES", 5 << 20)
    content = os.urandom(11 << 20)
    store = machine(tmp_path / "a", prefix)
    ref = store.put(content)
    assert store.put(content) == ref
    assert machine(tmp_path / "b", prefix).get(ref) == content


def test_a_blob_is_fetched_into_a_file_without_being_held_whole(tmp_path: Path, prefix: str) -> None:
    content = os.urandom(96 << 20)
    ref = BlobRef(digest_hex(content), len(content))
    bucket(prefix).put(ref.sha256, content)
    del content
    store = machine(tmp_path / "b", prefix)
    forget_peak()
    before = peak_mib()
    path = store.path(ref)
    taken = peak_mib() - before
    assert digest_hex(path.read_bytes()) == ref.sha256
    assert taken < 48


def test_a_blob_that_is_damaged_there_leaves_no_file(tmp_path: Path, prefix: str) -> None:
    promised = BlobRef(digest_hex(b"promised"), 8)
    bucket(prefix).put(promised.sha256, b"anything")
    store = machine(tmp_path / "a", prefix)
    with pytest.raises(BlobCorrupt, match=r"its name promises 8"):
        store.path(promised)
    assert [path for path in (tmp_path / "a").rglob("*") if path.is_file()] == []


def test_released_is_gone_everywhere_and_releasing_again_does_no_harm(tmp_path: Path, prefix: str) -> None:
    store = machine(tmp_path / "a", prefix)
    ref = store.put(b"checkpoint")
    store.release(ref)
    store.release(ref)
    assert not store.has(ref)
    with pytest.raises(BlobMissing, match="though an event names it"):
        store.get(ref)
    with pytest.raises(BlobMissing):
        store.path(ref)


def test_a_damaged_copy_here_is_fetched_again_and_a_damaged_blob_there_is_refused(
    tmp_path: Path, prefix: str
) -> None:
    store = machine(tmp_path / "a", prefix)
    ref = store.put(b"a page")
    store.path(ref).write_bytes(b"a pagE")
    assert store.get(ref) == b"a page"
    assert store.path(ref).read_bytes() == b"a page"
    promised = BlobRef(digest_hex(b"promised"), 8)
    bucket(prefix).put(promised.sha256, b"anything")
    with pytest.raises(BlobCorrupt, match=r"its name promises 8"):
        store.get(promised)
    with pytest.raises(BlobCorrupt, match="no blob's name"):
        store.get(BlobRef("../secrets", 3))


def test_the_folder_keeps_to_its_bound_by_letting_go_of_what_was_used_longest_ago(
    tmp_path: Path, prefix: str
) -> None:
    store = machine(tmp_path / "a", prefix, cache_bytes=10_000)
    refs = [store.put(bytes([n]) * 2000) for n in range(4)]
    paths = [store.path(ref) for ref in refs]
    for path in (paths[0], paths[2], paths[3]):
        os.utime(path, (time.time() - LONG_AGO_S,) * 2)
    store.path(refs[2])  # used now
    more = [store.put(bytes([n]) * 2000) for n in range(4, 9)]
    assert not paths[0].exists()
    assert not paths[3].exists()
    assert paths[1].exists(), "put a moment ago: whoever got its path may be about to open it"
    assert paths[2].exists()
    assert all(store.path(ref).exists() for ref in more)
    assert store.get(refs[0]) == bytes([0]) * 2000, "nothing is in the folder alone"


def test_a_full_disk_here_holds_up_only_who_needs_the_path(
    tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    store = RemoteBlobStore(
        tmp_path / "a", [bucket(prefix)], cache_bytes=1 << 20, full_wait_s=5, sleep=waited.append
    )

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store, "_store", no_room)
    ref = store.put(b"weights")
    assert store.get(ref) == b"weights"
    assert waited == [], "the bucket has it: a copy here is only for speed"
    with pytest.raises(DiskFull):
        store.path(ref)
    assert sum(waited) >= 5


def test_a_blob_that_another_process_lets_go_of_meanwhile_is_fetched_again(
    tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = machine(tmp_path / "a", prefix)
    ref = store.put(b"weights")
    touch = store._touch

    def too_late(of: BlobRef) -> None:
        (tmp_path / "a" / of.sha256[:2] / of.sha256[2:4] / of.sha256).unlink()
        touch(of)

    monkeypatch.setattr(store, "_touch", too_late)
    assert store.path(ref).read_bytes() == b"weights"


def test_a_fork_reads_its_parents_blobs_and_keeps_one_under_its_own_name(tmp_path: Path, prefix: str) -> None:
    ref = machine(tmp_path / "a", prefix, run="parent").put(b"weights")
    fork = machine(tmp_path / "b", prefix, run="fork", older="parent")
    assert fork.get(ref) == b"weights"
    assert fork.has(ref)
    fork.keep(ref)
    machine(tmp_path / "a", prefix, run="parent").release(ref)
    assert machine(tmp_path / "c", prefix, run="fork").get(ref) == b"weights"


def test_a_runs_blobs_are_where_its_settings_say(tmp_path: Path, prefix: str) -> None:
    resolved = resolve(folder=tmp_path, environment={}, overrides=[f"storage.blobs={prefix}"])
    ref = RunHandle(tmp_path / "home", "r", resolved).blobs.put(b"a page")
    assert bucket(prefix).size(ref.sha256) == 6
    shared = StorageSettings(blobs=str(tmp_path / "shared"))
    stores = [
        open_blobs(shared, run="r", folder=tmp_path / name, home=tmp_path / name) for name in ("a", "b")
    ]
    assert stores[1].get(stores[0].put(b"a page")) == b"a page"
    assert not (tmp_path / "a").exists()


def test_a_server_that_is_away_or_does_not_know_us_is_named_with_what_to_look_at(
    tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = RemoteBlobStore(
        tmp_path, [Bucket("s3://no-such-bucket/r", retry_s=0.5)], cache_bytes=1000, full_wait_s=0.5
    )
    with pytest.raises(BlobsUnreachable, match=r"s3://no-such-bucket/r at http://127.0.0.1"):
        absent.put(b"a page")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    away = RemoteBlobStore(tmp_path, [Bucket(prefix, retry_s=0.5)], cache_bytes=1000, full_wait_s=0.5)
    with pytest.raises(DiskFull, match="Check that the server is up") as refused:
        away.put(b"a page")
    assert "a-secret" not in str(refused.value)


def test_blobs_do_not_leave_a_machine_unencrypted(
    tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://203.0.113.7:9000")
    with pytest.raises(SettingsError, match="unencrypted"):
        machine(tmp_path, prefix).put(b"a page")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["storage.blobs=s3://key:secret@bucket/p"], "holds a key"),
        (["storage.blobs=s3:bucket"], "is no bucket"),
        (["storage.blobs=s3://bucket/p", "storage.keep_page_episodes=5"], "a bucket .* has none"),
        (["log.replicas=3"], "needs a cluster"),
        (["log.url=tls://a:1,nats://127.0.0.1:1"], "with and without encryption"),
        (["log.url=tls://a:1,nats://203.0.113.7:1"], "unencrypted"),
        (["log.url=nats://127.0.0.1:port"], "no broker address"),
    ],
)
def test_places_that_cannot_be_are_refused_before_anything_starts(
    tmp_path: Path, overrides: list[str], words: str
) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        resolve(folder=tmp_path, environment={}, overrides=overrides)
    assert "secret" not in str(refused.value)
