"""What others wrote is read up to a bound: in memory, too, whatever size the content declares."""

import contextlib
import gzip
import os
import subprocess
import sys
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zstandard
from google_crc32c import value as crc32c
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from hindcast.actors.environments.webshop.products import read_json
from hindcast.app.cli import app
from hindcast.core.bounded_read import TooLarge, read_bounded, read_file_bounded
from hindcast.core.errors import HindcastError
from hindcast.events.archive import format as segments
from hindcast.events.archive.archive_log import ArchiveLog
from hindcast.events.archive.check import check_archive
from hindcast.events.archive.format import NotWhole, decode_frame, frame_at, frames_from
from hindcast.events.archive.manifest import NAME, SEGMENTS, load
from hindcast.events.envelope import Stored
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.checkpoints import Counters, encode_checkpoint, load_checkpoint
from stories.archive_story import small_log, write_archive

pytestmark = pytest.mark.torch

MIB = 1024 * 1024
EXAMPLES = int(os.environ.get("HINDCAST_FUZZ_EXAMPLES", "150"))
"""A nightly run takes 10 000."""
MOST_PEAK_BYTES = 128 * MIB
"""Memory that reading one hostile file of a few megabytes may add to a process, in all of the fuzzing below."""


def frame_of(body: bytes, *, first: int = 1, events: int = 1) -> bytes:
    """A frame with a sound crc and chain around any body."""
    covered = segments._FRAME.pack(len(body), first, events) + body
    content = segments._CRC.pack(crc32c(covered)) + covered
    return content + sha256(bytes(32) + content).digest()


def declared(size: int) -> bytes:
    """A zstd frame that declares and holds so many zeros: some 98 KB for 3.2 GB."""
    compressor = zstandard.ZstdCompressor(level=1).compressobj(size=size)
    zeros = bytes(MIB)
    return b"".join([*(compressor.compress(zeros) for _ in range(size // MIB)), compressor.flush()])


CHILD = """
import resource, sys
from pathlib import Path
from hindcast.events.archive.format import NotWhole, decode_frame, frame_at
content = Path(sys.argv[1]).read_bytes()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode_frame(content, frame=frame_at(content, 0))
except NotWhole as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_frame_that_declares_a_large_size_is_refused_within_its_bound(tmp_path: Path) -> None:
    place = tmp_path / "frame"
    place.write_bytes(frame_of(declared(1024 * MIB)))
    assert place.stat().st_size < MIB
    done = subprocess.run([sys.executable, "-c", CHILD, str(place)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said, grown_mib = done.stdout.splitlines()
    assert str(segments.LARGEST_BODY_BYTES) in said
    assert int(grown_mib) < 64


@pytest.mark.parametrize(
    "body",
    [
        zstandard.compress(b"\x91" * 200_000),
        zstandard.compress(b"\xdd\xff\xff\xff\xff"),
        zstandard.compress(b"\xdc\x10\x00" + b"\x94\x01\xa0\xa0\xc4\x00" * 4096),
        b"",
        b"\x28\xb5\x2f\xfd",
    ],
    ids=["nested", "declares 4 G events", "more events than a frame has", "empty", "cut"],
)
def test_a_frame_whose_body_is_hostile_is_not_whole(body: bytes) -> None:
    content = frame_of(body)
    with pytest.raises(NotWhole):
        decode_frame(content, frame=frame_at(content, 0))


def test_what_is_read_is_bounded_and_what_fits_is_whole(tmp_path: Path) -> None:
    assert read_bounded(BytesIO(b"abc"), most_bytes=3, content_name="it") == b"abc"
    with pytest.raises(TooLarge, match="more than 2 bytes"):
        read_bounded(BytesIO(b"abc"), most_bytes=2, content_name="it")
    place = tmp_path / "zeros.gz"
    place.write_bytes(gzip.compress(bytes(4 * MIB)))
    assert len(read_file_bounded(place, most_bytes=4 * MIB)) == 4 * MIB
    with pytest.raises(TooLarge):
        read_file_bounded(place, most_bytes=4 * MIB - 1)


def test_a_damaged_compressed_file_of_products_is_a_worded_error(tmp_path: Path) -> None:
    whole = gzip.compress(b'["a"]' * 2000)
    place = tmp_path / "items.json.gz"
    for content in (whole[:30], whole[:40] + b"\xff\xff" + whole[42:], b"no gzip"):
        place.write_bytes(content)
        with pytest.raises(HindcastError, match="cannot be read"):
            read_json(place)


@pytest.fixture
async def archive(tmp_path: Path) -> Path:
    return write_archive(tmp_path / "whole", (await small_log(7)).events, segment_bytes=500)


def read_through(folder: Path) -> None:
    """Everything that reads an archive; raises nothing but errors meant for a user."""
    with contextlib.suppress(HindcastError):
        check_archive(folder)
    try:
        log = ArchiveLog(folder)
        position = 0
        while batch := log._reader.following(position):
            position = batch[-1].position
    except HindcastError:
        pass


def test_a_sparse_segment_is_measured_before_it_is_read(archive: Path) -> None:
    segment = next((archive / SEGMENTS).glob("*.seg"))
    with segment.open("r+b") as file:
        file.truncate(64 * 1024**3)
    assert check_archive(archive).defects


@pytest.mark.parametrize(
    ("field", "value"),
    [("chain", "zz"), ("digest", "0" * 63), ("first", -1), ("last", 2**70), ("bytes", 2**62)],
)
def test_a_manifest_with_a_sound_checksum_and_hostile_values_is_damaged(
    archive: Path, field: str, value: object
) -> None:
    plain = msgspec.json.decode((archive / NAME).read_bytes())
    plain.pop("checksum")
    plain["segments"][0][field] = value
    signed = {"checksum": sha256(msgspec.json.encode(plain)).hexdigest(), **plain}
    (archive / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(signed), indent=1) + b"\n")
    with pytest.raises(HindcastError):
        load(archive)


def test_a_nested_manifest_is_one_worded_line(archive: Path) -> None:
    (archive / NAME).write_bytes(b"[" * 200_000)
    done = CliRunner().invoke(app, ["archive", "check", str(archive)])
    assert isinstance(done.exception, HindcastError)


def changed(content: bytes, kind: str, at: int, value: int) -> bytes:
    """Content with one hostile change."""
    at %= max(1, len(content))
    if kind == "flip":
        return content[:at] + bytes([content[at] ^ (1 << value % 8)]) + content[at + 1 :]
    if kind == "cut":
        return content[:at]
    if kind == "size":
        return content[:at] + (value % 2**64).to_bytes(8, "little") + content[at + 8 :]
    return content[:at] + b"\x91" * (value % 100_000) + content[at:]


KINDS = st.sampled_from(["flip", "cut", "size", "nest"])
FUZZ = settings(
    max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


def peak_bytes() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@FUZZ
@given(file=st.integers(0, 50), kind=KINDS, at=st.integers(0, 2**20), value=st.integers(0, 2**64 - 1))
def test_an_archive_with_any_change_is_read_or_refused_in_words(
    archive: Path, file: int, kind: str, at: int, value: int
) -> None:
    files = sorted(path for path in archive.rglob("*") if path.is_file())
    place = files[file % len(files)]
    whole, before = place.read_bytes(), peak_bytes()
    place.write_bytes(changed(whole, kind, at, value))
    try:
        read_through(archive)
    finally:
        place.write_bytes(whole)
    assert peak_bytes() - before < MOST_PEAK_BYTES


@FUZZ
@given(rows=st.binary(max_size=200), kind=KINDS, at=st.integers(0, 2**12), value=st.integers(0, 2**64 - 1))
@example(rows=b"\x91" * 200, kind="nest", at=0, value=99_999)
def test_a_sound_frame_around_any_body_is_read_or_not_whole(
    rows: bytes, kind: str, at: int, value: int
) -> None:
    whole = segments._encoder.encode([segments._Row(1, "run.r.x", "id", rows)])
    before = peak_bytes()
    for body in (
        zstandard.compress(changed(whole, kind, at, value)),
        changed(zstandard.compress(whole), kind, at, value),
    ):
        content = frame_of(body)
        try:
            (frame,) = frames_from(content, 0, first=1, chain=bytes(32))
            found = decode_frame(content, frame=frame)
        except NotWhole:
            continue
        assert [type(stored) for stored in found] == [Stored]
    assert peak_bytes() - before < MOST_PEAK_BYTES


@FUZZ
@given(kind=KINDS, at=st.integers(0, 2**12), value=st.integers(0, 2**64 - 1))
def test_a_checkpoint_with_any_change_under_a_sound_digest_is_read_or_corrupt(
    tmp_path: Path, kind: str, at: int, value: int
) -> None:
    blobs, before = BlobStore(tmp_path / "blobs"), peak_bytes()
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(4, dtype=np.int64)}
    whole = encode_checkpoint(tensors, Counters(update=1, batch=1, version=1, state="s"))
    ref = blobs.put(changed(whole, kind, at, value))
    try:
        load_checkpoint(blobs, ref)
    except HindcastError:
        pass
    finally:
        blobs.release(ref)
    assert peak_bytes() - before < MOST_PEAK_BYTES
