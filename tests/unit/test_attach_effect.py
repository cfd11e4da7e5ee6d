"""Attached consumers: effect and position in one transaction, poison, folds, and what is no consumer."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attached_consumers
import msgspec
import pytest
from sqlalchemy import text

import hindcast.app.attach.effect
from hindcast.app.attach.effect import AttachedEffect, LiveAttachedEffect
from hindcast.app.attach.store import ConsumerMoved, ConsumerPosition, ConsumerStore, StoreUnavailable
from hindcast.app.attach.target import TargetFailed, load
from hindcast.core.errors import ForeignLog, SettingsError
from hindcast.events.log.consumer import ConsumerStopped, Retries, consume
from hindcast.events.log.memory import MemoryLog
from stories.synthetic_run import a_run, record

QUICK = Retries(tries=2, first_wait_s=0.001, max_wait_s=0.002)
RUN = "tale"


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield executor


@pytest.fixture
async def log() -> MemoryLog:
    made = MemoryLog(RUN)
    await record(made, a_run(1))
    return made


class Bench:
    """A consumer of the tests with its store."""

    def __init__(self, folder: Path, thread: ThreadPoolExecutor) -> None:
        self.url = f"sqlite:///{folder / 'consumer.sqlite'}"
        self.thread = thread

    async def opened(self, name: str, *, live: bool = False) -> AttachedEffect:
        target = f"attached_consumers:{name}"
        new = ConsumerPosition(
            run=RUN,
            name=name.lower(),
            target=target,
            host="here",
            position=0,
            first_digest=b"",
            last_position=0,
            last_digest=b"",
            state=None,
        )
        kind = LiveAttachedEffect if live else AttachedEffect
        effect = kind(load(target), ConsumerStore(self.url), new=new, thread=self.thread)
        await effect.open()
        return effect

    def ledger(self) -> list[int]:
        store = ConsumerStore(self.url)
        with store.writing() as db:
            found = list(db.scalars(text("SELECT position FROM ledger")))
        store.close()
        return found


@pytest.fixture
def bench(tmp_path: Path, thread: ThreadPoolExecutor) -> Bench:
    return Bench(tmp_path, thread)


async def test_every_event_is_taken_once_over_any_number_of_starts(bench: Bench, log: MemoryLog) -> None:
    last = len(log.events)
    for until in (1, 7, 7, last - 1, last):
        await consume(log, await bench.opened("ledger"), name="ledger", until=until)
    assert bench.ledger() == list(range(1, last + 1))


async def test_a_long_batch_is_kept_in_several_transactions(
    bench: Bench, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hindcast.app.attach.effect, "COMMIT_S", 0.0)
    monkeypatch.setattr(attached_consumers, "POISON", 5)
    effect = await bench.opened("poisoned")
    with pytest.raises(ConsumerStopped):
        await consume(log, effect, name="poisoned", until=9, retries=QUICK)
    assert bench.ledger() == [1, 2, 3, 4]
    assert effect.taken == 4


async def test_what_is_refused_is_named_by_its_position_and_undone_and_the_consumer_goes_on_there_once_mended(
    bench: Bench, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached_consumers, "POISON", 30)
    with pytest.raises(
        ConsumerStopped, match=r"poisoned cannot take in position 30 .* after 2 tries: KeyError"
    ):
        await consume(log, await bench.opened("poisoned"), name="poisoned", until=40, retries=QUICK)
    assert bench.ledger() == list(range(1, 30))
    monkeypatch.setattr(attached_consumers, "POISON", 0)
    await consume(log, await bench.opened("poisoned"), name="poisoned", until=40, retries=QUICK)
    assert bench.ledger() == list(range(1, 41))


@pytest.mark.parametrize(
    ("consumer", "words"),
    [("poisoned", "no such product"), ("missing", "BlobMissing: no such page")],
    ids=["an error of its own", "one of ours"],
)
async def test_a_live_consumer_goes_on_without_it_and_keeps_word_of_it(
    bench: Bench, log: MemoryLog, monkeypatch: pytest.MonkeyPatch, consumer: str, words: str
) -> None:
    last = len(log.events)
    monkeypatch.setattr(attached_consumers, "POISON", 30)
    await consume(log, await bench.opened(consumer, live=True), name=consumer, until=last, retries=QUICK)
    store = ConsumerStore(bench.url)
    number, letters = store.dead_letters(RUN, consumer, limit=last)
    store.close()
    assert number == len(letters)
    assert letters[-1].position == 30
    assert words in letters[-1].error
    held = {letter.position for letter in letters}
    assert bench.ledger() == [position for position in range(1, last + 1) if position not in held]


async def test_one_of_our_errors_is_named_by_its_position_like_any_other(
    bench: Bench, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached_consumers, "POISON", 30)
    words = r"missing cannot take in position 30 .* after 2 tries: .*BlobMissing: no such page"
    with pytest.raises(ConsumerStopped, match=words):
        await consume(log, await bench.opened("missing"), name="missing", until=40, retries=QUICK)
    assert bench.ledger() == list(range(1, 30))


async def test_a_fold_keeps_its_state_with_its_position_and_a_refused_event_leaves_no_trace_in_it(
    bench: Bench, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached_consumers, "POISON", 25)
    with pytest.raises(ConsumerStopped, match="position 25"):
        await consume(log, await bench.opened("Types"), name="types", until=60, retries=QUICK)
    monkeypatch.setattr(attached_consumers, "POISON", 0)
    effect = await bench.opened("Types")
    await consume(log, effect, name="types", until=60, retries=QUICK)
    assert effect.standing.position == 60
    assert effect.standing.state is not None
    assert sum(msgspec.msgpack.decode(effect.standing.state).values()) == 60


async def test_two_processes_under_one_name_show_at_once(bench: Bench, log: MemoryLog) -> None:
    first, second = await bench.opened("ledger"), await bench.opened("ledger")
    await consume(log, first, name="ledger", until=10)
    with pytest.raises(ConsumerMoved, match="not at position 0 any more"):
        await consume(log, second, name="ledger", until=20, retries=QUICK)
    assert bench.ledger() == list(range(1, 11))


async def test_another_log_under_the_same_name_is_refused(bench: Bench, log: MemoryLog) -> None:
    await consume(log, await bench.opened("ledger"), name="ledger", until=10)
    foreign = MemoryLog(RUN)
    await record(foreign, a_run(2))
    with pytest.raises(ForeignLog, match="begins with another event"):
        await consume(foreign, await bench.opened("ledger"), name="ledger", until=20)


async def test_a_store_that_is_no_database_is_a_worded_error(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "consumer.sqlite").write_text("not a database, but long enough to look at" * 40)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await bench.opened("ledger")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("ledger", "give MODULE:NAME"),
        ("nowhere.at_all:ledger", "there is no module 'nowhere'"),
        ("attached_consumers:leger", "has no 'leger'; the nearest is ledger"),
        ("attached_consumers:number", "it is a int"),
        ("attached_consumers:asynchronous", "it is async"),
        ("attached_consumers:of_one", "cannot be called with an event and a connection"),
        ("attached_consumers:Unkept", "its state cannot be stored"),
    ],
)
def test_what_is_no_consumer_is_said_before_anything_is_read(target: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load(target)


def test_a_state_of_another_shape_is_a_worded_error() -> None:
    with pytest.raises(SettingsError, match="consumer forget"):
        load("attached_consumers:Types").restore(b"\x93\x01\x02\x03")


@pytest.mark.parametrize("url", ["postgresql+psycopg://me:secret@host/name", "mysql://host/name", "nonsense"])
def test_a_store_with_a_password_or_of_another_kind_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(SettingsError, match="--store") as refused:
        ConsumerStore(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ValueError('no table')", "ValueError: no table"),
        ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("def consumer(:", "SyntaxError"),
        ("class consumer:\n    def __init__(self):\n        raise KeyError('x')", "KeyError: 'x'"),
        (
            "class consumer:\n    def initial(self): 1 / 0\n    def apply(self, state, event): 2",
            "ZeroDivisionError",
        ),
    ],
)
def test_a_module_whose_own_code_fails_is_a_worded_error_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = f"failing_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(f"{body}\n")
    with pytest.raises(TargetFailed, match="its own code fails before the first event") as failed:
        load(f"{name}:consumer")
    assert words in str(failed.value)
    assert failed.value.__cause__ is not None
    assert len(str(failed.value).splitlines()) == 1


@pytest.mark.parametrize("target", ["a..b:c", ".a:c", "a b:c", ":c", "a:", "a", "\0:c", "a/b:c"])
def test_what_no_import_accepts_names_no_consumer(target: str) -> None:
    with pytest.raises(SettingsError, match="names no consumer"):
        load(target)
