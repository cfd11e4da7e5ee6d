"""The consumer runtime: position with its effect, poison handled, nobody disturbed."""

import asyncio
import copy
from collections.abc import Sequence

import pytest

from hindcast.core.errors import ForeignLog, HindcastError
from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import EventDeadLettered, TaskAdmitted
from hindcast.events.envelope import Recorded
from hindcast.events.log.consumer import ConsumerStopped, Retries, consume
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import Bookmark, read
from hindcast.events.registry import BY_NAME

QUICK = Retries(tries=3, first_wait_s=0.001, max_wait_s=0.002)
SETTINGS = LogSettings(linger_ms=0)


class Ledger:
    """A strict effect: names in order. `poison` names it cannot take, `flaky` ones it takes at the second try."""

    def __init__(
        self, *, poison: Sequence[str] = (), flaky: Sequence[str] = (), refusal: type[Exception] = ValueError
    ) -> None:
        self.names: list[str] = []
        self.reached = 0
        self.poison = set(poison)
        self.flaky = set(flaky)
        self.refusal = refusal

    async def position(self) -> int:
        return self.reached

    async def apply(self, recordeds: Sequence[Recorded], position: int) -> None:
        taken = []
        for recorded in recordeds:
            name = recorded.envelope.entity
            if name in self.flaky:
                self.flaky.remove(name)
                raise OSError("try again")
            if name in self.poison:
                raise self.refusal(f"cannot take {name}")
            taken.append(name)
        self.names += taken
        assert position > self.reached or not recordeds
        self.reached = position


class LiveLedger(Ledger):
    """A live effect: remembers what it set aside."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.aside: list[str] = []

    async def set_aside(self, recorded: Recorded, error: str) -> None:
        self.aside.append(recorded.envelope.entity)
        self.reached = recorded.position

    async def held_back(self) -> set[str]:
        return set(self.aside)


async def filled(names: Sequence[str]) -> MemoryLog:
    log = MemoryLog("r")
    await add(log, names)
    return log


async def add(log: MemoryLog, names: Sequence[str]) -> None:
    async with Publisher(log, producer="curriculum.1", code_rev="t", settings=SETTINGS) as publisher:
        for name in names:
            await publisher.publish(TaskAdmitted(task_id=name, phase=0), entity=name)


async def test_a_consumer_takes_in_everything_once_and_goes_on_where_it_stopped() -> None:
    log = await filled("abc")
    ledger = Ledger()
    assert await consume(log, ledger, name="ledger", until=2) == 2
    assert ledger.names == ["a", "b"]
    await add(log, "de")
    assert await consume(log, ledger, name="ledger", until=5) == 5
    assert ledger.names == list("abcde")
    assert await consume(log, ledger, name="ledger", until=5) == 5
    assert ledger.names == list("abcde")


async def test_a_passing_failure_is_tried_again() -> None:
    ledger = Ledger(flaky="b")
    await consume(await filled("abc"), ledger, name="ledger", until=3, retries=QUICK)
    assert ledger.names == ["a", "b", "c"]


async def test_a_strict_consumer_stops_before_the_poison_and_names_it() -> None:
    ledger = Ledger(poison="c")
    with pytest.raises(
        ConsumerStopped, match=r"ledger cannot take in position 3 .* after 3 tries: ValueError: cannot take c"
    ):
        await consume(await filled("abcd"), ledger, name="ledger", until=4, retries=QUICK)
    assert (ledger.names, ledger.reached) == (["a", "b"], 2)


async def test_a_live_consumer_sets_the_poison_aside_with_all_that_belongs_to_it() -> None:
    log = await filled(["a", "bad", "b", "bad", "c"])
    ledger = LiveLedger(poison=["bad"])
    async with Publisher(log, producer="judge.1", code_rev="t", settings=SETTINGS) as publisher:
        await consume(log, ledger, name="ledger", until=5, retries=QUICK, dead_letters=publisher)
    assert (ledger.names, ledger.aside, ledger.reached) == (["a", "b", "c"], ["bad", "bad"], 5)
    letters = [r.fact async for r in read(log) if isinstance(r.fact, EventDeadLettered)]
    assert [(letter.consumer, letter.position, letter.tries) for letter in letters] == [
        ("ledger", 2, 3),
        ("ledger", 4, 0),
    ]


async def test_what_was_set_aside_stays_aside_after_a_restart() -> None:
    log = await filled(["bad", "a"])
    ledger = LiveLedger(poison=["bad"])
    await consume(log, ledger, name="ledger", until=2, retries=QUICK)
    ledger.poison.clear()
    await add(log, ["bad", "b"])
    await consume(log, ledger, name="ledger", until=4, retries=QUICK)
    assert (ledger.names, ledger.aside) == (["a", "b"], ["bad", "bad"])


async def test_an_effect_that_cannot_work_at_all_stops_even_a_live_consumer() -> None:
    ledger = LiveLedger(poison=["a"], refusal=HindcastError)
    with pytest.raises(HindcastError, match=r"cannot take a"):
        await consume(await filled("a"), ledger, name="ledger", until=1, retries=QUICK)
    assert ledger.aside == []


async def test_types_of_a_later_hindcast_are_passed_over_and_the_position_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = await filled("ab")
    monkeypatch.delitem(BY_NAME, "task.admitted")
    ledger = Ledger()
    assert await consume(log, ledger, name="ledger", until=2) == 2
    assert (ledger.names, ledger.reached) == ([], 2)


async def test_a_slow_consumer_does_not_hold_up_another() -> None:
    log = await filled("abc")

    class Slow(Ledger):
        async def apply(self, recordeds: Sequence[Recorded], position: int) -> None:
            await asyncio.sleep(3600)

    quick = Ledger()
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        stuck = tasks.create_task(consume(log, Slow(), name="slow", until=3))
        await consume(log, quick, name="quick", until=3)
        await add(log, "d")
        await consume(log, quick, name="quick", until=4)
        stuck.cancel()
    assert quick.names == list("abcd")


async def test_a_consumer_refuses_a_log_that_was_swapped_or_cut() -> None:
    class Marked(Ledger):
        mark: Bookmark | None = None

        async def apply(self, recordeds: Sequence[Recorded], position: int) -> None:
            await super().apply(recordeds, position)
            last = recordeds[-1]
            first = self.mark.first_digest if self.mark else recordeds[0].digest
            self.mark = Bookmark(position=last.position, digest=last.digest, first_digest=first)

        async def bookmark(self) -> Bookmark | None:
            return self.mark

    log, other = await filled("abc"), await filled("abc")
    ledger = Marked()
    await consume(log, ledger, name="ledger", until=3)
    with pytest.raises(ForeignLog, match=r"begins with another event"):
        await consume(other, copy.deepcopy(ledger), name="ledger", until=4)
    other.events[0] = log.events[0]
    with pytest.raises(ForeignLog, match=r"another event at position 3"):
        await consume(other, copy.deepcopy(ledger), name="ledger", until=4)
    del log.events[2]
    with pytest.raises(ForeignLog, match=r"ends at position 2, but it was read up to 3"):
        await consume(log, copy.deepcopy(ledger), name="ledger", until=4)
