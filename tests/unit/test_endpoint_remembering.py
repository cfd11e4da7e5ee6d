"""Answers that are remembered: by one process at a time, and as if they were not there where they are damaged."""

import errno
import os
from pathlib import Path

import msgspec
import pytest

from hindcast.actors.endpoint.answer_cache import AnswerCache
from hindcast.actors.endpoint.completion import Completion

DIGEST = "ab" * 32
SAID = Completion(text="1", model="m", finish="stop", prompt_tokens=100, answer_tokens=10)
LATER = msgspec.structs.replace(SAID, text="2")


def files(folder: Path) -> list[Path]:
    return [place for place in folder.rglob("*") if place.is_file()]


def test_who_remembers_an_answer_first_is_told_so(tmp_path: Path) -> None:
    one, other = AnswerCache(tmp_path), AnswerCache(tmp_path)
    assert one.keep(DIGEST, SAID)
    assert not other.keep(DIGEST, LATER)
    assert other.find(DIGEST) == SAID
    assert len(files(tmp_path)) == 1, "nothing unfinished stays"


def test_an_answer_that_is_forgotten_or_damaged_makes_room_for_another(tmp_path: Path) -> None:
    memory = AnswerCache(tmp_path)
    memory.keep(DIGEST, SAID)
    memory.forget(DIGEST)
    assert memory.find(DIGEST) is None
    assert memory.keep(DIGEST, SAID)
    (place,) = files(tmp_path)
    place.write_bytes(b"{")
    assert memory.find(DIGEST) is None
    assert memory.keep(DIGEST, LATER)
    assert memory.find(DIGEST) == LATER


def test_a_disk_without_second_names_remembers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    memory = AnswerCache(tmp_path)
    assert memory.keep(DIGEST, SAID)
    assert memory.find(DIGEST) == SAID
    assert len(files(tmp_path)) == 1


def test_nothing_is_remembered_where_nothing_is_to_be() -> None:
    memory = AnswerCache(None)
    assert memory.keep(DIGEST, SAID)
    memory.forget(DIGEST)
    assert memory.find(DIGEST) is None
