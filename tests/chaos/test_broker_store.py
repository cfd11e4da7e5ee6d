"""Damage to what the broker keeps about a stream and its work queues: named, never passed over, and repaired.

nats-server passes over a stream whose description is damaged; a start would make a new one over the old blocks.
"""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fakes.tiny_policy import write_tiny_policy
from hindcast.app.cli import app
from hindcast.app.runs.open_log import open_log
from hindcast.app.runs.repair import repair_log
from hindcast.app.runs.runs import IMPORTING, RunHandle, create_run, open_run
from hindcast.app.settings.configuration import resolve
from hindcast.core.errors import CorruptEvent, ForeignLog
from hindcast.events.catalogue import LogRepaired, RunResumed
from hindcast.events.envelope import Stored
from hindcast.events.jetstream.broker_store import StreamNotLoaded
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from stories.curriculum_story import Story, settings_of

pytestmark = [pytest.mark.broker, pytest.mark.torch]

RUN = "damaged"
REQUESTS = 6
BITS = 8
"""Of each description that are flipped one by one; every one of them is under the checksum."""


def call(home: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments, env={"HINDCAST_HOME": str(home)})
    worded = (
        str(result.exception) if result.exception and not isinstance(result.exception, SystemExit) else ""
    )
    return result.exit_code, result.stdout + worded


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Stored]]:
    """A home whose actors have worked off half of their queue, an archive of it, no broker running; and what the log holds."""
    folder = tmp_path_factory.mktemp("whole")
    policy = write_tiny_policy(folder / "policy")
    chosen = [f"policy.base={policy}", f"log.max_bytes={16 * 1024 * 1024}"]
    run = create_run(resolve(environment={}, folder=folder, overrides=chosen), home=folder / "home", name=RUN)

    async def fill() -> list[Stored]:
        await open_log(run, None)
        story = Story(settings_of())
        async with (
            run.connect_log("curriculum") as log,
            Publisher(log, producer="curriculum.1", code_rev="t", settings=run.settings.log) as publisher,
        ):
            for fact in story.wanted()[:REQUESTS]:
                await publisher.decide(fact, entity=fact.episode)
        await worked_off(run, REQUESTS // 2)
        return await stored_in(run)

    stored = asyncio.run(fill())
    assert call(folder / "home", "archive", RUN, str(folder / "archive"))[0] == 0
    return folder, stored


async def stored_in(run: RunHandle) -> list[Stored]:
    async with run.connect_log() as log:
        return await log.read(after=0, limit=500)


async def worked_off(run: RunHandle, count: int) -> list[int]:
    """Positions that the actors' queue hands out next, all of them acknowledged."""
    async with run.connect_stream("actor") as log:
        queue = await log.open_queue("episodes", family="request")
        handed = await queue.fetch(count, wait_s=5)
        for delivery in handed:
            await delivery.ack()
        return [delivery.recorded.position for delivery in handed]


@pytest.fixture
def home(whole: tuple[Path, list[Stored]], tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return copy_of(whole, tmp_path / "copy")


def copy_of(whole: tuple[Path, list[Stored]], place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(whole[0] / "home", place, ignore=shutil.ignore_patterns("broker.json", "broker.users"))
    return place


def stream_of(home: Path) -> Path:
    return next(home.glob(f"broker/jetstream/*/streams/RUN_{RUN}"))


def bit(number: int) -> Callable[[Path], object]:
    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[number // 8] ^= 1 << (number % 8)
        path.write_bytes(content)

    return flip


def half(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        pytest.param("meta.inf", bit(900), id="a-bit-of-the-description"),
        pytest.param("meta.inf", half, id="half-of-the-description"),
        pytest.param("meta.inf", emptied, id="an-empty-description"),
        pytest.param("meta.inf", Path.unlink, id="no-description"),
        pytest.param("meta.sum", bit(30), id="a-bit-of-its-checksum"),
        pytest.param("meta.sum", Path.unlink, id="no-checksum"),
    ],
)
def test_a_damaged_description_of_the_stream_is_named_by_all_and_repaired_from_the_blocks(
    whole: tuple[Path, list[Stored]], home: Path, name: str, damage: Callable[[Path], object]
) -> None:
    damage(stream_of(home) / name)
    code, told = call(home, "audit", RUN, "--json")
    (defect,) = json.loads(told)["defects"]
    assert code == 3
    assert "another log" not in told
    run = open_run(RUN, home=home)
    for words in (defect["found"], *(refusal(run) for _ in range(2)), call(home, "log", "tail", RUN)[1]):
        assert f"RUN_{RUN}/{name}" in words, words
        assert f"hindcast repair {RUN}" in words
    code, told = call(home, "repair", RUN)
    assert (code, name in told) == (0, True), told
    assert not (run.folder / IMPORTING).exists()
    after = asyncio.run(stored_in(run))
    assert after[:-1] == whole[1]
    assert [type(fact) for fact in facts_of(run)][-1] is LogRepaired
    assert call(home, "audit", RUN, "--json")[0] == 0
    assert refusal(run) == ""
    assert call(home, "audit", RUN, "--json")[0] == 0, "and after another start of the broker"
    assert asyncio.run(worked_off(run, 50))[0] == first_request(whole[1]), "the queue was made anew"


def test_every_bit_of_a_description_counts(whole: tuple[Path, list[Stored]], tmp_path: Path) -> None:
    for name in ("meta.inf", "meta.sum"):
        size = 8 * (stream_of(whole[0] / "home") / name).stat().st_size
        for number in range(3, size, size // BITS):
            copy = copy_of(whole, tmp_path / "copy")
            bit(number)(stream_of(copy) / name)
            assert f"RUN_{RUN}/{name}" in refusal(open_run(RUN, home=copy)), number


def test_repair_from_an_archive_takes_what_stands_behind_it_from_the_blocks(
    whole: tuple[Path, list[Stored]], home: Path
) -> None:
    bit(900)(stream_of(home) / "meta.inf")
    archive = shutil.copytree(whole[0] / "archive", home.parent / "archive")
    run = open_run(RUN, home=home)
    done = asyncio.run(repair_log(run, archive, reason="a bit", on_event=lambda _: None))
    assert (done.displaced, done.lost_after) == (0, None)
    assert asyncio.run(stored_in(run))[:-1] == whole[1]
    assert call(home, "audit", RUN, "--json")[0] == 0


def test_blocks_that_lack_events_are_not_taken_for_the_log(
    whole: tuple[Path, list[Stored]], home: Path
) -> None:
    """Nothing but the witness of the last start knows it."""
    stream = stream_of(home)
    Path.unlink(stream / "meta.inf")
    (block,) = (stream / "msgs").glob("*.blk")
    half(block)
    (stream / "msgs" / "index.db").unlink()
    code, told = call(home, "repair", RUN)
    assert code == 1
    assert "do not hold all of it" in told
    assert "--from ARCHIVE" in told
    run = open_run(RUN, home=home)
    assert "hindcast repair" in refusal(run), "it stays closed"
    archive = shutil.copytree(whole[0] / "archive", home.parent / "archive")
    assert call(home, "repair", RUN, "--from", str(archive))[0] == 0
    assert asyncio.run(stored_in(run))[: len(whole[1])] == whole[1]


def test_a_start_refuses_within_its_first_seconds_and_trains_on_nothing(home: Path) -> None:
    bit(900)(stream_of(home) / "meta.inf")
    code, told = call(home, "start", RUN, "--until", "updates=1")
    assert code == 1
    assert f"hindcast repair {RUN}" in told


def test_damage_to_a_work_queue_loses_no_work_and_what_is_made_anew_is_said(
    whole: tuple[Path, list[Stored]], tmp_path: Path
) -> None:
    """The stream is refused until it is repaired, or the start makes the queue anew and says so in the log; of a value that
    the broker still reads, the role that opens the queue says it again."""
    description = stream_of(whole[0] / "home") / "obs" / "episodes" / "meta.inf"
    size = 8 * description.stat().st_size
    cases: list[tuple[str, Callable[[Path], object]]] = [
        *(("meta.inf", bit(number)) for number in range(3, size, size // BITS)),
        ("meta.inf", half),
        ("meta.inf", Path.unlink),
        ("meta.sum", Path.unlink),
        ("o.dat", bit(3)),
        ("o.dat", bit(11)),
    ]
    outcomes = set()
    for number, (name, damage) in enumerate(cases):
        copy = copy_of(whole, tmp_path / "copy")
        damage(stream_of(copy) / "obs" / "episodes" / name)
        run = open_run(RUN, home=copy)
        refused = refusal(run)
        if refused:
            assert f"RUN_{RUN}/obs" in refused, (number, refused)
            assert call(copy, "repair", RUN)[0] == 0
            assert refusal(run) == ""
        said = [fact for fact in facts_of(run) if isinstance(fact, LogRepaired)]
        handed = asyncio.run(worked_off(run, 50))
        if said:
            assert f"RUN_{RUN}/obs" in said[0].reason
            assert handed[0] == first_request(whole[1]), "a new queue hands out everything"
        else:
            assert handed == last_requests(whole[1]), "the role that opens the queue has set right what it is"
        assert call(copy, "audit", RUN, "--json")[0] == 0
        outcomes.add((bool(refused), bool(said)))
    assert outcomes >= {(True, True), (False, True)}


def test_an_undamaged_home_starts_without_a_repair_and_repair_changes_nothing(
    whole: tuple[Path, list[Stored]], home: Path
) -> None:
    run = open_run(RUN, home=home)
    code, told = call(home, "repair", RUN)
    assert (code, "nothing was repaired" in told) == (0, True)
    assert asyncio.run(stored_in(run)) == whole[1]
    assert refusal(run) == ""
    assert isinstance(facts_of(run)[-1], RunResumed)
    assert asyncio.run(worked_off(run, 50))[0] > first_request(whole[1]), "the queue goes on"


def first_request(events: list[Stored]) -> int:
    return next(stored.position for stored in events if ".request." in stored.subject)


def last_requests(events: list[Stored]) -> list[int]:
    """Positions of the requests that were not worked off."""
    return [stored.position for stored in events if ".request." in stored.subject][REQUESTS // 2 :]


def facts_of(run: RunHandle) -> list[object]:
    async def all_of_them() -> list[object]:
        async with run.connect_log() as log:
            return [recorded.fact async for recorded in read(log)]

    return asyncio.run(all_of_them())


def refusal(run: RunHandle) -> str:
    """What a start says before anything works on the run; empty when it opens it."""
    try:
        asyncio.run(open_log(run, None))
    except (StreamNotLoaded, ForeignLog, CorruptEvent) as error:
        return str(error)
    return ""
