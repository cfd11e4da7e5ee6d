"""What the processes of a system print: kept up to a bound, and quoted only as far as it is new."""

import os
from pathlib import Path

import pytest

import hindcast.app.system.system
from hindcast.app.system.system import LAST_LINES, LONGEST_LINE_BYTES, KeptOutput, StartFailed, System


def keep(place: Path, said: bytes, **bounds: int) -> KeptOutput:
    reading, writing = os.pipe()
    kept = KeptOutput(os.fdopen(reading, "rb"), place, **bounds)
    kept.start()
    with os.fdopen(writing, "wb") as stream:
        stream.write(said)
    kept.join(30)
    return kept


def test_what_is_kept_is_bounded_and_the_newest_stays(tmp_path: Path) -> None:
    place = tmp_path / "words.log"
    said = [b"line %d\n" % number for number in range(1000)]
    keep(place, b"".join(said), kept_bytes=1000, kept_older=2)
    files = [tmp_path / "words.log.2", tmp_path / "words.log.1", place]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(file.stat().st_size <= 1000 for file in files)
    kept = b"".join(file.read_bytes() for file in files)
    assert kept == b"".join(said)[-len(kept) :]
    assert kept.count(b"\n") > 150


def test_bytes_that_are_no_text_are_kept_as_they_are(tmp_path: Path) -> None:
    said = b"before\n\xff\xfe\x80 and no end"
    assert keep(tmp_path / "words.log", said).last_lines()[0] == "before"
    assert (tmp_path / "words.log").read_bytes() == said


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    kept = keep(tmp_path / "words.log", b"x" * (40 * LONGEST_LINE_BYTES))
    assert sum(map(len, kept.last_lines())) <= LAST_LINES * LONGEST_LINE_BYTES
    assert (tmp_path / "words.log").stat().st_size == 40 * LONGEST_LINE_BYTES


def test_a_system_that_stops_by_itself_is_quoted_with_its_own_words_not_with_those_of_an_earlier_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Procfile").write_text("part: echo words of this start; exit 3\n")
    (tmp_path / "honcho.log").write_text("words of an earlier start\n" * 3)
    monkeypatch.setattr(hindcast.app.system.system, "PROCFILE", tmp_path / "Procfile")
    system = System(tmp_path, {"part": 1})
    system.start()
    assert system._honcho is not None
    assert system._honcho.wait(60) == 3
    with pytest.raises(StartFailed) as failed:
        system.check()
    assert "words of this start" in str(failed.value)
    assert "earlier" not in str(failed.value)
    assert "earlier" in (tmp_path / "honcho.log").read_text()
