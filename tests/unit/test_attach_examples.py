"""The consumers that ship, each on a recorded run in a real broker, and the one of the documentation as it stands there."""

import asyncio
import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from hindcast.app.attach.attachment import AttachmentStatus, store_url
from hindcast.app.attach.consumers import Lag, state_of
from hindcast.app.attach.curves import points_of
from hindcast.app.attach.store import ConsumerStore, this_host
from hindcast.app.attach.trackers import TrackerBridge
from hindcast.app.cli import app
from hindcast.app.runs.runs import RunHandle
from hindcast.core.domain.arrays import unpack_floats
from hindcast.core.domain.observation import Node, Page
from hindcast.core.errors import SettingsError
from hindcast.core.prompts.rendering import RENDERERS
from hindcast.core.rl.statistics import wilson
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    EvaluationFinished,
    QueueRepaired,
    StepTaken,
    UpdateApplied,
)
from hindcast.events.catalogue.evaluation import EvaluationResult
from hindcast.events.codec import decode_envelope
from hindcast.events.envelope import BlobRef, Recorded
from hindcast.events.log.memory import MemoryLog
from hindcast.storage.blobs.store import BlobStore
from stories.recorded_home import make_home
from stories.synthetic_run import Told, a_run, record

ROOT = Path(__file__).parents[2]
FACTS = a_run(3, groups=12)
JUDGED = [fact for _, _, fact in FACTS if isinstance(fact, EpisodeJudged)]


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> RunHandle:
    return asyncio.run(make_home(tmp_path_factory.mktemp("examples") / "home", FACTS))


def attach(handle: RunHandle, target: str, *arguments: str, **environment: str) -> str:
    result = CliRunner().invoke(
        app,
        ["attach", target, "--until", "end", *arguments],
        env={"HINDCAST_HOME": str(handle.home), **environment},
    )
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def asked(handle: RunHandle, name: str, statement: str) -> list[tuple[object, ...]]:
    store = ConsumerStore(store_url(handle, name))
    try:
        with store.writing() as db:
            return [tuple(row) for row in db.execute(text(statement))]
    finally:
        store.close()


def test_the_consumer_of_the_documentation_works_as_it_stands_there(
    handle: RunHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "attach.md").read_text(), re.DOTALL)
    (tmp_path / "verdicts.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    attach(handle, "verdicts:consumer")
    rows = asked(handle, "verdicts", "SELECT episode, outcome FROM verdict ORDER BY position")
    assert rows == [(fact.episode, fact.judgment.outcome) for fact in JUDGED]
    body = code[code.index("def consumer") :]
    assert body in (ROOT / "app" / "examples" / "verdict_table.py").read_text()


@pytest.mark.parametrize(
    "name",
    sorted(file.stem for file in (ROOT / "app" / "examples").glob("[!_]*.py")),
)
def test_each_is_short_enough_to_be_read_at_once(name: str) -> None:
    assert len((ROOT / "app" / "examples" / f"{name}.py").read_text().splitlines()) <= 40


def test_the_success_watcher_alerts_when_the_whole_interval_lies_under_the_threshold(
    handle: RunHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hindcast.app.examples.success_watcher as watcher

    online = {
        fact.episode for _, _, fact in FACTS if isinstance(fact, EpisodeRequested) and fact.origin == "online"
    }
    first: dict[str, bool] = {}
    for fact in JUDGED:
        if fact.episode in online and fact.judgment.outcome != "undecided":
            first.setdefault(fact.episode, fact.judgment.outcome == "success")
    told = tmp_path / "told"
    monkeypatch.setattr(watcher, "EPISODES", 8)
    monkeypatch.setattr(watcher, "COMMAND", ["tee", "-a", str(told)])
    monkeypatch.setattr(watcher, "UNDER", 0.0)
    attach(handle, "hindcast.app.examples.success_watcher:consumer", "--name", "calm")
    assert not told.exists()
    rows = asked(handle, "calm", "SELECT name, won FROM tried WHERE at IS NOT NULL")
    assert {name: bool(won) for name, won in rows} == first
    monkeypatch.setattr(watcher, "UNDER", 1.01)
    output = attach(handle, "hindcast.app.examples.success_watcher:consumer", "--name", "anxious")
    alerts = told.read_text().splitlines()
    assert len(alerts) == len(first) // 8 >= 1
    assert re.fullmatch(r"success \d+% \[\d+%, \d+%\] n=8", alerts[0])
    assert alerts[0] in output


def test_the_weight_outliers_are_named_with_the_position_of_their_step(handle: RunHandle) -> None:
    output = attach(handle, "hindcast.app.examples.weight_outliers:consumer")
    found = re.findall(r"update (\d+): step (\d+) of (\S+) \(position (\d+)\) push \S+ ratio (\S+)", output)
    for _, number, episode, position, _ in found:
        step = FACTS[int(position) - 1].fact
        assert isinstance(step, StepTaken)
        assert (step.episode, step.index) == (episode, int(number))
    off_policy = sum(
        sum(not 0.5 <= ratio <= 2.0 for ratio in unpack_floats(fact.samples.ratios).tolist())
        for _, _, fact in FACTS
        if isinstance(fact, UpdateApplied) and fact.model == "policy"
    )
    assert len(found) >= off_policy > 0


@pytest.mark.process
def test_the_csv_sink_writes_each_event_once_also_after_a_crash_in_the_midst_of_a_line(
    handle: RunHandle, tmp_path: Path
) -> None:
    half = len(FACTS) // 2
    target = "hindcast.app.examples.csv_sink:consumer"
    attach(handle, target, "--until", str(half), CSV_FOLDER=str(tmp_path))
    with (tmp_path / "verdicts.csv").open("a") as file:
        file.write("999,ep_of_a_transaction_that_was_und")
    attach(handle, target, CSV_FOLDER=str(tmp_path))
    with (tmp_path / "verdicts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["episode"], row["outcome"]) for row in rows] == [
        (fact.episode, fact.judgment.outcome) for fact in JUDGED
    ]
    with (tmp_path / "updates.csv").open(newline="") as file:
        updates = list(csv.DictReader(file))
    told = [fact for _, _, fact in FACTS if isinstance(fact, UpdateApplied)]
    assert [(int(row["update"]), row["model"]) for row in updates] == [
        (fact.update, fact.model) for fact in told
    ]


@pytest.mark.process
def test_the_duckdb_sink_writes_each_event_once_also_when_a_crash_undoes_what_it_had_taken_in(
    handle: RunHandle, tmp_path: Path
) -> None:
    duckdb = pytest.importorskip("duckdb")
    half = len(FACTS) // 2
    target, file = "hindcast.app.examples.duckdb_sink:consumer", tmp_path / "run.duckdb"
    attach(handle, target, "--until", str(half), DUCKDB_FILE=str(file))
    kept = ConsumerStore(store_url(handle, "duckdb_sink")).file
    assert kept is not None
    before = kept.read_bytes()
    attach(handle, target, DUCKDB_FILE=str(file))
    kept.write_bytes(before)  # as if it had been killed before its transaction was kept
    attach(handle, target, DUCKDB_FILE=str(file))
    with duckdb.connect(str(file), read_only=True) as duck:
        rows = duck.execute("SELECT episode, judge, outcome FROM verdicts ORDER BY position").fetchall()
        updates = duck.execute("SELECT number, model, loss FROM updates ORDER BY position").fetchall()
    assert rows == [(fact.episode, fact.judge.name, fact.judgment.outcome) for fact in JUDGED]
    told = [fact for _, _, fact in FACTS if isinstance(fact, UpdateApplied)]
    assert updates == [(fact.update, fact.model, fact.metrics["loss"]) for fact in told]


def points_in(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Of TensorBoard's event files, by tag: length, checksum, event, checksum, again and again (TFRecord)."""
    event_of = pytest.importorskip("tensorboardX.proto.event_pb2").Event.FromString
    found: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(folder.glob("events.out.tfevents.*")):
        content, at = file.read_bytes(), 0
        while at < len(content):
            size = int.from_bytes(content[at : at + 8], "little")
            event = event_of(content[at + 12 : at + 12 + size])
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
            at += 16 + size
        assert at == len(content)
    return found


def updates_of_the_policy() -> list[UpdateApplied]:
    return [fact for _, _, fact in FACTS if isinstance(fact, UpdateApplied) and fact.model == "policy"]


def evaluations() -> list[EvaluationFinished]:
    return [fact for _, _, fact in FACTS if isinstance(fact, EvaluationFinished)]


def test_curves_of_an_evaluation_are_rates_with_their_intervals() -> None:
    fact = EvaluationFinished(
        number=0,
        version=7,
        version_low=7,
        version_high=7,
        results=tuple(
            EvaluationResult(temperature=1.0, family=family, successes=won, failures=lost, lost=1, reward=0.0)
            for family, won, lost in (("store/buy", 3, 1), ("store/find", 0, 0), ("miniwob/x", 1, 5))
        ),
        seconds=1.0,
        share=0.1,
    )
    points = points_of(fact)
    assert points is not None
    assert (points.axis, points.at) == ("version", 7)
    assert points.values["held_out/temperature_1/success"] == 0.4
    assert points.values["held_out/temperature_1/store/buy/success"] == 0.75
    found = wilson(4, 10)
    assert (points.values["held_out/temperature_1/low"], points.values["held_out/temperature_1/high"]) == (
        found.low,
        found.high,
    )
    assert "held_out/temperature_1/store/find/success" not in points.values


GENESIS = 12
"""Characters of the digest of a log's first event in the id of a tracked run."""


@pytest.fixture
def run_id(handle: RunHandle) -> str:
    async def first() -> str:
        async with handle.connect_log("reader") as log:
            return (await log.identity()).first_digest.hex()[:GENESIS]

    return f"{handle.name}-{asyncio.run(first())}"


def success_curve(handle: RunHandle, name: str) -> list[float]:
    rows = asked(
        handle,
        name,
        f"SELECT outcome FROM {name.removesuffix('_bridge')}_episodes WHERE origin = 'online' "
        "AND outcome IN ('success', 'failure') ORDER BY position",
    )
    won = [row[0] == "success" for row in rows]
    return [sum(won[max(0, at - 100) : at]) / min(at, 100) for at in range(1, len(won) + 1)]


def held_out_curve(chart: str) -> list[tuple[int, float]]:
    points = [points_of(fact) for fact in evaluations()]
    return [(one.at, one.values[chart]) for one in points if one is not None]


def repaired_queues() -> list[str]:
    """Kinds of the incidents that begin in the run."""
    return ["queue" for _, _, fact in FACTS if isinstance(fact, QueueRepaired)]


def close(bridge: TrackerBridge) -> None:
    """What happens when the process ends."""
    for run in bridge._opened.values():
        run.tracker.close()


CHARTS = ("held_out/temperature_0/success", "held_out/temperature_0/low", "held_out/temperature_0/high")


def judged_episodes(handle: RunHandle, name: str) -> list[str]:
    table = f"{name.removesuffix('_bridge')}_episodes"
    rows = asked(handle, name, f"SELECT episode FROM {table} WHERE sent = 1 ORDER BY position")
    return [str(row[0]) for row in rows]


def test_the_tensorboard_bridge_draws_curves_and_episodes_in_a_folder_of_the_log(
    handle: RunHandle, tmp_path: Path, run_id: str
) -> None:
    pytest.importorskip("tensorboardX")
    from hindcast.app.examples.tensorboard_bridge import consumer

    attach(handle, "tensorboard", TENSORBOARD_FOLDER=str(tmp_path))
    close(consumer)
    assert [folder.name for folder in tmp_path.iterdir()] == [run_id]
    found = points_in(tmp_path / run_id)
    told = updates_of_the_policy()
    assert found["update/loss"] == [(fact.update, pytest.approx(fact.metrics["loss"])) for fact in told]
    for chart in CHARTS:
        assert found[chart] == [(at, pytest.approx(value)) for at, value in held_out_curve(chart)]
    curve = success_curve(handle, "tensorboard")
    assert [value for _, value in found["success"]] == pytest.approx(curve)
    said = [at for at, (_, _, fact) in enumerate(FACTS, 1) if isinstance(fact, EpisodeJudged)]
    assert {at for at, _ in found["success"]} <= set(said)
    assert len(found["alerts/queue/text_summary"]) == len(repaired_queues())
    shown = (tmp_path / run_id).glob("events.out.tfevents.*")
    content = b"".join(file.read_bytes() for file in shown)
    episodes = judged_episodes(handle, "tensorboard")
    assert episodes
    assert all(f"|{episode}|".encode() in content for episode in episodes)


def wandb_records(content: bytes) -> Iterator[bytes]:
    """Records of an offline run's file: after 7 bytes, blocks of 32 KiB of checksum, length, kind, part (LevelDB's log)."""
    at, whole = 7, b""
    while at < len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        whole += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            yield whole
            whole = b""


def wandb_run(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """History and titles of alerts of an offline run, decoded with the package's own messages."""
    record_of = pytest.importorskip("wandb.proto.wandb_internal_pb2").Record.FromString
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    rows, alerts = [], []
    for content in wandb_records(file.read_bytes()):
        record = record_of(content)
        if record.HasField("history"):
            items = record.history.item
            rows.append(
                {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
            )
        if record.HasField("alert"):
            alerts.append(record.alert.title)
    return rows, alerts


def test_the_wandb_bridge_keeps_curves_and_episodes_offline_as_the_package_reads_them(
    handle: RunHandle, tmp_path: Path, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    from hindcast.app.examples import wandb_bridge

    environment = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    attach(handle, "wandb", **environment)
    assert (wandb.run.id, wandb.run.name) == (run_id, handle.name)
    close(wandb_bridge.consumer)
    wandb.teardown()  # its service has written everything once it has ended
    rows, alerts = wandb_run(tmp_path)
    assert alerts == repaired_queues()
    assert [row["_step"] for row in rows] == [row["position"] for row in rows]
    assert [(row["update"], row["update/loss"]) for row in rows if "update" in row] == [
        (fact.update, pytest.approx(fact.metrics["loss"])) for fact in updates_of_the_policy()
    ]
    for chart in CHARTS:
        found = [(row["version"], row[chart]) for row in rows if chart in row]
        assert found == [(at, pytest.approx(value)) for at, value in held_out_curve(chart)]
    curve = success_curve(handle, "wandb")
    assert [row["success"] for row in rows if "success" in row] == pytest.approx(curve)
    tables = sorted(tmp_path.glob("wandb/offline-run-*/files/media/table/episodes_*.json"))
    listed = [row[0] for file in tables for row in json.loads(file.read_text())["data"]]
    assert sorted(listed) == sorted(judged_episodes(handle, "wandb")) != []


def test_the_trackio_bridge_keeps_curves_and_episodes_once_also_when_a_crash_undoes_what_it_had_taken_in(
    handle: RunHandle, tmp_path: Path, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    trackio = pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    from hindcast.app.examples import trackio_bridge

    def attach_until(place: str) -> None:
        monkeypatch.setattr(trackio_bridge.consumer, "_opened", {})  # as another process
        attach(handle, "trackio", "--until", place)
        close(trackio_bridge.consumer)

    attach_until(str(len(FACTS) // 2))
    kept = ConsumerStore(store_url(handle, "trackio")).file
    assert kept is not None
    before = kept.read_bytes()
    attach_until("end")
    kept.write_bytes(before)
    attach_until("end")
    (run,) = trackio.Api().runs("hindcast")
    assert run.name == run_id
    assert [one["title"] for one in run.alerts()] == repaired_queues()
    rows = SQLiteStorage.get_logs("hindcast", run_id)
    steps = [row["step"] for row in rows]
    assert steps == sorted(set(steps)) == [row["position"] for row in rows]
    assert [(row["update"], row["update/loss"]) for row in rows if "update" in row] == [
        (fact.update, pytest.approx(fact.metrics["loss"])) for fact in updates_of_the_policy()
    ]
    for chart in CHARTS:
        found = [(row["version"], row[chart]) for row in rows if chart in row]
        assert found == [(at, pytest.approx(value)) for at, value in held_out_curve(chart)]
    assert [row["success"] for row in rows if "success" in row] == pytest.approx(
        success_curve(handle, "trackio")
    )
    listed = [one["episode"] for row in rows if "episodes" in row for one in row["episodes"]["_value"]]
    assert listed == judged_episodes(handle, "trackio") != []


async def test_the_anomaly_watcher_names_the_update_that_leaps_and_no_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from hindcast.app.examples.anomaly_watcher import consumer

    calm = [0.1 + 0.01 * (number % 5) for number in range(20)]
    model = updates_of_the_policy()[0]
    log = MemoryLog("tale")
    await record(log, FACTS[:1])
    (stored,) = log.events
    state = consumer.initial()
    for number, loss in enumerate([*calm, 9.0, *calm], 1):
        fact = msgspec.structs.replace(model, update=number, metrics={"loss": loss})
        state = consumer.apply(state, Recorded(number, decode_envelope(stored), fact, b""))
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["update 21 at position 21: loss 9, of late 0.12 with a spread of 0.015"]


def with_page(told: Told, ref: BlobRef) -> Told:
    """The fact, with this page where a step has one."""
    fact = told.fact
    if isinstance(fact, StepTaken) and fact.observation is not None:
        fact = msgspec.structs.replace(fact, observation=ref)
    return told._replace(fact=fact)


def test_the_dataset_builder_writes_every_success_once_as_a_chat(tmp_path: Path) -> None:
    page = Page(url="http://shop/", title="", nodes=(Node(kind="text", tag="p", text="A lamp"),))
    shown, gone_page = RENDERERS["lines/2"](page), "(the page was deleted)"
    ref = BlobStore(tmp_path / "made").put(msgspec.msgpack.encode(page))
    facts = [with_page(told, ref) for told in FACTS]
    handle = asyncio.run(make_home(tmp_path / "home", facts))
    assert handle.blobs.put(msgspec.msgpack.encode(page)) == ref
    target, file = "hindcast.app.examples.dataset_builder:consumer", tmp_path / "chats.jsonl"
    attach(handle, target, "--until", str(len(FACTS) // 2), DATASET_FILE=str(file))
    with file.open("a") as torn:
        torn.write('{"id": "ep_of_a_transaction_that_was_und')
    attach(handle, target, DATASET_FILE=str(file))
    chats = {chat["id"]: chat["messages"] for chat in map(json.loads, file.read_text().splitlines())}
    wanted = {
        fact.episode
        for _, _, fact in FACTS
        if isinstance(fact, EpisodeRequested) and fact.origin in ("online", "demonstration")
    }
    sure = [fact for fact in reversed(JUDGED) if fact.judgment.outcome != "undecided"]
    first = {fact.episode: fact.judgment.outcome for fact in sure}
    succeeded = {episode for episode, outcome in first.items() if outcome == "success"}
    assert chats.keys() == wanted & succeeded != set()
    assert len(file.read_text().splitlines()) == len(chats)
    tasks = {f.episode: f.instruction for _, _, f in FACTS if isinstance(f, EpisodeStarted)}
    for episode, chat in chats.items():
        steps = [f for _, _, f in FACTS if isinstance(f, StepTaken) and f.episode == episode]
        read = [shown if step.index % 2 else gone_page for step in steps]
        read[0] = f"{tasks[episode]}\n\n{read[0]}"
        assert [one["role"] for one in chat] == ["user", "assistant"] * len(steps)
        assert [one["content"] for one in chat[::2]] == read
        assert [one["content"] for one in chat[1::2]] == [step.answer for step in steps]
    gone = {fact.episode for _, _, fact in FACTS if isinstance(fact, EpisodeAbandoned | EpisodeCancelled)}
    kept = {episode for (episode,) in asked(handle, "dataset_builder", "SELECT DISTINCT episode FROM turns")}
    assert kept == wanted - gone - first.keys(), "what came to nothing is let go of"
    assert gone & wanted
    assert "failure" in first.values()


def test_without_duckdb_its_sink_says_what_to_install(
    handle: RunHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    environment = {"HINDCAST_HOME": str(handle.home)}
    result = CliRunner().invoke(
        app, ["attach", "hindcast.app.examples.duckdb_sink:consumer"], env=environment
    )
    assert isinstance(result.exception, SettingsError)
    assert "pip install 'hindcast[duckdb]'" in str(result.exception)


def test_a_fold_is_shown(handle: RunHandle) -> None:
    attach(handle, "hindcast.app.examples.outcome_counts:consumer")
    shown = CliRunner().invoke(
        app, ["consumer", "show", "outcome_counts"], env={"HINDCAST_HOME": str(handle.home)}
    )
    ends = Counter(fact.reason for _, _, fact in FACTS if isinstance(fact, EpisodeEnded))
    assert all(f'"{reason}":{number}' in shown.output for reason, number in ends.items())


def word(**changes: object) -> AttachmentStatus:
    told = {"host": this_host(), "pid": 2**22 + 1, "began": 1.0, "state": "running", **changes}
    return AttachmentStatus(name="n", target="t", store="s", **told)  # type: ignore[arg-type]


def test_what_a_process_left_behind_tells_what_became_of_it() -> None:
    assert state_of(word())[0] == "failed"
    assert state_of(word(host="elsewhere")) == ("unknown", "on elsewhere")
    assert state_of(word(state="failed", detail="why")) == ("failed", "why")
    assert state_of(word(state="stopped")) == ("stopped", "")


async def test_lag_is_the_age_of_the_first_event_not_taken_in() -> None:
    log = MemoryLog("tale")
    await record(log, FACTS[:20])
    times = [decode_envelope(stored).occurred_ns for stored in log.events]
    lag = Lag(log, 20, now_ns=times[-1] + 5_000_000_000)
    assert await lag.of(None) == (None, None)
    assert await lag.of(20) == (0.0, 0)
    assert await lag.of(19) == (5.0, 1)
    seconds, number = await Lag(log, 20, now_ns=None).of(4)
    assert (seconds, number) == (max(0.0, (times[19] - times[4]) / 1e9), 16)
