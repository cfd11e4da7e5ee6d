"""The reading commands against a run in a real broker: in this process through typer's runner, and as real processes."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from hindcast.app.cli import app
from hindcast.app.runs.runs import RunHandle, create_run, open_run
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.broker import running_broker
from hindcast.core.errors import HindcastError, SettingsError
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeRequested,
    EpisodeStarted,
    StepTaken,
    WeightsPublished,
)
from hindcast.events.envelope import Envelope
from hindcast.storage.readmodel.episode_queries import list_episodes
from hindcast.storage.readmodel.query_parts import NotInReadModel
from hindcast.storage.readmodel.tables import cursor
from stories.recorded_home import make_home
from stories.synthetic_run import a_run

ROOT = Path(__file__).parents[2]
FACTS = a_run(1, groups=4)
PROCESS_S = 90
RECORD = ("--instruction", "i", "--headless", "--script", "s", "--run", "tale", "--set", "run.seed=2")


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> RunHandle:
    """A run whose read model is made; no broker is running."""
    home = tmp_path_factory.mktemp("cli") / "home"
    made = asyncio.run(make_home(home, FACTS))
    assert call(home, "rebuild", "--json").exit_code == 0
    return made


def call(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"HINDCAST_HOME": str(home)})


def lines(handle: RunHandle, *arguments: str) -> list[Any]:
    result = call(handle.home, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def document(handle: RunHandle, *arguments: str) -> Any:
    (one,) = lines(handle, *arguments)
    return one


def process(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from hindcast.app.cli import main; main()", *arguments],
        cwd=ROOT,
        env={**os.environ, "HINDCAST_HOME": str(home), "FORCE_COLOR": "", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
        check=False,
    )


def commands(
    group: TyperGroup | None = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    found = group or get_command(app)
    assert isinstance(found, TyperGroup)
    for name, command in found.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = list(commands())


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_command_takes_json_and_shows_an_example_that_parses(
    path: tuple[str, ...], command: Any
) -> None:
    options = {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    assert "--json" in options
    example = re.search(r"Example: hindcast (.+)", command.help or "")
    assert example, f"{' '.join(path)} shows no example"
    assert example[1].startswith(" ".join(path))
    assert set(re.findall(r"--[a-z-]+", example[1])) <= options


# --- the log


def test_the_tail_ends_with_the_cursor_to_go_on_from(handle: RunHandle) -> None:
    *events, end = lines(handle, "log", "tail", "--limit", "5")
    assert [event["position"] for event in events] == list(range(len(FACTS) - 4, len(FACTS) + 1))
    assert end == {"cursor": len(FACTS)}
    assert lines(handle, "log", "tail", "--after", str(end["cursor"])) == [end]


def test_paging_by_cursor_gives_every_event_once(handle: RunHandle) -> None:
    cursor, seen = 0, []
    while True:
        *events, end = lines(handle, "log", "tail", "--after", str(cursor), "--limit", "70")
        if not events:
            break
        seen += [event["type"] for event in events]
        cursor = end["cursor"]
    assert len(seen) == len(FACTS)
    assert end["cursor"] == len(FACTS)


def test_the_tail_can_be_of_types_and_of_one_episode(handle: RunHandle) -> None:
    one = next(told.entity for told in FACTS if isinstance(told.fact, StepTaken))
    *events, _ = lines(
        handle, "log", "tail", "--type", "episode.*", "--type", "step.taken", "--episode", one, "-n", "999"
    )
    assert {event["entity"] for event in events} >= {one}
    assert [e["payload"]["index"] for e in events if e["type"] == "step.taken"] == list(
        range(sum(told.entity == one and isinstance(told.fact, StepTaken) for told in FACTS))
    )
    assert {"episode.requested", "episode.started", "step.taken"} <= {event["type"] for event in events}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("task", "list", "--family", "{family}x"), "the nearest is {family}"),
        (("task", "list", "--family", "zzzz"), "there are: "),
        (("task", "list", "--environment", "stroe"), "the nearest is store"),
        (("task", "list", "--phase", "77"), "there is no phase 77"),
        (("episode", "list", "--family", "store/{family}x"), "the nearest is {family}"),
        (("episode", "list", "--task", "{task}"), "it may be "),
        (("episode", "list", "--task", "nosuch"), "run: hindcast task list"),
        (("episode", "list", "--group", "nosuch"), "there is no group 'nosuch'"),
        (("episode", "list", "--policy", "999"), "the newest is "),
        (("export", "--family", "{family}x", "--to", "nowhere"), "the nearest is {family}"),
    ],
)
def test_a_filter_that_names_nothing_of_the_run_says_what_there_is(
    handle: RunHandle, asked: tuple[str, ...], told: str
) -> None:
    task = next(told.fact.task for told in FACTS if isinstance(told.fact, EpisodeRequested))
    words = {"family": task.family, "task": task.id[:-2]}
    result = call(handle.home, *(part.format(**words) for part in asked))
    assert told.format(**words) in str(result.exception)
    assert isinstance(result.exception, NotInReadModel)
    assert not Path("nowhere").exists()


def test_what_is_there_but_not_together_is_an_empty_list(handle: RunHandle) -> None:
    task = next(told.fact.task for told in FACTS if isinstance(told.fact, EpisodeRequested))
    asked = ("--family", f"{task.environment}/{task.family}", "--before", "1")
    assert document(handle, "episode", "list", *asked) == {"episodes": [], "before": None}


def test_a_family_may_be_named_with_its_site(handle: RunHandle) -> None:
    task = next(told.fact.task for told in FACTS if isinstance(told.fact, EpisodeRequested))
    named = f"{task.environment}/{task.family}"
    for noun in ("task", "episode"):
        alone = document(handle, noun, "list", "--family", task.family)
        assert document(handle, noun, "list", "--family", named) == alone
        assert alone[f"{noun}s"]
    two = call(handle.home, "task", "list", "--family", named, "--environment", "miniwob")
    assert isinstance(two.exception, SettingsError)
    for half, lacks in ((f"/{task.family}", "site"), (f"{task.environment}/", "family")):
        told = call(handle.home, "task", "list", "--family", half).exception
        assert isinstance(told, SettingsError)
        assert f"lacks its {lacks}" in str(told)


def test_the_tail_can_be_of_tasks_with_everything_about_their_episodes(handle: RunHandle) -> None:
    requests = [told.fact for told in FACTS if isinstance(told.fact, EpisodeRequested)]
    wanted = requests[-1].task
    mine = {one.episode for one in requests if one.task.id == wanted.id}
    for name in (wanted.id, f"{wanted.environment}/{wanted.family}:{wanted.seed}"):
        *events, _ = lines(handle, "log", "tail", "--task", name, "-n", "9999")
        by_type = Counter(event["type"] for event in events)
        steps = [t for t in FACTS if isinstance(t.fact, StepTaken) and t.fact.episode in mine]
        assert by_type["step.taken"] == len(steps) > 0
        assert by_type["episode.requested"] == len(mine)
        assert {"episode.started", "episode.ended", "episode.judged"} <= by_type.keys()
    after = events[len(events) // 2]["position"]
    *rest, _ = lines(handle, "log", "tail", "--task", wanted.id, "--from", str(after), "-n", "9999")
    assert [event["position"] for event in rest] == [e["position"] for e in events if e["position"] > after]
    *every, _ = lines(handle, "log", "tail", "--task", "*/*", "--type", "episode.requested", "-n", "9999")
    assert len(every) == len(requests)


def test_the_tail_can_be_of_a_policy_version_and_begin_at_a_place(handle: RunHandle) -> None:
    *events, _ = lines(handle, "log", "tail", "--policy", "2", "-n", "9999")
    assert {event["type"] for event in events} >= {"weights.published", "episode.ended"}
    published = next(
        at
        for at, told in enumerate(FACTS, 1)
        if isinstance(told.fact, WeightsPublished) and (told.fact.model, told.fact.version) == ("policy", 2)
    )
    *after, _ = lines(handle, "log", "tail", "--from", "policy=2", "-n", "3")
    assert [event["position"] for event in after] == [published + number for number in (1, 2, 3)]
    assert published in {event["position"] for event in events}
    ends = [e["payload"]["policy_versions"] for e in events if e["type"] == "episode.ended"]
    assert all(low <= 2 <= high for low, high in ends)


def test_one_event_is_shown_in_full_with_its_arrays(handle: RunHandle) -> None:
    position, told = next((at, t) for at, t in enumerate(FACTS, 1) if isinstance(t.fact, StepTaken))
    shown, end = lines(handle, "log", "show", str(position), "--arrays")
    assert isinstance(told.fact, StepTaken)
    assert (shown["position"], end["cursor"]) == (position, position)
    assert shown["payload"]["prompt_ids"] == list(memoryview(told.fact.prompt_ids).cast("i"))
    assert shown["payload"]["logprobs"] == pytest.approx(list(memoryview(told.fact.logprobs).cast("f")))
    assert set(Envelope.__struct_fields__) - {"payload"} <= set(shown)
    by_option, _ = lines(handle, "log", "show", "--position", str(position))
    assert by_option["payload"]["prompt_ids"] == "<256 bytes>"


def test_an_episode_is_shown_event_by_event(handle: RunHandle) -> None:
    one = next(told.entity for told in FACTS if isinstance(told.fact, StepTaken))
    *events, _ = lines(handle, "log", "show", "--episode", one)
    assert events[0]["type"] == "episode.requested"
    assert len(events) >= sum(told.entity == one for told in FACTS)


def test_grep_finds_what_a_payload_says(handle: RunHandle) -> None:
    expected = [
        at
        for at, t in enumerate(FACTS, 1)
        if isinstance(t.fact, StepTaken) and t.fact.result == "parse_failure"
    ]
    *events, _ = lines(handle, "log", "grep", "PARSE_fail", "-i", "--type", "step.*")
    assert [event["position"] for event in events] == expected != []
    first, end = lines(handle, "log", "grep", "parse_fail", "--limit", "1")
    assert end["cursor"] == first["position"]


def test_stats_add_up(handle: RunHandle) -> None:
    stats, end = lines(handle, "log", "stats")
    assert stats["events"] == len(FACTS) == end["cursor"]
    assert sum(stats["by_type"].values()) == sum(stats["by_producer"].values()) == len(FACTS)
    assert sum(stats["bytes_by_type"].values()) == stats["payload_bytes"]
    assert stats["by_type"]["step.taken"] == sum(isinstance(told.fact, StepTaken) for told in FACTS)


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("log", "show", "99999"), r"no position 99999 in the log; it holds 1 to \d+", 2),
        (("log", "show"), "takes either a POSITION or --episode", 2),
        (
            ("log", "tail", "--after", "99999"),
            r"nothing can follow position 99999: .* ends at position \d+\.",
            2,
        ),
        (("log", "tail", "--type", "step.tken"), "the nearest is step.taken", 2),
        (("log", "grep", "("), "is not a regular expression", 2),
        (("episode", "show", "ep_none"), "there is no episode 'ep_none'", 1),
        (("ctl", "cancel", "ep_none"), "run tale has no episode 'ep_none' to cancel", 2),
        (("ctl", "cancel", "*"), r"run tale has no episode '\*' to cancel", 2),
        (("run", "show", "nosuch"), "there is no run 'nosuch' in .*; there are: tale", 1),
        (("run", "show", "--as-of", "99999"), "the read model knows positions 0 to", 1),
        (
            ("record", "http://x/", *RECORD),
            "run tale exists and keeps its recipe and settings",
            2,
        ),
        (("eval", "--run", "tale"), "--policy base is not a version of a run", 2),
        (("config", "check", "/nowhere.toml"), "cannot be read: No such file", 2),
        (("config", "show", "--set", "actors.contxts=1"), "the nearest is actors.contexts", 2),
    ],
)
def test_what_is_wrong_is_said_in_words(
    handle: RunHandle, arguments: tuple[str, ...], words: str, code: int
) -> None:
    result = call(handle.home, *arguments)
    assert isinstance(result.exception, HindcastError)
    assert result.exception.exit_code == code
    assert re.search(words, str(result.exception))


@pytest.mark.parametrize("command", [("episode", "list"), ("export", "--to", "/nowhere/at/all")])
@pytest.mark.parametrize("option", ["--state", "--outcome", "--origin"])
def test_a_word_that_no_episode_has_is_refused_rather_than_found_nowhere(
    handle: RunHandle, command: tuple[str, ...], option: str
) -> None:
    result = call(handle.home, *command, option, "sucess")
    assert result.exit_code == 2
    assert "'sucess' is not one of" in result.output


@pytest.mark.parametrize("started", [True, False])
def test_an_episode_that_was_requested_can_be_cancelled(
    handle: RunHandle, tmp_path: Path, *, started: bool
) -> None:
    first, fact = next((told, told.fact) for told in FACTS if isinstance(told.fact, EpisodeRequested))
    assert isinstance(fact, EpisodeRequested)
    begun = next(
        number
        for number, told in enumerate(FACTS)
        if isinstance(told.fact, EpisodeStarted) and told.fact.episode == fact.episode
    )
    facts = FACTS[: begun + 1] if started else [first]
    asyncio.run(make_home(tmp_path / "home", facts))
    asked = call(tmp_path / "home", "ctl", "cancel", fact.episode, "--json")
    assert asked.exit_code == 0, asked.output
    assert json.loads(asked.stdout)["position"] == len(facts) + 1


def test_an_episode_that_is_over_cannot_be_cancelled(handle: RunHandle) -> None:
    over = {
        type(told.fact): (told.fact.episode, position)
        for position, told in enumerate(FACTS, 1)
        if isinstance(told.fact, EpisodeEnded | EpisodeAbandoned | EpisodeCancelled)
    }
    assert EpisodeEnded in over
    for kind, (episode, position) in over.items():
        how = kind.__name__.removeprefix("Episode").lower()
        asked = call(handle.home, "ctl", "cancel", episode)
        assert isinstance(asked.exception, SettingsError)
        assert f"episode {episode} of run tale is over: it was {how} at position {position}." in str(
            asked.exception
        )


# --- the read model


def test_runs_are_listed(handle: RunHandle) -> None:
    listed = document(handle, "run", "list")
    (entry,) = listed["runs"]
    assert (entry["run"], entry["state"], entry["position"]) == ("tale", "sealed", len(FACTS))
    assert "tale" in call(handle.home, "run", "list").stdout


def test_a_run_is_shown_as_of_any_position(handle: RunHandle) -> None:
    now, before = document(handle, "run", "show"), document(handle, "run", "show", "tale", "--as-of", "60")
    assert (now["position"], before["position"]) == (len(FACTS), 60)
    assert before["steps"] < now["steps"]
    text = call(handle.home, "run", "show").stdout
    assert re.search(r"\d+% \[\d+%, \d+%\] n=\d+", text), "no rate without its interval and n"


def test_episodes_tasks_and_policies_are_those_of_the_read_model(handle: RunHandle) -> None:
    model = handle.read_model()
    with model.reading() as connection:
        rows = list_episodes(connection, limit=5)
    model.close()
    page = document(handle, "episode", "list", "--limit", "5")
    assert [row["episode"] for row in page["episodes"]] == [row.episode for row in rows]
    older = document(handle, "episode", "list", "--before", str(page["before"]), "--limit", "999")
    assert len(older["episodes"]) == 16 - 5
    assert older["before"] is None
    detail = document(handle, "episode", "show", rows[-1].episode)
    assert detail["episode"]["episode"] == rows[-1].episode
    assert len(document(handle, "task", "list", "--environment", "store")["tasks"]) >= 6
    assert [policy["version"] for policy in document(handle, "policy", "list")["policies"]][-1] == 0
    for command in (
        ("episode", "list"),
        ("episode", "show", rows[-1].episode),
        ("task", "list"),
        ("policy", "list"),
    ):
        result = call(handle.home, *command)
        assert result.exit_code == 0
        assert len(result.stdout.splitlines()) > 1


def test_rebuild_reports_identical_and_leaves_with_3_when_not(handle: RunHandle) -> None:
    report = document(handle, "rebuild")
    assert (report["identical"], report["events"]) == (True, len(FACTS))
    assert report["events_per_s"] > 0
    model = handle.read_model()
    with model.writing() as connection:
        connection.execute(update(cursor).values(log_digest="00" * 32))
    model.close()
    different = call(handle.home, "rebuild")
    assert different.exit_code == 3
    assert "DIFFERENT" in different.stdout
    assert "cursor" in different.stdout
    assert call(handle.home, "rebuild", "--replace").exit_code == 3
    assert call(handle.home, "rebuild").exit_code == 0


# --- settings


def test_settings_are_shown_with_their_sources(handle: RunHandle) -> None:
    shown = document(handle, "config", "show", "--sources", "--set", "run.seed=9")
    assert (shown["settings"]["run"]["seed"], shown["sources"]["run.seed"]) == (9, "--set")
    own = document(handle, "config", "show", "--run", "tale")
    assert own["settings"] == open_run("tale", home=handle.home).settings.model_dump(mode="json")
    text = call(handle.home, "config", "show", "--sources").stdout
    assert re.search(r"^learner\.learning_rate +\S+ +recipe mgrpo$", text, re.MULTILINE)


def test_a_settings_file_is_checked(handle: RunHandle, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('recipe = "cloning"\n[run]\nseed = 4\n')
    assert document(handle, "config", "check", str(file)) == {
        "file": str(file),
        "valid": True,
        "recipe": "cloning",
        "settings": 1,
    }


def test_the_schema_lists_every_setting(handle: RunHandle) -> None:
    schema = document(handle, "config", "schema")
    assert "LearnerSettings" in schema["$defs"]
    text = call(handle.home, "config", "schema").stdout
    assert "learner.options.clip_low" in text
    assert "Lower clip of the ratio." in text


# --- as processes


@pytest.mark.process
def test_exit_codes_and_streams_of_real_processes(handle: RunHandle, tmp_path: Path) -> None:
    good = process(handle.home, "run", "list", "--json")
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["runs"][0]["run"] == "tale"

    failed = process(tmp_path, "run", "show")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert re.fullmatch(r"there is no run in .* yet\. Run: hindcast start.*\n", failed.stderr)

    usage = process(tmp_path, "run", "shw")
    assert (usage.returncode, usage.stdout) == (2, "")
    unknown = process(tmp_path, "config", "show", "--set", "learner.learning_rat=1")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert (
        unknown.stderr
        == "--set: there is no setting 'learner.learning_rat'; the nearest is learner.learning_rate\n"
    )


@pytest.mark.process
def test_a_home_that_is_a_file_and_a_place_that_is_none_are_said_in_words(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    for home, said in ((taken, f"{taken} is a file: HINDCAST_HOME"), (taken / "home", f"{taken}/home")):
        done = subprocess.run(
            [sys.executable, "-c", "from hindcast.app.cli import main; main()", "alerts"],
            env={**os.environ, "HINDCAST_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode in (1, 2)
        assert said in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.process
def test_nothing_is_coloured_when_piped(handle: RunHandle) -> None:
    for arguments in (("--help",), ("run", "show"), ("run", "--nosuch")):
        done = process(handle.home, *arguments, FORCE_COLOR="1")
        assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.process
def test_a_reader_that_stops_listening_is_no_fault(handle: RunHandle) -> None:
    script = f"{sys.executable} -c 'from hindcast.app.cli import main; main()' config schema | head -n 1"
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PROCESS_S, check=False
    )
    assert "Traceback" not in done.stderr


@pytest.mark.process
def test_following_goes_on_until_ctrl_c_and_then_tells_the_cursor(handle: RunHandle) -> None:
    follower = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from hindcast.app.cli import main; main()",
            "log",
            "tail",
            "-n",
            "1",
            "--follow",
            "--json",
        ],
        cwd=ROOT,
        env={**os.environ, "HINDCAST_HOME": str(handle.home), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["position"] == len(FACTS)
        follower.send_signal(signal.SIGINT)
        rest, problems = follower.communicate(timeout=PROCESS_S)
    finally:
        follower.kill()
        follower.wait()
    assert json.loads(rest) == {"cursor": len(FACTS)}
    assert problems == ""
    assert follower.returncode == 0
    assert running_broker(handle.home) is None


@pytest.mark.parametrize(
    "words", [["policy", "list"], ["episode", "list"], ["log", "tail"], ["eval", "--policy", "latest"]]
)
def test_a_run_is_the_last_argument_and_run_as_an_option_means_the_same(
    words: list[str], tmp_path: Path
) -> None:
    environment = {"HINDCAST_HOME": str(tmp_path)}
    create_run(resolve(environment={}, folder=tmp_path), home=tmp_path, name="there")
    for given in (["absent"], ["--run", "absent"], ["absent", "--run", "absent"]):
        found = CliRunner().invoke(app, [*words, *given], env=environment)
        assert "'absent'" in str(found.exception), found.output
    found = CliRunner().invoke(app, [*words, "absent", "--run", "there"], env=environment)
    assert isinstance(found.exception, SettingsError)
    assert "absent" in str(found.exception)
    assert "there" in str(found.exception)
    assert (
        "--run"
        not in CliRunner()
        .invoke(app, [*words[:2], "--help"] if words[0] != "eval" else ["eval", "--help"])
        .output
    )


def test_settings_are_followed_by_the_run_they_are_for(tmp_path: Path) -> None:
    create_run(resolve(environment={}, folder=tmp_path), home=tmp_path, name="there")
    found = CliRunner().invoke(
        app,
        ["ctl", "set", "learner.options.kl_coefficient=0.1", "absent"],
        env={"HINDCAST_HOME": str(tmp_path)},
    )
    assert "'absent'" in str(found.exception)
