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
from typer.testing import CliRunner

from fakes.tiny_policy import write_tiny_policy
from hindcast.app.cli import app
from hindcast.app.runs.open_log import open_log
from hindcast.app.runs.runs import RunHandle, create_run, open_run
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.task import Task
from hindcast.core.errors import CorruptEvent, ForeignLog
from hindcast.core.settings.old_names import renamed
from hindcast.events.catalogue import PhaseStarted, TaskProposed
from hindcast.events.log.publisher import Publisher
from hindcast.learner.loop import run_learner
from stories.training_story import LEARNER, QUICK, Story, informative, tell

pytestmark = [pytest.mark.broker, pytest.mark.torch]

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
    chosen = [f"{renamed(f'learner.{key}')}={value}" for key, value in LEARNER.items()]
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


async def refusal(run: RunHandle) -> str:
    """Who refuses to work on the log: the start, else the learner; empty when nobody does."""
    try:
        await open_log(run, None)
    except (ForeignLog, CorruptEvent):
        return "the start"
    try:
        await learn(run)
    except (ForeignLog, CorruptEvent):
        return "the learner"
    return ""


async def learn(run: RunHandle) -> None:
    async with (
        run.connect_log("learner") as log,
        Publisher(log, producer="learner.1", code_rev="test", settings=QUICK) as publisher,
    ):
        policy = Path(run.settings.policy.base)
        await run_learner(log, run.blobs, publisher=publisher, policy=policy, until_updates=5)


async def kept(run: RunHandle, last: int) -> set[int]:
    """Positions that the broker still gives out, asked for one by one."""
    async with run.connect_log() as log:
        found = [await log.read(after=position - 1, limit=1) for position in range(1, last + 1)]
    return {batch[0].position for batch in found if batch}


@pytest.mark.parametrize(
    ("block", "index", "left"),
    [
        pytest.param(0, True, "a hole at the beginning", id="in-the-first-block"),
        pytest.param(-1, True, "a hole", id="in-the-last-block"),
        pytest.param(-1, False, "no end", id="in-the-last-block-without-its-index"),
        pytest.param(0, False, "nothing", id="in-the-first-block-without-its-index"),
    ],
)
def test_a_flipped_bit_is_told_with_all_positions_and_nobody_trains_on_what_is_left(
    whole: RunHandle, home: Path, block: int, index: bool, left: str
) -> None:
    last = read_up_to(whole)
    flip(blocks(home)[block], 0.5)
    if not index:
        forget_index(home)
    run = open_run(RUN, home=home)
    code, told = call(home, "audit", RUN, "--json")
    report = json.loads(told)
    assert code == 3
    lost = [defect for defect in report["defects"] if defect["check"] in ("position", "witness")]
    named = {position for defect in lost for position in range(defect["position"], defect["until"] + 1)}
    there = set() if left == "nothing" else asyncio.run(kept(run, last))
    assert named == set(range(1, last + 1)) - there
    assert (1 in named) == (left in ("nothing", "a hole at the beginning"))
    assert (last in named) == (left in ("nothing", "no end"))
    assert asyncio.run(refusal(run)) == ("the learner" if left == "a hole" else "the start")
    assert call(home, "audit", RUN, "--json")[0] == 3, "no refused start made it good"


def test_positions_given_out_a_second_time_are_told_by_who_had_read_them(
    whole: RunHandle, home: Path
) -> None:
    """Whoever works on the log without asking others writes over what was lost."""
    last = read_up_to(whole)
    flip(blocks(home)[-1], 0.5)
    forget_index(home)
    run = open_run(RUN, home=home)

    async def go_on() -> None:
        async with (
            run.connect_log("curriculum") as log,
            Publisher(log, producer="curriculum.1", code_rev="test", settings=QUICK) as publisher,
        ):
            while await publisher.commit() < last + 3:
                await publisher.publish(PhaseStarted(phase=0, reference_version=0), entity="phase_0")

    asyncio.run(go_on())
    code, told = call(home, "audit", RUN, "--json")
    found = [defect for defect in json.loads(told)["defects"] if defect["check"] == "witness"]
    assert code == 3
    assert [(defect["position"], defect["what"]) for defect in found] == [
        (last, "the read model has read another event here")
    ]
    assert asyncio.run(refusal(run)) == "the start"


def test_the_way_out_that_a_refused_start_names_leads_out(home: Path) -> None:
    """What is lost is given up on purpose: everything derived from it is dropped."""
    flip(blocks(home)[-1], 0.5)
    forget_index(home)
    run = open_run(RUN, home=home)
    assert asyncio.run(refusal(run)) == "the start"
    assert call(home, "rebuild", RUN, "--replace", "--json")[0] == 3
    assert asyncio.run(refusal(run)) == ""
    assert call(home, "audit", RUN, "--json")[0] == 0


def read_up_to(run: RunHandle) -> int:
    model = run.read_model()
    try:
        return model.position()
    finally:
        model.close()


def forget_index(home: Path) -> None:
    """The server then finds out from the blocks themselves what it holds."""
    for path in home.glob("broker/jetstream/*/streams/*/msgs/index.db"):
        path.unlink()
