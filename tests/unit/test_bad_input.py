"""What a user may get wrong is refused in words, before anything is written or started, and never stops another run."""

import json
import math
import shutil
import struct
import tomllib
from pathlib import Path

import pytest

from hindcast.app.runs.open_log import parse_size
from hindcast.app.runs.runs import SETTINGS_FILE, create_run, list_runs, open_run, write_settings
from hindcast.app.settings.configuration import Layer, Resolved, merge, resolve
from hindcast.app.system.launch import parse_until
from hindcast.core.errors import SettingsError
from hindcast.core.models.folders import base_policy_folder
from hindcast.core.settings.schema import Settings
from hindcast.core.text.plain_values import DEEPEST, find_unkeepable, parse_json, parse_toml, read_count
from hindcast.core.text.toml import as_toml
from processes.command_running import Ran, run_command
from stories.hostile_values import DEEP


def run(folder: Path, *arguments: str, home: str = "home") -> Ran:
    return run_command(arguments, folder=folder, environment={"HINDCAST_HOME": home})


def refused(folder: Path, *arguments: str, home: str = "home") -> str:
    ran = run(folder, *arguments, home=home)
    assert not ran.fault, ran.fault
    assert ran.code in (1, 2)
    return ran.err


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e400"])
@pytest.mark.parametrize(
    "key", ["learner.learning_rate", "endpoint.price_prompt", "learner.options.phase_window"]
)
def test_no_setting_takes_a_number_that_is_not_finite(tmp_path: Path, key: str, value: str) -> None:
    written = f"[{value}, 0.9]" if key == "learner.options.phase_window" else value
    err = refused(tmp_path, "start", "--actors", "0", "--set", f"{key}={written}")
    assert f"{key} holds {'nan' if value == 'nan' else '-inf' if value[0] == '-' else 'inf'}" in err
    assert not (tmp_path / "home" / "runs").exists()


def test_the_schema_itself_takes_no_number_that_is_not_finite() -> None:
    for value in (math.inf, math.nan):
        with pytest.raises(ValueError, match="finite"):
            Settings.model_validate({"learner": {"weight_decay": value}})


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_no_setting_takes_an_integer_beyond_64_bits(tmp_path: Path, value: int) -> None:
    assert "beyond 64 bits" in refused(tmp_path, "config", "show", "--set", f"run.seed={value}")


@pytest.mark.parametrize(
    "arguments",
    [
        ("episode", "list", "-n", "9" * 25),
        ("episode", "list", "--policy", "9" * 25),
        ("rejudge", "--seed", "9" * 25),
        ("log", "show", "9" * 25),
        ("log", "show", "٣"),
        ("lineage", "update", "9" * 25),
        ("task", "list", "--phase", str(2**63)),
        ("size", "--steps", "inf"),
        ("eval", "--temperature", "inf"),
        ("run", "show", "--as-of", "9" * 25),
        ("fork", "--at", "9" * 25),
        ("audit", "--expect", f"{'9' * 25}:{'0' * 64}"),
        ("log", "resize", "9" * 400),
        ("log", "resize", "1e3GiB"),
    ],
)
def test_no_number_on_the_command_line_goes_beyond_what_is_kept(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    create_run(resolve(environment={}, folder=tmp_path), home=tmp_path / "home")
    err = refused(tmp_path, *arguments)
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) <= 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("minutes=nan", "above 0"),
        ("minutes=inf", "up to 1000000000"),
        ("minutes=-1", "above 0"),
        ("updates=1.5", "whole number"),
        ("updates=0", "from 1"),
        ("update=5", "the nearest is updates=N"),
        ("minutes", "above 0"),
    ],
)
def test_a_goal_that_no_run_reaches_is_refused(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        parse_until([text])


def test_goals_that_a_run_reaches_are_taken() -> None:
    assert parse_until(["updates=5", "minutes=0.5"]) == {"updates": 5.0, "minutes": 0.5}
    with pytest.raises(SettingsError, match="given twice"):
        parse_until(["updates=5", "updates=6"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("curriculum.environments=stroe", "the nearest is store; there are: agent, browsergym"),
        ("curriculum.environments=[]", "there are no tasks"),
        ("judge.judges=ruels", "the nearest is rules"),
        ("judge.judges=[]", "no episode would get a verdict"),
        ("learner.orm_truth=ruels", "the nearest is rules"),
        ("curriculum.families=store/find_prize", "the nearest is find_price"),
        ("curriculum.families=miniwob/click-buton", "click-button"),
        ("curriculum.tasks=store/find_prize:1", "the nearest is find_price"),
        ("curriculum.tasks=store/find_price:99999999999999999999", "a seed up to"),
        ("actors.renderer=lines/9", "the nearest is lines/"),
        ("learner.device=cdua", "the nearest is 'cuda'"),
        ("log.max_bytes=1", "1048576"),
        ("log.max_bytes=9000000000000000000", "must be 1048576"),
        ("actors.contexts=100000", "integer ≥ 1, ≤ 1024"),
        ("learner.lora_rank=100000000", "≤ 65536"),
        ("curriculum.task_pool=99999999999", "≤ 1000000"),
        ("judge.timeout_s=1e300", "≤ 315360000"),
        ("storage.archive=/dev/null/x", "storage.archive = '/dev/null/x' cannot be a folder"),
        ("storage.archive=/proc/x", "nothing can be written in /proc"),
        ("storage.archive=~nobody_of_this_name/x", "cannot be a folder"),
        ("storage.blobs=/dev/null/x", "storage.blobs"),
        ("storage.blobs=s3://[x", "is no bucket: write s3://bucket/prefix"),
        ("storage.archive=s3://bucket/x", "is an address, and an archive is a folder"),
        ("telemetry.otlp_endpoint=http://[::1", "must be the address of a collector"),
        ("telemetry.otlp_endpoint=http://host:99999", "must be the address of a collector"),
    ],
)
def test_a_value_that_nothing_has_is_refused_with_what_there_is(
    tmp_path: Path, given: str, words: str
) -> None:
    err = refused(tmp_path, "start", "--actors", "0", "--set", given)
    assert words in err
    assert list_runs(tmp_path / "home") == []


def test_every_mistake_of_a_file_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text(
        "[learner]\nlearning_rat = 1\nweight_decay = inf\n[learner.options]\nclip_low = 5\n[curriculum]\ngroup_size = 1\n"
        'environments = ["stroe"]\n[nosuch]\na = 1\n[judge]\njudges = ["ruels"]\n'
    )
    lines = refused(tmp_path, "config", "check", "f.toml").splitlines()
    for words in (
        "learning_rat'; the nearest is",
        "clip_low = 5",
        "weight_decay holds inf",
        "group_size = 1",
        "stroe",
        "nosuch",
        "ruels",
    ):
        assert sum(words in line for line in lines) == 1, words
    assert len(lines) == 7
    assert "number > 0, < 1" in next(line for line in lines if "clip_low" in line)


def test_a_wrong_value_of_any_kind_can_be_shown(tmp_path: Path) -> None:
    assert "1979-05-27" in refused(tmp_path, "config", "show", "--set", "learner.learning_rate=1979-05-27")
    assert [as_toml(value) for value in (math.inf, -math.inf, math.nan)] == ["inf", "-inf", "nan"]
    assert math.isinf(tomllib.loads(f"a = {as_toml(math.inf)}")["a"])
    assert len(refused(tmp_path, "config", "show", "--set", f"learner.learning_rate={'x' * 9000}")) < 600


def test_a_line_end_in_an_override_adds_no_setting(tmp_path: Path) -> None:
    assert "learner.options.clip_low" in refused(
        tmp_path, "config", "show", "--set", "learner.options.clip_low=0.1\nb = 2"
    )


@pytest.mark.parametrize("text", ["a = " + "[" * DEEP, "a = " + "9" * DEEP, "[" + "a." * DEEP + "b]\n"])
def test_toml_that_exhausts_a_reader_is_a_worded_error(tmp_path: Path, text: str) -> None:
    for name, command in (("f.toml", ("config", "check")), ("t.toml", ("start", "--tasks"))):
        (tmp_path / name).write_text(text)
        err = refused(tmp_path, *command, name)
        assert name in err
    if "=" in text:
        with pytest.raises(ValueError, match=r"nested too deeply|thousands of digits"):
            parse_toml(text)


@pytest.mark.parametrize("text", ["[" * 10**5, '{"a": NaN}', "9" * DEEP, '{"a":' * 10**5])
def test_json_that_exhausts_a_reader_is_a_worded_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"nested too deeply|no number of JSON|thousands of digits"):
        parse_json(text)
    (tmp_path / "t.jsonl").write_text(text)
    assert "t.jsonl, line 1" in refused(tmp_path, "start", "--tasks", "t.jsonl")


@pytest.mark.parametrize(
    ("key", "value"),
    [("instruction", '"a\\ud800"'), ("instruction", '"a\\u0000"'), ("max_steps", "1" + "0" * 30)],
)
def test_a_task_that_cannot_be_kept_is_refused(tmp_path: Path, key: str, value: str) -> None:
    (tmp_path / "t.jsonl").write_text(f'{{"name": "a", "{key}": {value}}}\n')
    assert "t.jsonl, task number 1" in refused(tmp_path, "start", "--tasks", "t.jsonl")


def test_why_a_value_cannot_be_kept() -> None:
    nested: list[object] = []
    for _ in range(DEEPEST + 1):
        nested = [nested]
    assert find_unkeepable({"a": [1, "b", 0.5, True, None, 2**63 - 1]}) == ""
    assert "levels deep" in find_unkeepable(nested)
    assert "finite" in find_unkeepable({"a": [math.inf]})
    assert "UTF-8" in find_unkeepable("\udcff")
    assert "null character" in find_unkeepable({"a\0": 1})
    assert [read_count(text) for text in ("7", "٣", "-1", "9" * 19, "")] == [7, None, None, None, None]
    assert parse_size("8796093022209") == 8796093022209


def broken(home: Path, name: str) -> Path:
    handle = create_run(resolve(environment={}, folder=home.parent), home=home, name=name)
    place = handle.folder / SETTINGS_FILE
    place.write_text("[learner]\nlearning_rate = Infinity\n")
    return place


def test_a_broken_run_stops_no_other_run_and_says_what_to_do(tmp_path: Path) -> None:
    home = tmp_path / "home"
    create_run(resolve(environment={}, folder=tmp_path), home=home, name="sound")
    broken(home, "broken")
    assert open_run("sound", home=home).name == "sound"
    listed = run(tmp_path, "run", "list", "--json")
    assert listed.code == 0
    assert "run broken cannot be opened" in listed.out
    assert "is not TOML" in listed.out
    assert "move that folder away" in refused(tmp_path, "config", "show", "broken")
    assert run(tmp_path, "config", "show", "sound").code == 0
    assert create_run(resolve(environment={}, folder=tmp_path), home=home).name == "run-1"


def test_settings_that_do_not_read_back_are_never_renamed_into_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = resolve(environment={}, folder=tmp_path)
    handle = create_run(resolved, home=tmp_path / "home", name="kept")
    before = (handle.folder / SETTINGS_FILE).read_bytes()
    for text in ("[learner]\nlearning_rate = Infinity\n", "[run]\nseed = 7\n"):
        monkeypatch.setattr("hindcast.app.runs.runs.to_toml", lambda _, text=text: text)
        with pytest.raises(SettingsError, match="cannot be written"):
            write_settings(handle.folder, resolved)
    assert (handle.folder / SETTINGS_FILE).read_bytes() == before
    assert sorted(path.name for path in handle.folder.iterdir()) == [SETTINGS_FILE]


def test_a_damaged_note_of_the_current_run_is_a_worded_error(tmp_path: Path) -> None:
    create_run(resolve(environment={}, folder=tmp_path), home=tmp_path / "home")
    for text in ("[1]", '{"run": 3}', "[" * 10**5):
        (tmp_path / "home" / "current.json").write_text(text)
        ran = run(tmp_path, "config", "show", "run-1")
        assert not ran.fault


@pytest.mark.parametrize(
    "home", ["file", "file/x", "loop", "dangling", "/proc/x", "x" * 300, "/".join(["long"] * 1500), "\udcff"]
)
def test_a_home_in_an_impossible_place_is_one_worded_line(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("missing/there")
    err = refused(tmp_path, "start", "--actors", "0", home=home)
    assert len(err.strip().splitlines()) == 1


def hostile_model(folder: Path, **files: str | bytes | None) -> Path:
    """The shipped policy's folder with files replaced; None: left out."""
    model = folder / "m"
    shutil.copytree(base_policy_folder(), model)
    for name, content in files.items():
        path = model / name.replace("__", ".")
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    return model


def config_with(key: str, value: str) -> str:
    content = parse_json((base_policy_folder() / "config.json").read_text())
    return as_json({**content, key: "@@"}).replace('"@@"', value)


def as_json(content: object) -> str:
    return json.dumps(content)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[
            (key, value)
            for key in ("hidden_size", "num_hidden_layers", "vocab_size")
            for value in ("-1", "1000000000000", '"x"', "0")
        ],
        ("num_attention_heads", "0"),
        ("max_position_embeddings", '"many"'),
        ("hidden_size", "1" + "0" * 30),
        ("eos_token_id", '"x"'),
        ("rope_parameters", "[[1]]"),
    ],
)
def test_a_model_of_impossible_sizes_is_a_finding(tmp_path: Path, key: str, value: str) -> None:
    hostile_model(tmp_path, config__json=config_with(key, value))
    ran = run(tmp_path, "model", "check", "m")
    assert not ran.fault, ran.fault
    assert ran.code == 1
    assert "FAILED" in ran.out


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 99999999999 }}",
        "{{ raise_exception('no') }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for",
        "nothing",
    ],
)
def test_a_hostile_chat_template_is_a_finding(tmp_path: Path, template: str) -> None:
    content = parse_json((base_policy_folder() / "tokenizer_config.json").read_text())
    hostile_model(
        tmp_path,
        tokenizer_config__json=as_json({**content, "chat_template": template}),
        chat_template__jinja=None,
    )
    ran = run(tmp_path, "model", "check", "m")
    assert not ran.fault, ran.fault
    assert ran.code == 1
    assert "FAILED  template" in ran.out


def test_hostile_weights_and_files_are_findings(tmp_path: Path) -> None:
    weights = (base_policy_folder() / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", weights[:8])
    nan = weights[: 8 + length] + b"\xff\xff\xff\x7f" * ((len(weights) - 8 - length) // 4)
    for content in (struct.pack("<Q", 2**63) + weights[8:], weights[:100], b"", nan):
        shutil.rmtree(tmp_path / "m", ignore_errors=True)
        hostile_model(tmp_path, model__safetensors=content)
        ran = run(tmp_path, "model", "check", "m")
        assert not ran.fault, ran.fault
        assert ran.code == 1
    for target in ("missing", "/dev/zero", ".", "config.json"):
        shutil.rmtree(tmp_path / "m", ignore_errors=True)
        (hostile_model(tmp_path, config__json=None) / "config.json").symlink_to(target)
        assert not run(tmp_path, "model", "check", "m").fault
    for text in ("[" * 10**5, "[]", '{"model_type": ["a"]}', '{"auto_map": {"a": 1}, "model_type": {}}'):
        shutil.rmtree(tmp_path / "m", ignore_errors=True)
        hostile_model(tmp_path, config__json=text)
        ran = run(tmp_path, "model", "check", "m")
        assert not ran.fault, ran.fault
        assert "FAILED" in ran.out


def test_values_of_a_layer_are_merged_beside_its_mistakes() -> None:
    with pytest.raises(SettingsError) as refusal:
        merge([Layer(source="f", values={"run.seed": 1.5}, mistakes=("f: no",))], recipe="mgrpo")
    assert "f: no" in str(refusal.value)
    assert "run.seed = 1.5" in str(refusal.value)


def test_a_sound_run_keeps_its_settings(tmp_path: Path) -> None:
    resolved: Resolved = resolve(environment={}, folder=tmp_path)
    handle = create_run(resolved, home=tmp_path / "home")
    assert open_run(handle.name, home=handle.home).settings == resolved.settings
