"""A log that nobody projects: folded when it is asked, once, caught up with, and never mistaken for another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hindcast.app.runs.folded_read_model import folded
from hindcast.core.settings.schema import Settings
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.port import EventLog
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.readmodel.database import ReadModel
from hindcast.storage.readmodel.projector import fill
from hindcast.storage.readmodel.rebuild import compare
from hindcast.storage.readmodel.run_queries import run_summary
from stories.synthetic_run import Told, a_run, record

FACTS = a_run(3, groups=8)


class Elsewhere:
    """A run that is not of this home, in a log that stands still unless a test appends to it."""

    name = "tale"
    settings = Settings()
    code_rev = "test"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blobs = BlobStore(folder / "blobs")
        self.log = MemoryLog("tale")

    def tell(self, facts: list[Told], *, seed: int = 1) -> None:
        asyncio.run(record(self.log, facts, seed=seed))

    @asynccontextmanager
    async def connect_log(self) -> AsyncIterator[EventLog]:
        yield self.log


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
    (tmp_path / "elsewhere").mkdir()
    made = Elsewhere(tmp_path / "elsewhere")
    made.tell(FACTS[:200])
    return made


def positions_read(source: Elsewhere) -> list[int]:
    """Fold it, and tell from where on the log was read."""
    seen: list[int] = []

    class Seen:
        def __init__(self, log: EventLog) -> None:
            self._log = log

        def __getattr__(self, name: str) -> object:
            return getattr(self._log, name)

        def tail(self, *, after: int, headers: bool = True) -> object:
            seen.append(after)
            return self._log.tail(after=after)

    folded(source, watching=lambda log: Seen(log)).close()  # type: ignore[arg-type,return-value]
    return seen


def test_it_is_folded_as_a_run_of_this_home_would_be(source: Elsewhere, tmp_path: Path) -> None:
    model = folded(source)
    own = ReadModel(f"sqlite:///{tmp_path}/own.sqlite", run="tale")
    own.prepare()

    asyncio.run(fill(source.log, own))
    assert compare(model, own) == []
    model.close()
    own.close()


def test_nothing_is_written_where_the_log_lies(source: Elsewhere, tmp_path: Path) -> None:
    before = sorted((tmp_path / "elsewhere").rglob("*"))
    folded(source).close()
    assert sorted((tmp_path / "elsewhere").rglob("*")) == before
    assert len(list((tmp_path / "home" / "folded").glob("tale-*.sqlite"))) == 1


def test_asked_again_only_what_was_added_is_read(source: Elsewhere) -> None:
    assert positions_read(source) == [0]
    assert positions_read(source) == []
    source.tell(FACTS[200:], seed=2)
    assert positions_read(source) == [200]
    with folded(source).reading() as connection:
        assert run_summary(connection).position == len(FACTS)


def test_where_another_log_lies_now_its_own_answers_are_given(source: Elsewhere) -> None:
    folded(source).close()
    for facts in (FACTS[:100], a_run(5, groups=2)):  # less of the same, then another run of the name
        source.log = MemoryLog("tale")
        source.tell(facts, seed=7)
        model = folded(source)
        with model.reading() as connection:
            assert run_summary(connection).position == len(facts)
        model.close()


def test_two_places_keep_two_folds(source: Elsewhere, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Elsewhere(tmp_path / "other")
    other.tell(FACTS[:50])
    for one, expected in ((source, 200), (other, 50), (source, 200)):
        model = folded(one)
        with model.reading() as connection:
            assert run_summary(connection).position == expected
        model.close()
