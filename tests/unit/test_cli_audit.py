"""`hindcast audit` on a run in a broker, an archive of it and a fork of it; what a home notes of a log."""

import asyncio
import json
import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fakes.tiny_policy import write_tiny_policy
from hindcast.app.attach.attachment import Attachment, AttachmentSession, attach
from hindcast.app.cli import app
from hindcast.app.runs.archive import archive_source
from hindcast.app.runs.fork import fork_run
from hindcast.app.runs.open_log import open_log
from hindcast.app.runs.runs import RunHandle, create_run, open_run
from hindcast.app.runs.witnesses import FILE, WitnessUnreadable, known_witnesses
from hindcast.app.settings.configuration import resolve
from hindcast.core.errors import ForeignLog
from hindcast.core.settings.old_names import renamed
from hindcast.events.log.publisher import Publisher
from hindcast.learner.loop import run_learner
from stories.forged_log import values
from stories.training_story import LEARNER, QUICK, Story, informative, tell

pytestmark = pytest.mark.torch

RUN = "parent"


def call(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ("audit", *arguments), env={"HINDCAST_HOME": str(home)})


def report(home: Path, *arguments: str, code: int = 0) -> dict[str, object]:
    result = call(home, *arguments, "--json")
    assert result.exit_code == code, result.output
    told: dict[str, object] = json.loads(result.stdout)
    return told


async def learn(run: RunHandle, *, until: int) -> None:
    async with (
        run.connect_log("learner") as log,
        Publisher(log, producer="learner.1", code_rev="test", settings=QUICK) as publisher,
    ):
        policy = Path(run.settings.policy.base)
        await run_learner(log, run.blobs, publisher=publisher, policy=policy, until_updates=until)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a run of two batches and its archive; no broker is running."""
    home = tmp_path_factory.mktemp("audited") / "home"
    policy = write_tiny_policy(home / "policy")
    chosen = [f"{renamed(f'learner.{key}')}={value}" for key, value in LEARNER.items()]
    chosen += ["learner.epochs=1", "learner.options.rehearsal_episodes=0", "learner.keep_weights=1"]
    chosen += ["learner.keep_weights_every=1000", "curriculum.group_size=4", f"policy.base={policy}"]
    run = create_run(resolve(environment={}, folder=home, overrides=chosen), home=home, name=RUN)

    async def record() -> None:
        story = Story(policy)
        roles = {"app": "admin", "curriculum": "curriculum", "actor": "actor", "judge": "judge"}
        async with AsyncExitStack() as stack:
            logs = {
                name: await stack.enter_async_context(run.connect_log(role)) for name, role in roles.items()
            }
            facts = [story.start(run.blobs, run.settings)]
            facts += [fact for _ in range(4) for fact in story.group(*informative(steps=1))]
            await tell(logs["app"], facts, logs=logs)
            await learn(run, until=4)
            await archive_source(
                run,
                home / "archive",
                follow=False,
                pages=True,
                on_event=lambda *_: None,
                on_blob=lambda _: None,
            )

    asyncio.run(record())
    return home


@pytest.fixture
def home(recorded: Path, tmp_path: Path) -> Path:
    """A copy, to be altered."""
    shutil.copytree(recorded, tmp_path / "home", ignore=shutil.ignore_patterns("broker.json", "broker.users"))
    return tmp_path / "home"


def test_a_true_run_has_no_defects_and_leaves_its_digest_for_the_next_audit(home: Path) -> None:
    told = report(home, RUN)
    assert (told["defects"], told["updates"], told["blobs_checked"]) == ([], 4, "full")
    assert told["events"] == told["last"]
    again = call(home, RUN, "--blobs", "none", "--expect", f"{told['last']}:{told['digest']}")
    assert again.exit_code == 0
    assert "no defects" in again.stdout
    assert f"the last audit without defects, position {told['last']}" in again.stdout


def test_a_digest_kept_elsewhere_tells_a_log_that_was_rewritten(home: Path) -> None:
    told = report(home, RUN)
    (home / "runs" / RUN / FILE).unlink()
    other = "0" * 64
    found = report(home, RUN, "--expect", f"{told['last']}:{other}", code=3)
    (defect,) = found["defects"]  # type: ignore[misc]
    assert defect["check"] == "digest"
    assert defect["until"] == told["last"]
    assert not (home / "runs" / RUN / FILE).exists(), "only an audit without defects is a witness"


@pytest.mark.parametrize("text", ["5", "x:00", f"0:{'0' * 64}", "5:0011"])
def test_what_is_no_position_and_digest_is_refused(home: Path, text: str) -> None:
    result = call(home, RUN, "--expect", text)
    assert result.exit_code != 0
    assert "such as 812:" in str(result.exception)


def test_an_archive_is_audited_like_its_run_without_a_broker(home: Path) -> None:
    told = report(home, str(home / "archive"))
    of_run = report(home, RUN)
    same = ("run", "events", "chains", "defects", "digest", "first", "last", "updates", "episodes")
    assert {name: told[name] for name in same} == {name: of_run[name] for name in same}
    segment = next((home / "archive" / "segments").iterdir())
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.chmod(0o600)
    segment.write_bytes(bytes(content))
    found = report(home, str(home / "archive"), code=3)
    assert found["defects"][0]["check"] == "position"  # type: ignore[index]


def test_a_fork_is_audited_from_its_parents_first_event_also_when_the_parent_has_let_go_of_weights(
    home: Path,
) -> None:
    parent = open_run(RUN, home=home)

    async def go_on() -> None:
        async with parent.connect_log() as log:
            stored = await log.read(after=0, limit=10_000)
            at = next(one.position for one in stored if values(one)["type"] == "update.applied")
            await fork_run(
                parent,
                at=at,
                name="child",
                overrides=["learner.options.kl_coefficient=0.5"],
                said=lambda _: None,
            )
            await learn(open_run("child", home=home), until=4)

    asyncio.run(go_on())
    told = report(home, "child")
    assert (told["defects"], told["first"], told["updates"]) == ([], 1, 4)


def test_a_start_notes_where_the_log_ended_and_refuses_one_that_ends_earlier(home: Path) -> None:
    run = open_run(RUN, home=home)
    asyncio.run(open_log(run, None))
    witness, *_ = known_witnesses(run)
    assert witness.name == "the last start of the run"
    path = run.folder / FILE
    noted = json.loads(path.read_text())
    noted["start"]["position"] += 5
    path.write_text(json.dumps(noted))
    with pytest.raises(ForeignLog, match=f"had read it up to position {witness.position + 5}"):
        asyncio.run(open_log(run, None))
    found = report(home, RUN, code=3)
    (defect,) = found["defects"]  # type: ignore[misc]
    assert (defect["position"], defect["until"]) == (witness.position + 1, witness.position + 5)


def test_a_start_refuses_a_log_with_another_event_where_it_ended(home: Path) -> None:
    run = open_run(RUN, home=home)
    asyncio.run(open_log(run, None))
    path = run.folder / FILE
    noted = json.loads(path.read_text())
    noted["start"]["digest"] = "0" * 64
    path.write_text(json.dumps(noted))
    with pytest.raises(ForeignLog, match="holds another event at position"):
        asyncio.run(open_log(run, None))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"start": 5}', '{"start": {"position": "x"}}'])
def test_a_note_that_cannot_be_read_is_named_and_no_start_does_without_it(home: Path, content: str) -> None:
    run = open_run(RUN, home=home)
    asyncio.run(open_log(run, None))
    path = run.folder / FILE
    path.write_text(content)
    with pytest.raises(
        WitnessUnreadable, match=r"witness\.json cannot be read: .*hindcast audit .*delete the file"
    ):
        asyncio.run(open_log(run, None))
    (defect,) = report(home, RUN, code=3)["defects"]  # type: ignore[misc]
    assert (defect["check"], str(path) in defect["found"]) == ("witness", True)
    assert path.read_text() == content, "an audit with a defect notes nothing"
    path.unlink()
    asyncio.run(open_log(run, None))
    assert len(known_witnesses(run)) == 1


def test_consumers_and_the_read_model_are_asked_how_far_they_have_read(home: Path) -> None:
    run = open_run(RUN, home=home)
    attachment = Attachment(
        target="hindcast.app.examples.outcome_counts:OutcomeCounts", name="counts", until="end"
    )
    taken = asyncio.run(attach(run, attachment, AttachmentSession())).position
    rebuilt = CliRunner().invoke(app, ("rebuild", RUN), env={"HINDCAST_HOME": str(home)})
    assert rebuilt.exit_code == 0
    names = {(witness.name, witness.position) for witness in known_witnesses(run)}
    assert names == {("the read model", taken), ("the consumer counts", taken)}
    assert report(home, RUN)["witnesses"] == [
        f"{name}, position {taken}" for name, _ in sorted(names, reverse=True)
    ]


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def overwritten(content: bytes) -> bytes:
    return b"no database" + content[11:]


def inner_pages_lost(content: bytes) -> bytes:
    return content[:4096] + bytes(len(content) - 4096)


@pytest.mark.parametrize("damage", [cut, overwritten, inner_pages_lost])
def test_a_damaged_read_model_is_named_with_the_command_that_folds_it_again(
    home: Path, damage: Callable[[bytes], bytes]
) -> None:
    def call(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, arguments, env={"HINDCAST_HOME": str(home)})
        return result.exit_code, result.stdout + str(result.exception or "")

    assert call("rebuild", RUN)[0] == 0
    file = open_run(RUN, home=home).folder / "readmodel.sqlite"
    whole = call("run", "show", RUN)
    file.write_bytes(damage(file.read_bytes()))
    for command in (("run", "show"), ("episode", "list"), ("policy", "list"), ("task", "list")):
        code, told = call(*command, RUN)
        assert code == 1, (command, told)
        assert len(told.splitlines()) == 1
        assert str(file) in told
        assert f"hindcast rebuild {RUN}" in told
    assert "hindcast rebuild" in call("run", "list")[1]
    assert call("rebuild", RUN, "--replace")[0] in (0, 3)
    assert call("run", "show", RUN) == whole


def test_an_emptied_read_model_is_folded_again_when_a_command_asks(home: Path) -> None:
    def call(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, arguments, env={"HINDCAST_HOME": str(home)})
        return result.exit_code, result.stdout

    assert call("rebuild", RUN)[0] == 0
    whole = call("run", "show", RUN)
    (open_run(RUN, home=home).folder / "readmodel.sqlite").write_bytes(b"")
    assert call("run", "show", RUN) == whole
