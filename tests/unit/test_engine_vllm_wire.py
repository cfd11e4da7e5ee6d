"""What is read of a vLLM server's answers, what is not believed, and who is asked; the server itself: tests/vllm."""

import itertools
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import numpy as np
import pytest

import hindcast.actors.policy_servers.command
from hindcast.actors.engines.base import Generation, preferred, routed_by, routing_key
from hindcast.actors.engines.vllm.generate_wire import read_answer, request_body, sample_guided
from hindcast.actors.engines.vllm.weights import (
    Unusable,
    WholeWeights,
    WrongVersion,
    label_of,
    version_in,
)
from hindcast.actors.policy_servers.command import require_policy_servers, server_command, server_environment
from hindcast.actors.policy_servers.role import folders_for
from hindcast.actors.policy_servers.version_folders import VersionFolders, WholeModelLayout
from hindcast.app.settings.configuration import resolve
from hindcast.core.domain.sampling import Sampling
from hindcast.core.errors import ModelFileError, SettingsError
from hindcast.core.grammar.allowed_tokens import Allowed, unpack_allowed
from hindcast.core.models.engine import find_engine
from hindcast.core.settings.schema import Settings
from hindcast.events.disk import Disk

pytestmark = pytest.mark.torch

END = 3
WHOLE = WholeWeights("run-1")
WARM = Sampling(temperature=1.0, max_tokens=8, seed=5)


def answer(**changes: Any) -> bytes:
    choice: dict[str, Any] = {
        "index": 0,
        "token_ids": [7, 9, END],
        "logprobs": {"content": [{"token_id": t, "logprob": -0.5, "rank": 1} for t in (7, 9, END)]},
        "finish_reason": "stop",
        "weight_versions": [{"version": "run-1:4", "start": 0, "end": 3}],
    }
    return msgspec.json.encode({"request_id": "x", "choices": [choice | changes]})


def test_an_answer_bears_the_version_of_each_token() -> None:
    spans = [
        {"version": "run-1:4", "start": 0, "end": 1},
        {"version": "run-1:6", "start": 1, "end": 3},
    ]
    read = read_answer(answer(weight_versions=spans), weights=WHOLE, requested=0, stops=(END,))
    assert read == Generation(token_ids=[7, 9, END], logprobs=[-0.5] * 3, versions=[4, 6, 6], finish="stop")
    assert (
        read_answer(answer(finish_reason="length"), weights=WHOLE, requested=0, stops=(9,)).finish == "length"
    )


@pytest.mark.parametrize("label", ["default", "run-2:4", "run-1:", "run-1:-1", "run-1:4x", "changing", ""])
def test_weights_of_unknown_origin_are_never_taken_for_the_runs(label: str) -> None:
    assert version_in(label, "run-1") is None
    with pytest.raises(WrongVersion, match="not run run-1's"):
        read_answer(
            answer(weight_versions=[{"version": label, "start": 0, "end": 3}]),
            weights=WHOLE,
            requested=0,
            stops=(END,),
        )


def test_a_label_names_its_run_and_version() -> None:
    assert version_in(label_of("a-run", 12), "a-run") == 12
    assert version_in(label_of("a-run", 12), "run") is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"token_ids": []}, "broken off"),
        ({"token_ids": None}, "broken off"),
        ({"finish_reason": "abort"}, "broken off after 3 tokens"),
        ({"logprobs": None}, "0 log-probabilities"),
        ({"token_ids": [7, 9, 4]}, "of others"),
        ({"weight_versions": None}, "versions of 0"),
        ({"weight_versions": [{"version": "run-1:4", "start": 0, "end": 2}]}, "versions of 2"),
        ({"weight_versions": [{"version": "run-1:4", "start": 1, "end": 3}]}, "came where 0 was due"),
        ({"token_ids": "7"}, "no answer"),
    ],
)
def test_an_answer_that_lacks_something_is_not_used(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(Unusable, match=why):
        read_answer(answer(**changes), weights=WHOLE, requested=0, stops=(END,))


def test_a_body_that_is_no_answer_is_not_used() -> None:
    for content in (b"", b"[]", b'{"choices": []}', b'{"error": "no"}'):
        with pytest.raises(Unusable):
            read_answer(content, weights=WHOLE, requested=0, stops=(END,))


def test_a_request_samples_the_whole_distribution_and_ends_by_our_end_token_alone() -> None:
    body = request_body([1, 2], WARM, stops=(END,), version_fields=WHOLE.request_fields(4))
    parameters = body["sampling_params"]
    assert (parameters["top_p"], parameters["top_k"], parameters["min_p"]) == (1.0, 0, 0.0)
    assert parameters["ignore_eos"]
    assert parameters["stop_token_ids"] == [END]
    assert "allowed_token_ids" not in parameters
    assert body["cache_salt"] == "run-1:4"
    restricted = request_body(
        [1], WARM, stops=(END,), version_fields={}, seed=1 << 63, max_tokens=1, allowed=[4, 5]
    )
    assert restricted["sampling_params"]["seed"] < 1 << 63
    assert restricted["sampling_params"]["allowed_token_ids"] == [4, 5]
    free = request_body([1, 2], WARM, stops=(END,), version_fields=WHOLE.request_fields(4), seeded=False)
    seedless = {name: value for name, value in parameters.items() if name != "seed"}
    assert free == body | {"sampling_params": seedless}


def test_an_episode_stays_with_its_server_and_only_a_lost_servers_episodes_move() -> None:
    servers = ["http://a:1", "http://b:1", "http://c:1"]
    keys = [f"ep_{number}" for number in range(300)]
    first = {key: preferred(key, servers)[0] for key in keys}
    assert {preferred(key, list(reversed(servers)))[0] == first[key] for key in keys} == {True}
    assert min(sum(where == server for where in first.values()) for server in servers) > 60
    for key in keys:
        left = preferred(key, servers[1:])[0]
        assert left == first[key] or first[key] == servers[0]
    assert routing_key() == ""
    with routed_by("ep_1"):
        assert routing_key() == "ep_1"
    assert routing_key() == ""


class Path3:
    """A guide to `5, then 6 or 7, then the end`."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def allowed(self) -> Allowed:
        found = np.zeros(10, dtype=np.bool_)
        found[([5], [6, 7], [END])[len(self.taken)]] = True
        return found

    def take(self, token: int) -> None:
        self.taken.append(token)


async def test_a_guided_answer_asks_only_where_there_is_a_choice_and_records_every_set() -> None:
    asked = []

    async def ask(prompt_ids: list[int], sampling: Sampling, **limits: Any) -> Generation:
        asked.append((prompt_ids, limits["allowed"], limits["max_tokens"]))
        return Generation(token_ids=[7], logprobs=[-0.25], versions=[4], finish="length")

    found = await sample_guided(ask, [1, 2], WARM, Path3(), stops=(END,), version=lambda: 3)
    assert asked == [([1, 2, 5], [6, 7], 1)]
    assert found.token_ids == [5, 7, END]
    assert found.logprobs == [0.0, -0.25, 0.0]
    assert found.versions == [3, 4, 4]
    assert found.finish == "stop"
    sets = unpack_allowed(found.allowed)
    assert [np.flatnonzero(row).tolist() for row in sets] == [[5], [6, 7], [END]]


def write_base(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"dtype": "float32"}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"first")
    return folder


def lay_out(folders: VersionFolders, version: int, digest: str, weights: Path) -> Path:
    with folders.reserve_version(version, digest, weights) as folder:
        return folder


def test_a_folder_stays_while_a_server_reads_it_however_many_newer_ones_come(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"weights")
    folders = VersionFolders(tmp_path / "versions", write_base(tmp_path / "base"), WholeModelLayout())
    with (
        folders.reserve_version(1, f"{1:064x}", tmp_path / "blob") as slow,
        folders.reserve_version(1, f"{1:064x}", slow),
    ):
        made = [lay_out(folders, version, f"{version:064x}", tmp_path / "blob") for version in (2, 3, 4)]
        assert sorted((tmp_path / "versions").iterdir()) == [slow, *made[1:]]
    newest = lay_out(folders, 5, f"{5:064x}", tmp_path / "blob")
    assert sorted((tmp_path / "versions").iterdir()) == [made[2], newest]


class SlowCopy(WholeModelLayout):
    """A disk that takes its time over the second version."""

    def __init__(self) -> None:
        self.begun = Event()
        self.may_end = Event()

    def fill(self, folder: Path, weights: Path, *, base: Path) -> None:
        if "00000002" in folder.name:
            self.begun.set()
            assert self.may_end.wait(10)
        super().fill(folder, weights, base=base)


def test_a_folder_is_given_back_without_waiting_for_a_version_that_is_laid_out(tmp_path: Path) -> None:
    """The event loop gives it back: it would stand still for as long as the weights are copied."""
    (tmp_path / "blob").write_bytes(b"weights")
    layout = SlowCopy()
    folders = VersionFolders(tmp_path / "versions", write_base(tmp_path / "base"), layout)
    first = folders.reserve_version(1, f"{1:064x}", tmp_path / "blob")
    first.__enter__()
    with ThreadPoolExecutor(2) as threads:
        second = threads.submit(lay_out, folders, 2, f"{2:064x}", tmp_path / "blob")
        assert layout.begun.wait(10)
        try:
            threads.submit(first.__exit__, None, None, None).result(timeout=2)
        finally:
            layout.may_end.set()
        assert second.result(timeout=10).is_dir()


def test_a_versions_folder_is_whole_keeps_its_weights_and_makes_older_ones_go(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    folders = VersionFolders(tmp_path / "versions", base, WholeModelLayout())
    assert folders.base() == base
    made = []
    for version in (1, 2, 10):
        blob = tmp_path / f"blob-{version}"
        blob.write_bytes(b"weights %d" % version)
        made.append(lay_out(folders, version, f"{version:064x}", blob))
        blob.unlink()
    assert (made[2] / "model.safetensors").read_bytes() == b"weights 10"
    assert (made[2] / "config.json").read_text() == (base / "config.json").read_text()
    assert sorted((tmp_path / "versions").iterdir()) == made[1:]
    assert lay_out(folders, 10, f"{10:064x}", tmp_path / "blob-10") == made[2], (
        "what is there is not made again"
    )
    with pytest.raises(ModelFileError, match="version 11"):
        lay_out(folders, 11, f"{11:064x}", tmp_path / "no such blob")
    assert sorted((tmp_path / "versions").iterdir()) == made[1:]


def test_a_versions_folder_is_durable_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, rename = os.fsync, Disk.rename

    def synced(descriptor: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    def renamed(disk: Disk, temporary: Path, place: Path) -> None:
        done.append("renamed")
        rename(disk, temporary, place)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Disk, "rename", renamed)
    (tmp_path / "blob").write_bytes(b"weights")
    folders = VersionFolders(tmp_path / "versions", write_base(tmp_path / "base"), WholeModelLayout())
    made = lay_out(folders, 1, f"{1:064x}", tmp_path / "blob")
    before, after = done[: done.index("renamed")], done[done.index("renamed") + 1 :]
    assert sorted(before) == sorted(
        [f".{made.name}.partial", "config.json", "model.safetensors", "tokenizer.json"]
    )
    assert after == ["versions"]


def test_servers_that_want_a_version_at_once_get_the_same_folder(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    for number in range(50):  # enough that laying out takes longer than the threads are apart
        (base / f"extra-{number}.json").write_bytes(bytes(20_000))
    folders = VersionFolders(tmp_path / "versions", base, WholeModelLayout())
    blob = tmp_path / "blob"
    blob.write_bytes(b"weights")
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: lay_out(folders, 1, f"{1:064x}", blob), range(8)))
    assert made == [tmp_path / "versions" / "00000001-000000000000"] * 8
    assert list((tmp_path / "versions").iterdir()) == made[:1]


def test_only_folders_of_versions_are_ever_removed(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    own = tmp_path / "versions" / "000-of-the-user"
    own.mkdir(parents=True)
    (own / "kept").write_text("kept")
    blob = tmp_path / "blob"
    blob.write_bytes(b"weights")
    folders = VersionFolders(tmp_path / "versions", base, WholeModelLayout())
    for version in range(1, 5):
        lay_out(folders, version, f"{version:064x}", blob)
    assert (own / "kept").read_text() == "kept"
    assert len(list((tmp_path / "versions").iterdir())) == 3


def test_what_a_killed_process_laid_out_in_part_goes(tmp_path: Path) -> None:
    left = tmp_path / "versions" / f".{1:08d}-{'a' * 12}.partial"
    left.mkdir(parents=True)
    (tmp_path / "blob").write_bytes(b"weights")
    folders = VersionFolders(tmp_path / "versions", write_base(tmp_path / "base"), WholeModelLayout())
    made = lay_out(folders, 2, f"{2:064x}", tmp_path / "blob")
    assert list((tmp_path / "versions").iterdir()) == [made]


def test_a_homes_versions_of_other_runs_go_with_the_next_run_and_nothing_else(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    (tmp_path / "blob").write_bytes(b"weights")
    for run in ("run-1.a", "run-2.b", "run-3.c"):
        made = lay_out(folders_for(Settings(), base, tmp_path, run=run), 1, f"{1:064x}", tmp_path / "blob")
        if run == "run-1.a":
            (made.parent / "notes").write_text("the user's")
    left = sorted(
        one.relative_to(tmp_path / "policy-server" / "versions") for one in tmp_path.rglob("*/*/*/*")
    )
    own = Path("run-3.c") / made.name
    assert left == sorted(
        [
            Path("run-1.a/notes"),
            own,
            *(own / name for name in ("config.json", "model.safetensors", "tokenizer.json")),
        ]
    )


def test_runs_that_share_a_folder_keep_apart(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    blob = tmp_path / "blob"
    blob.write_bytes(b"weights")
    settings = Settings.model_validate({"vllm": {"weights_folder": str(tmp_path / "shared")}})
    behind = lay_out(folders_for(settings, base, tmp_path, run="run-1"), 1, f"{1:064x}", blob)
    ahead = folders_for(settings, base, tmp_path, run="run-2")
    for version in (7, 8, 9):
        lay_out(ahead, version, f"{version:064x}", blob)
    assert behind.is_dir()


def test_the_server_is_started_on_loopback_with_what_recording_needs(tmp_path: Path) -> None:
    settings = Settings.model_validate({"vllm": {"arguments": ["--enforce-eager"]}})
    base = write_base(tmp_path / "base")
    command = server_command(Path("/v/bin/python"), base, port=81, settings=settings)
    pairs = dict(itertools.pairwise(command))
    assert pairs["--host"] == "127.0.0.1"
    assert pairs["--logprobs-mode"] == "processed_logprobs"
    assert pairs["--dtype"] == "float32"
    assert command[-1] == "--enforce-eager"
    environment = server_environment(settings, {"PYTHONPATH": "/x", "HOME": "/h"})
    assert environment["VLLM_SERVER_DEV_MODE"] == "1"
    assert environment["HOME"] == "/h"
    assert "PYTHONPATH" not in environment


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("actors.temperature=0.005", "samples at 0.01 instead"),
        ("vllm.arguments=--host=0.0.0.0", "Hindcast gives itself"),
        ("vllm.arguments=--max_num_seqs=4", "Hindcast gives itself"),
        ("vllm.arguments=--worker-extension-cls=mine.Worker", "Hindcast gives itself"),
        ("vllm.servers=10.0.0.5:8000", "write an address as"),
        ("vllm.servers=http://me:secret@127.0.0.1:8000", "no password"),
        ("vllm.servers=http://127.0.0.1:8000/v1", "host and port alone"),
        ("vllm.servers=http://10.0.0.5:8000", "vllm.weights_folder is empty"),
    ],
)
def test_what_cannot_be_served_truly_is_refused_at_configuration_time(override: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        resolve(environment={}, overrides=["policy.engine=vllm", override])
    resolve(environment={}, overrides=[override])


def test_servers_elsewhere_with_a_shared_folder_and_servers_here_are_taken() -> None:
    for overrides in (
        ["vllm.servers=http://10.0.0.5:8000,http://10.0.0.6:8000", "vllm.weights_folder=/shared/weights"],
        ["vllm.servers=http://127.0.0.1:8000"],
        ["vllm.servers=http://10.0.0.5:8000", "vllm.transfer=stream"],
        ["actors.temperature=0"],
    ):
        resolve(environment={}, overrides=["policy.engine=vllm", *overrides])


def test_a_model_that_the_build_for_cpus_computes_wrongly_is_refused_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.touch()
    monkeypatch.setattr(hindcast.actors.policy_servers.command, "OWN_PYTHON", python)
    base = write_base(tmp_path / "base")
    served = {"policy": {"engine": "vllm", "base": str(base)}}
    (base / "config.json").write_text(json.dumps({"model_type": "llama", "tie_word_embeddings": True}))
    require_policy_servers(Settings.model_validate(served))
    (base / "config.json").write_text(json.dumps({"model_type": "lfm2"}))
    with pytest.raises(SettingsError, match=r"'lfm2'.*computes otherwise than transformers"):
        require_policy_servers(Settings.model_validate(served))
    require_policy_servers(Settings.model_validate(served | {"vllm": {"python": str(python)}}))
    find_engine(Settings().policy.engine).require(Settings())
    monkeypatch.setattr(hindcast.actors.policy_servers.command, "OWN_PYTHON", tmp_path / "nowhere")
    with pytest.raises(SettingsError, match="make vllm"):
        require_policy_servers(Settings.model_validate(served))
