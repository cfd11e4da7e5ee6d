"""One flipped bit in a block file of the broker: told by the audit, refused at a start, never trained on.

nats-server drops what it cannot read and everything behind it, without a word, and gives the same positions out again
(measured with 2.15.1). The log that is left is whole in itself; only those who had read further know.
"""

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest
from tiny_policy import write_tiny_policy
from training_story import LEARNER, QUICK, Story, informative, tell
from typer.testing import CliRunner

from app.cli import app
from app.configuration import resolve
from app.opening import open_log
from app.runs import RunHandle, create_run, open_run
from core.errors import CorruptEvent, ForeignLog, HindcastError
from core.task import Task
from events.catalogue import TaskProposed
from events.envelope import Stored
from events.publisher import Publisher
from learner.history import fold_history
from learner.loop import run_learner

RUN = "damaged"
MAX_BYTES = 16 * 1024 * 1024
"""nats-server makes blocks of a quarter of it."""


def call(home: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments, env={"HINDCAST_HOME": str(home)})
    return result.exit_code, result.stdout


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunHandle:
    """A home with a trained run in several blocks, its read model, and no broker running."""
    home = tmp_path_factory.mktemp("whole") / "home"
    policy = write_tiny_policy(home / "policy")
    chosen = [f"learner.{key}={value}" for key, value in LEARNER.items()]
    overrides = [*chosen, f"policy.base={policy}", "curriculum.group_size=4", f"log.max_bytes={MAX_BYTES}"]
    run = create_run(resolve(environment={}, folder=home, overrides=overrides), home=home, name=RUN)

    async def fill() -> None:
        story = Story(policy)
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            roles = {"app": "admin", "curriculum": "curriculum", "actor": "actor", "judge": "judge"}
            logs = {name: await enter(run.connect_log(role)) for name, role in roles.items()}
            await tell(logs["app"], [story.start(run.blobs, run.settings)], logs=logs)
            pool = await enter(
                Publisher(logs["curriculum"], producer="curriculum.1", code_rev="test", settings=QUICK)
            )
            for number in range(6):
                for task in tasks(number):
                    await pool.publish(TaskProposed(task=task, source="seeded"), entity=task.id)
                await pool.commit()
                if number < 2:
                    groups = [fact for _ in range(2) for fact in story.group(*informative(steps=2))]
                    await tell(logs["app"], groups, logs=logs)
            learning = await enter(run.connect_log("learner"))
            publisher = await enter(
                Publisher(learning, producer="learner.1", code_rev="test", settings=QUICK)
            )
            await run_learner(learning, run.blobs, publisher=publisher, policy=policy, until_updates=4)

    asyncio.run(fill())
    assert call(home, "rebuild", RUN, "--json")[0] == 0
    return run


def tasks(number: int) -> Iterator[Task]:
    """Large ones, that fill blocks however well they are compressed."""
    random = Random(number)
    for seed in range(14):
        instruction = random.randbytes(70_000).hex()
        yield Task(
            environment="store", family="find", seed=seed, instruction=instruction, goal={}, max_steps=9
        )  # fmt: skip


def blocks(home: Path) -> list[Path]:
    return sorted(home.glob("broker/jetstream/*/streams/*/msgs/*.blk"), key=lambda path: int(path.stem))


def flip(path: Path, part: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(part * len(content))] ^= 0x10
    path.write_bytes(bytes(content))


@pytest.fixture
def home(whole: RunHandle, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    shutil.copytree(whole.home, tmp_path / "home", ignore=shutil.ignore_patterns("broker.json"))
    return tmp_path / "home"


def test_the_undamaged_run_has_no_defects_and_several_blocks(home: Path) -> None:
    assert len(blocks(home)) > 2
    code, told = call(home, "audit", RUN, "--json")
    report = json.loads(told)
    assert (code, report["defects"]) == (0, [])
    assert any(name.startswith("the read model") for name in report["witnesses"])


async def beginning_of_work(run: RunHandle) -> str:
    """Who refuses to work on the log: the start, else the learner; empty when nobody does."""
    try:
        await open_log(run, None)
    except HindcastError as error:
        assert isinstance(error, ForeignLog | CorruptEvent)
        return "start"
    try:
        async with run.connect_log("learner") as log:
            await fold_history(log, run.blobs, unreadable=set())
    except HindcastError as error:
        assert isinstance(error, ForeignLog | CorruptEvent)
        return "learner"
    return ""


async def events_of(run: RunHandle) -> list[Stored]:
    async with run.connect_log() as log:
        found: list[Stored] = []
        while batch := await log.read(after=found[-1].position if found else 0, limit=500):
            found += batch
        return found


@pytest.mark.parametrize("block", [0, 1, -1])
@pytest.mark.parametrize("part", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("index", ["with its index", "without its index"])
def test_a_flipped_bit_is_told_and_nobody_trains_on_what_is_left(
    whole: RunHandle, home: Path, block: int, part: float, index: str
) -> None:
    before = asyncio.run(events_of(whole))
    flip(blocks(home)[block], part)
    if index == "without its index":
        for path in home.glob("broker/jetstream/*/streams/*/msgs/index.db"):
            path.unlink()
    code, told = call(home, "audit", RUN, "--json")
    report = json.loads(told)
    print(block, part, index, "rc", code, report["events"], len(before), [(d["check"], d["position"], d["until"], d["what"][:60]) for d in report["defects"]][:6])
    run = open_run(RUN, home=home)
    print("refused by", repr(asyncio.run(beginning_of_work(run))))
