"""Inputs for the whole command line, each a valid one with few changes: settings, overrides, homes, task files, model
folders, archives and plain arguments."""

import json
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import typer
from hypothesis import strategies as st

from hindcast.app.cli import COMMANDS, app
from hindcast.app.settings.configuration import fields, resolve
from hindcast.core.models.folders import base_policy_folder
from hindcast.core.text.toml import as_toml
from hindcast.learner.recipes import recipe_names
from stories.hostile_values import BEYOND, SCALARS, TEXTS, VALUES, changed, damaged, toml_of

Draw = Callable[..., Any]
ARCHIVE = Path(__file__).parents[1] / "golden" / "runs" / "grpo-1"
RUN = "fuzzed"
PLAYS = {
    *("join", "watch", "page", "doctor", "record", "login", "bench", "eval", "train", "replay", "alerts"),
    *("task select", "task solve", "demonstrations import", "start", "import", "log tail", "log grep"),
}
"""Commands that browse, serve, train, wait for a network or follow a log: only what they refuse could be tried."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A command line and what it finds."""

    kind: str
    arguments: tuple[str, ...]
    files: dict[str, bytes] = {}
    """By path in the folder that it is run in."""
    links: dict[str, str] = {}
    """Symbolic links there, and what they lead to."""
    environment: dict[str, str] = {}
    starts: bool = False
    """Whether it makes a run, if it is accepted; the system itself is not started."""

    def lay_out(self, folder: Path) -> None:
        """Write the files."""
        for name, target in self.links.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(target)
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


@cache
def _recipe(name: str) -> dict[str, Any]:
    found: dict[str, Any] = resolve(recipe=name, environment={}, folder=Path("/")).settings.model_dump(
        mode="json"
    )
    return found


START = ("start", RUN, "--actors", "0")


@st.composite
def settings_files(draw: Draw) -> Case:
    """Some sections of a recipe's settings, changed, in a file."""
    whole = _recipe(draw(st.sampled_from(recipe_names())))
    sections = draw(st.lists(st.sampled_from(sorted(whole)), min_size=1, max_size=4, unique=True))
    content = {
        section: {key: whole[section][key] for key in draw(_some(sorted(whole[section])))}
        for section in sections
    }
    content = draw(changed(content, most=3))
    text = draw(st.sampled_from(["", "", "", 'recipe = "webrl"\n', 'recipe = "grpo"\n', "recipe = 3\n"]))
    text += toml_of(content) if isinstance(content, dict) else as_toml(content)
    command = draw(
        st.sampled_from(
            [
                ("config", "check", "f.toml"),
                ("config", "show", "--config", "f.toml"),
                (*START, "--config", "f.toml"),
            ]
        )
    )
    return Case(
        kind="settings",
        arguments=command,
        files={"f.toml": draw(damaged(text))},
        starts=command[0] == "start",
    )


def _some(names: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), min_size=1, max_size=5, unique=True)


@st.composite
def _override(draw: Draw) -> str:
    key = draw(st.sampled_from(sorted(fields())))
    key = draw(
        st.sampled_from([key] * 8 + [key[:-1], key.upper(), key.split(".")[0], "", f" {key} ", f"{key}.x"])
    )
    value = draw(
        st.one_of(VALUES.map(as_toml), TEXTS, BEYOND, st.sampled_from(["", "[", "1\nx = 2", "1979-05-27"]))
    )
    return key + draw(st.sampled_from(["="] * 9 + ["", "==", ":"])) + value


@st.composite
def overrides(draw: Draw) -> Case:
    """Values by `--set`."""
    given = draw(st.lists(_override(), min_size=1, max_size=3))
    start = draw(st.booleans())
    command = START if start else ("config", "show", "--sources")
    return Case(kind="--set", arguments=(*command, *(f"--set={one}" for one in given)), starts=start)


@st.composite
def variables(draw: Draw) -> Case:
    """Values by environment variables, and homes in impossible places."""
    key = draw(st.sampled_from(sorted(fields()))).upper().replace(".", "__")
    value = draw(st.one_of(VALUES.map(as_toml), TEXTS)).replace("\0", "")
    long = "/".join(["folder"] * 700)
    places = [
        "f",
        "f/x",
        "loop",
        "nowhere",
        "/proc/x",
        "/dev/null",
        "",
        "x" * 300,
        long,
        "\udcff",
        "é ü",
        "h\n",
    ]
    home = draw(st.sampled_from(["home"] * len(places) + places))
    command = draw(
        st.sampled_from([("config", "show"), START, ("run", "list"), ("episode", "list"), ("log", "tail")])
    )
    name = draw(
        st.sampled_from(
            [f"HINDCAST__{key}"] * 6 + [f"HINDCAST__{key[:-1]}", "HINDCAST__", "HINDCAST__RECIPE"]
        )
    )
    return Case(
        kind="environment",
        arguments=command,
        environment={name: value, "HINDCAST_HOME": home},
        files={"f": b""},
        links={"loop": "loop", "nowhere": "missing/there"},
        starts=command == START,
    )


TASK = {
    "name": "newest",
    "family": "notes",
    "instruction": "What is the newest note?",
    "start": "http://127.0.0.1:8080/notes?page=2",
    "origins": ["http://127.0.0.1:8080"],
    "checks": [
        {"of": "answer", "exact": "milk"},
        {"of": "text", "selector": "h1", "contains": "Notes"},
        {"of": "answer", "number": 3.5, "tolerance": 0.1},
    ],
    "need": "any",
    "resets": "per_episode",
    "reset": "none",
    "parallel": True,
    "max_steps": 10,
    "viewport": [800, 600],
}


@st.composite
def task_files(draw: Draw) -> Case:
    """Task files, TOML and JSONL."""
    tasks = [TASK, {**TASK, "name": "other", "checks": [], "judge": "orm"}][: draw(st.integers(1, 2))]
    content = draw(changed({"defaults": {"max_steps": 5}, "tasks": tasks}, st.one_of(VALUES, BEYOND), most=3))
    lines = content.get("tasks") if isinstance(content, dict) else content
    if draw(st.booleans()):
        written = [
            json.dumps(one, ensure_ascii=draw(st.booleans()))
            for one in (lines if isinstance(lines, list) else [lines])
        ]
        name, text = "t.jsonl", "\n".join(written)
    else:
        name, text = "t.toml", toml_of(content) if isinstance(content, dict) else as_toml(content)
    command = draw(st.sampled_from([(*START, "--tasks", name), ("config", "show", f"--set=web.file={name}")]))
    return Case(
        kind="tasks", arguments=command, files={name: draw(damaged(text))}, starts=command[0] == "start"
    )


TEMPLATES = [
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{{ messages[0]['content'] * 1000000000 }}",
    "{{ raise_exception('no') }}",
    "{{ ''.__class__.__mro__ }}",
    "{% for",
    "",
    "{{ messages }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
]


@st.composite
def model_folders(draw: Draw) -> Case:
    """The shipped policy's folder with one of its files changed."""
    base = base_policy_folder()
    names = sorted(path.name for path in base.iterdir() if path.is_file())
    files: dict[str, bytes] = {}
    links = {f"m/{name}": str(base / name) for name in names}
    target = draw(
        st.sampled_from(
            [*[name for name in names if name.endswith(".json")], "config.json", "template", "weights", "odd"]
        )
    )
    if target == "template":
        name = "tokenizer_config.json"
        content = json.loads((base / name).read_text())
        files[name] = json.dumps(
            {**content, "chat_template": draw(st.one_of(st.sampled_from(TEMPLATES), TEXTS))}
        ).encode()
    elif target == "weights":
        files["model.safetensors"] = draw(_weights((base / "model.safetensors").read_bytes()))
    elif target == "odd":
        name = draw(st.sampled_from(names))
        links[f"m/{name}"] = draw(st.sampled_from(["missing", ".", "/dev/zero", "/dev/null", name]))
    else:
        content = json.loads((base / target).read_text())
        values = st.one_of(VALUES, st.sampled_from([-1, 0, 1.5, 10**12, "1", None, "auto"]))
        text = json.dumps(draw(changed(content, values, most=2)))
        files[target] = draw(damaged(text))
    if draw(st.integers(0, 5)) == 0:
        files["model.safetensors.index.json"] = json.dumps(
            draw(changed({"metadata": {}, "weight_map": {"a": "model.safetensors", "b": "../x"}}))
        ).encode()
    for name in files:
        links.pop(f"m/{name}", None)
    return Case(
        kind="model",
        arguments=("model", "check", "m"),
        files={f"m/{name}": content for name, content in files.items()},
        links=links,
    )


@st.composite
def _weights(draw: Draw, content: bytes) -> bytes:
    (length,) = struct.unpack("<Q", content[:8])
    header, tensors = json.loads(content[8 : 8 + length]), content[8 + length :]
    how = draw(st.sampled_from(["length", "header", "nan", "cut"]))
    if how == "length":
        return struct.pack("<Q", draw(st.sampled_from([0, 2**40, 2**64 - 1, length + 1]))) + content[8:]
    if how == "cut":
        return content[: draw(st.integers(0, 4096))]
    if how == "nan":
        return content[: 8 + length] + b"\xff\xff\xff\x7f" * (len(tensors) // 4)
    written = json.dumps(draw(changed(header))).encode()
    return struct.pack("<Q", len(written)) + written + tensors


@st.composite
def archives(draw: Draw) -> Case:
    """A recorded run's archive with its manifest or a segment changed."""
    files = {
        f"a/{path.relative_to(ARCHIVE)}": path.read_bytes() for path in ARCHIVE.rglob("*") if path.is_file()
    }
    manifest = json.loads(files["a/manifest.json"])
    if draw(st.booleans()):
        files["a/manifest.json"] = draw(damaged(json.dumps(draw(changed(manifest)))))
    else:
        name = draw(st.sampled_from([name for name in files if "/blobs/" not in name]))
        place = draw(st.integers(0, len(files[name]) - 1))
        tail = files[name][place + 1 :] if draw(st.booleans()) else b""
        files[name] = files[name][:place] + draw(st.binary(max_size=8)) + tail
    command = draw(
        st.sampled_from(
            [
                *[("archive", "check", "a"), ("archive", "show", "a"), ("import", "a"), ("audit", "a")],
                *[
                    ("run", "show", "a"),
                    ("episode", "list", "a"),
                    ("log", "stats", "a"),
                    ("log", "show", "5", "a"),
                ],
                *[("policy", "list", "a"), ("lineage", "update", "1", "a"), ("export", "a", "--to", "out")],
            ]
        )
    )
    return Case(kind="archive", arguments=command, files=files)


@cache
def _commands() -> dict[str, Any]:
    """Every command without commands of its own, by its words."""
    found: dict[str, Any] = {}

    def walk(words: str, command: Any) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            walk(f"{words} {name}".strip(), inner)
        if not hasattr(command, "commands"):
            found[words] = command

    whole: Any = typer.main.get_command(app)
    for name in COMMANDS:
        if name not in PLAYS:
            walk(name, whole.commands[name])
    return {words: command for words, command in found.items() if not {words, words.split()[0]} & PLAYS}


@st.composite
def command_lines(draw: Draw) -> Case:
    """A command with arguments and options of any kind, on a recorded run's archive."""
    words = draw(st.sampled_from(sorted(_commands())))
    archive = str(ARCHIVE)
    places = st.sampled_from(
        [archive, archive, "f", "missing", "1", "5", "last", "update=1", "update=last", "end", "0", "-1"]
    )
    values = st.one_of(places, SCALARS.map(str), TEXTS, BEYOND, st.just("ep_0"))
    given: list[str] = []
    for parameter in _commands()[words].params:
        is_run = parameter.name == "run"
        if parameter.param_type_name == "argument":
            if draw(st.integers(0, 9)) > 0:
                given.append(archive if is_run and draw(st.integers(0, 3)) else draw(values))
        elif parameter.name not in ("help", "follow", "run_option") and draw(st.integers(0, 3)) == 0:
            option = draw(st.sampled_from(list(parameter.opts)))
            given += [option] if parameter.is_flag else [option, draw(values)]
    return Case(kind="command", arguments=(*words.split(), *given), files={"f": b"\x00"})


@st.composite
def goals(draw: Draw) -> Case:
    """Goals, roles and counts of a start."""
    text = draw(st.sampled_from(["updates=", "episodes=", "minutes=", "update=", "", "minutes"])) + draw(
        SCALARS.map(str)
    )
    name = draw(st.one_of(st.just(RUN), TEXTS, st.sampled_from(["a" * 49, "..", "A", "-x"])))
    more = draw(
        st.sampled_from(
            [(), ("--without", "lerner"), ("--actors", "65"), ("--recipe", "grpo"), ("--config", "missing")]
        )
    )
    text = draw(st.sampled_from([text, text, "updates=5", "minutes=0.5"]))
    return Case(kind="start", arguments=("start", "--until", text, *more, "--", name), starts=name == RUN)


CASES = st.one_of(
    settings_files(),
    settings_files(),
    overrides(),
    variables(),
    task_files(),
    archives(),
    command_lines(),
    command_lines(),
    goals(),
)
"""Inputs that are read without a model."""
