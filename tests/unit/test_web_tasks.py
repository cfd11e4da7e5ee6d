"""Task files of a user's own site: what they say, what is refused, and what its checks decide."""

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindcast.actors.environments.web.definition import Check, WebTask, to_plain_values
from hindcast.actors.environments.web.evaluators import ProbeResult, SiteReport, evaluate
from hindcast.actors.environments.web.files import read_tasks
from hindcast.actors.environments.web.secrets import Secrets, require_secrets
from hindcast.actors.environments.web.site import MAX_CHARS, MAX_TEXTS, bounded
from hindcast.actors.environments.web.tasks import WebTasks, as_task, definition_of
from hindcast.app.runs.runs import plan_run
from hindcast.app.settings.configuration import Resolved, resolve, to_toml
from hindcast.app.settings.web_tasks import overrides_for, require_actors, require_task_secrets
from hindcast.core.domain.evidence import Evidence
from hindcast.core.errors import EnvironmentFailed, SettingsError
from hindcast.core.settings.schema import Settings, WebSettings

ENTRY: dict[str, Any] = {
    "name": "price",
    "start": "http://shop.test:81/",
    "instruction": "What does the lamp cost?",
    "checks": [{"of": "answer", "number": 12.5}],
}
RESET = {"url": "http://shop.test:81/reset"}


def written(folder: Path, *entries: dict[str, Any], **defaults: Any) -> Path:
    path = folder / "tasks.jsonl"
    lines = [{"defaults": defaults}] if defaults else []
    path.write_text("".join(json.dumps(one) + "\n" for one in [*lines, *entries]))
    return path


def settled(path: Path, *overrides: str, recipe: str = "mgrpo") -> Settings:
    return resolve(
        recipe=recipe, environment={}, overrides=[*overrides_for(path), *overrides], folder=path.parent
    ).settings


def test_toml_and_jsonl_say_the_same(tmp_path: Path) -> None:
    toml = tmp_path / "tasks.toml"
    toml.write_text(
        '[defaults]\nstart = "http://shop.test:81/"\nmax_steps = 7\n'
        '[[tasks]]\nname = "price"\ninstruction = "What does the lamp cost?"\n'
        '[[tasks.checks]]\nof = "answer"\nnumber = 12.5\n'
    )
    lines = written(
        tmp_path, {key: ENTRY[key] for key in ENTRY if key != "start"}, start=ENTRY["start"], max_steps=7
    )
    assert read_tasks(toml) == read_tasks(lines)
    (task,) = read_tasks(toml)
    assert task["max_steps"] == 7
    assert task["origins"] == ["http://shop.test:81"]


def test_what_a_task_says_stands_in_its_goal_alone(tmp_path: Path) -> None:
    path = written(tmp_path, {**ENTRY, "resets": "per_episode", "reset": RESET, "family": "looking"})
    source = WebTasks(WebSettings(tasks=read_tasks(path)))
    task = source.task("looking", 0)
    assert source.task("looking", 5) == task
    again = msgspec.json.decode(msgspec.json.encode(task), type=type(task))
    assert again.id == task.id
    assert to_plain_values(definition_of(again)) == read_tasks(path)[0]
    assert source.resets == "per_episode"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"colour": "red"}, "the task: object contains unknown field `colour`"),
        ({"max_steps": "many"}, "max_steps: expected `int`, got `str`"),
        ({"max_steps": 0}, "max_steps: 0 must be 1 to 1000"),
        ({"start": "shop.test"}, "start: 'shop.test' is no address"),
        ({"start": "http://me:word@shop.test/"}, "start: holds a user name or password"),
        ({"origins": ["http://other.test"]}, "origins: lacks http://shop.test:81"),
        ({"origins": ["http://shop.test:81/cart"]}, "an origin ends with its host and port"),
        ({"checks": []}, "checks: there are none, and no judge"),
        ({"judge": "orm"}, "judge: 'orm' and checks are given"),
        ({"checks": [{"of": "smell", "exact": "x"}]}, "checks[0].of: invalid enum value 'smell'"),
        ({"checks": [{"of": "text", "exact": "x"}]}, "checks[0].selector: is missing"),
        ({"checks": [{"of": "answer", "selector": "b", "exact": "x"}]}, "checks[0].selector: belongs to"),
        (
            {"checks": [{"of": "answer"}]},
            "checks[0]: needs one of exact, contains, regex and number; found none",
        ),
        ({"checks": [{"of": "answer", "exact": "x", "number": 1}]}, "found exact and number"),
        ({"checks": [{"of": "answer", "regex": "("}]}, "checks[0].regex: '(' is no regular expression"),
        ({"checks": [{"of": "answer", "exact": "${KEY}"}]}, "only headers of a check name secrets"),
        ({"instruction": "Say ${KEY}"}, "${KEY}: only login, reset and headers name secrets"),
        ({"reset": RESET}, "resets: 'none' says that nothing resets the site"),
        ({"reset": {**RESET, "command": ["make"]}, "resets": "per_batch"}, "a command or a url, one of them"),
        ({"resets": "per_batch"}, "reset: is missing"),
        ({"login": {"steps": [{"fill": "a", "click": "b"}]}}, "login.steps[0]: needs one of"),
        ({"login": {"steps": [{"click": "b", "value": "x"}]}}, "login.steps[0].value: belongs to fill"),
        ({"login": {"state": "mine"}}, "login.signed_in: is missing"),
        ({"family": "Buy things"}, "family: 'Buy things' must be small letters"),
        ({"viewport": [10, 10]}, "viewport: [10, 10] must be width and height"),
    ],
)
def test_a_mistake_names_file_task_key_and_value(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = written(tmp_path, ENTRY | change)
    with pytest.raises(SettingsError) as caught:
        read_tasks(path)
    assert str(caught.value).startswith(f"{path}, task 'price': ")
    assert said in str(caught.value)


def test_a_file_that_is_none_says_so(tmp_path: Path) -> None:
    path = tmp_path / "tasks.toml"
    for text, said in (
        ("[[task]]\n", "task is unknown"),
        ("name = \n", "is not TOML"),
        ("[defaults]\n", "has no task"),
    ):
        path.write_text(text)
        with pytest.raises(SettingsError, match=said):
            read_tasks(path)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_tasks(tmp_path / "gone.toml")
    with pytest.raises(SettingsError, match="another task of the file has it"):
        read_tasks(written(tmp_path, ENTRY, ENTRY))


def judged(
    *checks: Check, answer: str | None = None, found: tuple[ProbeResult, ...] = (), **more: Any
) -> tuple[str, str]:
    definition = WebTask(
        name="t",
        instruction="Do it.",
        start="http://a.test/",
        origins=("http://a.test",),
        checks=checks,
        **more,
    )
    report = SiteReport(found=found or tuple(ProbeResult() for _ in checks))
    evidence = Evidence(answer=answer, final_url="http://a.test/done?n=1", probes=msgspec.to_builtins(report))
    judgment = evaluate(as_task(definition, 0), evidence)
    assert judgment.reward == (judgment.outcome == "success")
    return judgment.outcome, judgment.reason


@pytest.mark.parametrize(
    ("check", "passing", "failing"),
    [
        ({"exact": "Grace Hopper"}, ["grace  hopper ", "GRACE HOPPER"], ["Grace", "Grace Hopper!", None]),
        ({"contains": "555-0146"}, ["It is 555-0146."], ["555 0146", ""]),
        ({"regex": r"^\d{4}-\d\d$"}, ["2024-05"], ["May 2024"]),
        ({"number": 1250.5}, ["$1,250.50", "1250.5"], ["1250", "1250.5 of 3", "none", "A1250.5"]),
        ({"number": 10, "tolerance": 0.5}, ["10.4", "9.5 km"], ["10.6"]),
    ],
)
def test_answers_are_compared_as_the_check_says(
    check: dict[str, Any], passing: list[str], failing: list[str | None]
) -> None:
    for answer in passing:
        assert judged(Check(of="answer", **check), answer=answer)[0] == "success", answer
    for answer in failing:
        assert judged(Check(of="answer", **check), answer=answer)[0] == "failure", answer


def test_a_check_that_could_not_look_is_undecided_unless_another_decides() -> None:
    blind = ProbeResult(error="the page is gone")
    text, answer = Check(of="text", selector="h1", contains="yes"), Check(of="answer", exact="yes")
    outcome, reason = judged(text, found=(blind,))
    assert (outcome, "h1 could not be looked at: the page is gone" in reason) == ("undecided", True)
    assert judged(text, answer, answer="no", found=(blind, ProbeResult()))[0] == "failure"
    assert judged(text, answer, answer="yes", found=(blind, ProbeResult()))[0] == "undecided"
    assert judged(text, answer, answer="yes", found=(blind, ProbeResult()), need="any")[0] == "success"
    assert judged(text, answer, answer="no", found=(blind, ProbeResult()), need="any")[0] == "undecided"


def test_of_several_elements_one_is_enough_and_of_none_nothing_holds() -> None:
    check = Check(of="text", selector=".note", exact="milk")
    assert judged(check, found=(ProbeResult(texts=("bread", "Milk")),))[0] == "success"
    assert judged(check, found=(ProbeResult(texts=("bread", "oat milk")),))[0] == "failure"
    assert "there is no text .note" in judged(check)[1]
    assert judged(Check(of="url", regex=r"/done\?"))[0] == "success"


def test_what_goes_on_beyond_the_evidence_decides_only_where_it_is_found() -> None:
    check = Check(of="text", selector="body", contains="milk")
    assert judged(check, found=(ProbeResult(texts=("bread",), cut=True),))[0] == "undecided"
    assert judged(check, found=(ProbeResult(texts=("milk and",), cut=True),))[0] == "success"
    number = Check(of="text", selector="body", number=3)
    assert judged(number, found=(ProbeResult(texts=("3 of",), cut=True),))[0] == "undecided"


def test_what_is_stored_is_bounded_and_says_so() -> None:
    found = bounded(
        [
            ProbeResult(texts=("x" * (MAX_CHARS + 1), "y")),
            ProbeResult(texts=("\ud800",)),
            ProbeResult(error="gone"),
        ]
    )
    assert [one.cut for one in found] == [True, False, False]
    assert (len(found[0].texts[0]), found[0].texts[1], found[1].texts) == (MAX_CHARS, "y", ("?",))
    assert [one.cut for one in bounded([ProbeResult(texts=("a",) * (MAX_TEXTS + 1))])] == [True]


def test_a_number_with_a_unit_behind_its_fraction_is_not_its_whole_part() -> None:
    assert judged(Check(of="answer", number=12), answer="12.5kg")[0] == "failure"


def test_secrets_that_a_command_sees_are_taken_out_of_what_it_says() -> None:
    secrets = Secrets({"KEY": "open sesame"})
    secrets.learn(("KEY", "MISSING"))
    assert secrets.take_out("+ curl open sesame") == "+ curl ${KEY}"


def test_all_and_any_of_several_checks() -> None:
    yes, no = Check(of="answer", contains="a"), Check(of="answer", contains="b")
    assert judged(yes, no, answer="a")[0] == "failure"
    assert judged(yes, yes, answer="a")[0] == "success"
    assert judged(no, yes, answer="a", need="any")[0] == "success"
    assert judged(no, no, answer="a", need="any")[0] == "failure"


def test_a_verdict_left_to_a_judge_is_not_the_rules() -> None:
    outcome, reason = judged(judge="orm")
    assert (outcome, "'orm'" in reason) == ("undecided", True)


def test_damaged_evidence_is_undecided() -> None:
    definition = WebTask(
        name="t",
        instruction="x",
        start="http://a.test/",
        checks=(Check(of="text", selector="b", exact="x"),),
    )
    for probes in ({}, {"found": "?"}):
        evidence = Evidence(answer="x", final_url="", probes=probes)
        assert evaluate(as_task(definition, 0), evidence).outcome == "undecided"


def test_settings_hold_the_tasks_and_need_the_file_no_more(tmp_path: Path) -> None:
    path = written(tmp_path, {**ENTRY, "parallel": True}, {**ENTRY, "name": "other", "parallel": True})
    resolved = resolve(recipe="mgrpo", environment={}, overrides=overrides_for(path), folder=tmp_path)
    assert resolved.settings.curriculum.environments == ("web",)
    assert resolved.settings.curriculum.families == ()
    kept = tmp_path / "kept.toml"
    kept.write_text(to_toml(resolved))
    path.unlink()
    assert resolve(file=kept, environment={}).settings == resolved.settings


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)


@given(content=st.dictionaries(texts, texts | st.integers() | st.lists(texts), max_size=3))
def test_any_table_survives_being_written_down(content: dict[str, Any]) -> None:
    settings = Settings.model_construct(web=WebSettings(tasks=(content,)))
    written_down = tomllib.loads(to_toml(Resolved(settings=settings, recipe="mgrpo", sources={})))
    assert written_down["web"]["tasks"] == [content]


def test_a_file_named_later_replaces_the_tasks_of_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    first = written(tmp_path / "one", {**ENTRY, "parallel": True})
    second = written(tmp_path, {**ENTRY, "name": "second", "parallel": True})
    settings = settled(first, f"web.file={second}")
    assert [task["name"] for task in settings.web.tasks] == ["second"]


def test_a_group_on_a_back_end_that_its_members_share_is_refused_unless_asked_for(tmp_path: Path) -> None:
    shared = resolve(
        environment={}, overrides=overrides_for(written(tmp_path, ENTRY)), recipe="mgrpo", folder=tmp_path
    )
    with pytest.raises(
        SettingsError, match="compares episodes, which must begin in the same state"
    ) as caught:
        plan_run(shared, home=tmp_path)
    assert all(way in str(caught.value) for way in ("per_episode", "parallel = true", "group_size=1"))
    for change, overrides in (
        ({"parallel": True}, []),
        ({"resets": "per_episode"}, []),
        ({}, ["curriculum.group_size=1", "learner.algorithm=cloning"]),
    ):
        path = written(tmp_path, {**ENTRY, **change})
        asked = resolve(
            environment={}, overrides=[*overrides_for(path), *overrides], recipe="mgrpo", folder=tmp_path
        )
        assert plan_run(asked, home=tmp_path).name == "run-1"


def test_a_reset_of_the_whole_site_leaves_one_episode_at_a_time(tmp_path: Path) -> None:
    path = written(tmp_path, {**ENTRY, "resets": "per_episode", "reset": RESET})
    settings = settled(path)
    assert settings.actors.contexts == 1
    with pytest.raises(SettingsError, match="would wipe the others' state"):
        settled(path, "actors.contexts=2")
    with pytest.raises(SettingsError, match="--actors 2"):
        require_actors(settings, 2)
    path = written(tmp_path, {**ENTRY, "resets": "per_episode", "reset": RESET, "parallel": True})
    assert settled(path).actors.contexts > 1
    require_actors(settled(path), 2)
    path = written(tmp_path, {**ENTRY, "resets": "per_batch", "reset": RESET, "parallel": True})
    with pytest.raises(SettingsError, match="before its first episode"):
        require_actors(settled(path), 2)


def test_a_judge_that_a_task_leaves_its_verdict_to_must_be_the_one_that_training_uses(tmp_path: Path) -> None:
    entry = {key: value for key, value in ENTRY.items() if key != "checks"}
    path = written(tmp_path, {**entry, "judge": "orm", "parallel": True})
    with pytest.raises(SettingsError, match="leaves its verdict to the judge 'orm'"):
        settled(path)
    assert settled(path, "judge.judges=orm").web.tasks[0]["judge"] == "orm"


def test_the_environment_web_without_tasks_is_refused() -> None:
    with pytest.raises(SettingsError, match="there is no task of it"):
        resolve(environment={}, overrides=["curriculum.environments=web"], folder=Path("/nowhere"))


def test_secrets_are_put_in_where_used_and_taken_out_of_what_is_told(tmp_path: Path) -> None:
    secrets = Secrets({"KEY": "s3 cret", "USER": "ada"})
    assert secrets.put_in("Bearer ${KEY} of ${USER}") == "Bearer s3 cret of ada"
    assert secrets.take_out("GET /?key=s3%20cret as ada failed: s3 cret") == (
        "GET /?key=${KEY} as ${USER} failed: ${KEY}"
    )
    with pytest.raises(EnvironmentFailed, match="has no variable OTHER"):
        secrets.put_in("${OTHER}")
    path = written(
        tmp_path,
        {**ENTRY, "parallel": True, "login": {"steps": [{"fill": "#p", "value": "${HINDCAST_TEST_WORD}"}]}},
    )
    with pytest.raises(SettingsError, match="no environment variable HINDCAST_TEST_WORD"):
        require_task_secrets(settled(path))
    require_secrets({"KEY"}, {"KEY": ""})
