"""WebArena's task files: read as they were released, and told exactly where they are not in the format."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from hindcast.actors.environments.webarena.addresses import PLACEHOLDER, account_for
from hindcast.actors.environments.webarena.evaluators import evaluate, questions
from hindcast.actors.environments.webarena.probes import ProbedPage, encode_probes
from hindcast.actors.environments.webarena.schema import read_call
from hindcast.actors.environments.webarena.tasks import WebArenaTasks, goal_of
from hindcast.app.cli import app
from hindcast.app.settings.checks.sites import (
    require_accounts,
    require_one_resetter,
    require_sound_shared_groups,
)
from hindcast.app.settings.configuration import resolve, to_toml
from hindcast.app.system.sites import task_sources
from hindcast.core.errors import EnvironmentFailed, SettingsError
from hindcast.core.settings.schema import CurriculumSettings, Settings, SiteSettings
from stories.webarena_tasks import ACCOUNTS, SITES, SMALL, passing_evidence, raw_task, settings_for, verdict

LITE = Path(
    os.environ.get("HINDCAST_WEBARENA_LITE")
    or Path(__file__).parents[3] / "shared" / "data" / "webarena_lite" / "test_webarena_lite.raw.json"
)
LITE_TASKS = 165


@pytest.fixture(scope="module")
def lite() -> WebArenaTasks:
    if not LITE.is_file():
        pytest.skip(f"the tasks of WebArena-Lite are not at {LITE}; HINDCAST_WEBARENA_LITE may name the file")
    return WebArenaTasks(
        SiteSettings(webarena_tasks=str(LITE), webarena_sites=SITES, webarena_accounts=ACCOUNTS)
    )


def test_each_task_of_webarena_lite_loads(lite: WebArenaTasks) -> None:
    raw = {entry["task_id"]: entry for entry in json.loads(LITE.read_text())}
    assert sorted(goal_of(task).number for task in lite.tasks()) == sorted(raw) == list(range(LITE_TASKS))
    for task in lite.tasks():
        goal = goal_of(task)
        entry = raw[goal.number]
        said = f"task_id {goal.number}"
        assert task.instruction == entry["intent"], said
        assert list(goal.sites) == entry["sites"], said
        assert list(goal.evaluation.checks) == entry["eval"]["eval_types"], said
        assert len(goal.evaluation.targets) == len(entry["eval"]["program_html"]), said
        assert not PLACEHOLDER.search(json.dumps(task.goal)), said
        assert lite.task(task.family, task.seed) == task, said
        assert verdict(task).outcome in ("failure", "undecided"), said


def test_each_task_of_webarena_lite_can_be_passed_and_failed(lite: WebArenaTasks) -> None:
    for task in lite.tasks():
        said = f"task_id {goal_of(task).number}"
        passing = passing_evidence(task)
        yes = dict.fromkeys(questions(task, passing), True)
        assert evaluate(task, passing, yes).outcome == "success", said
        nothing = msgspec.structs.replace(
            passing,
            answer="I do not know",
            final_url="http://elsewhere.test/",
            probes=encode_probes([ProbedPage(url="http://elsewhere.test/", found="-")] * 3),
        )
        no = dict.fromkeys(questions(task, nothing), False)
        assert evaluate(task, nothing, no).outcome == "failure", said


def test_the_columns_of_webarena_lite_are_those_of_its_results(lite: WebArenaTasks) -> None:
    columns = Counter(task.family for task in lite.tasks())
    assert columns == {
        "shopping": 45,
        "shopping_admin": 35,
        "reddit": 19,
        "gitlab": 30,
        "map": 30,
        "multi": 6,
    }
    assert len({task.id for task in lite.tasks()}) == LITE_TASKS
    assert lite.describe() == "all 165 tasks"


def small(**changes: Any) -> WebArenaTasks:
    given = {"webarena_sites": SITES, "webarena_accounts": ACCOUNTS, **changes}
    return WebArenaTasks(SiteSettings(webarena_tasks=str(SMALL), **given))


def test_tasks_of_a_file_are_found_by_site_and_number() -> None:
    source = small()
    assert source.families() == ("shopping", "shopping_admin", "reddit", "gitlab", "map", "multi")
    assert source.usual() == source.families()
    shopping = [source.task("shopping", seed) for seed in range(9)]
    assert [goal_of(task).number for task in shopping] == [0, 1, 2, 3, 4, 5, 6, 7, 12]
    assert source.task("shopping", 9) == shopping[0]
    assert [source.task("shopping", task.seed) for task in shopping] == shopping
    assert len(source.tasks()) == 14


def test_a_task_holds_all_that_evaluators_and_browsers_need() -> None:
    goal = goal_of(small().task("multi", 0))
    assert goal.start == (f"{SITES['gitlab']}/team", f"{SITES['reddit']}/f/books")
    assert goal.origins == (SITES["gitlab"], SITES["reddit"])
    assert goal.login == ("gitlab", "reddit")
    assert goal.evaluation.targets[0].required.references == (f"{SITES['reddit']}/f/books/7",)


def test_further_origins_are_allowed_in_every_task() -> None:
    source = small(
        webarena_origins=("http://tiles.test:8080",), webarena_sites=SITES | {"homepage": "http://home.test/"}
    )
    assert goal_of(source.task("map", 0)).origins == (
        SITES["map"],
        "http://home.test",
        "http://tiles.test:8080",
    )


def test_tasks_on_sites_without_an_address_are_left_out_and_counted() -> None:
    source = small(webarena_sites={name: SITES[name] for name in ("shopping", "shopping_admin", "gitlab")})
    assert source.families() == ("shopping", "shopping_admin", "gitlab")
    assert source.describe() == (
        "11 of 14 tasks; 3 are left out without an address in sites.webarena_sites: 2 need reddit, 1 need map"
    )
    with pytest.raises(SettingsError, match="no tasks of the family 'reddit'"):
        source.task("reddit", 0)


def test_a_file_of_which_nothing_can_be_played_is_refused() -> None:
    with pytest.raises(SettingsError, match="nothing can be played"):
        small(webarena_sites={}).families()


def test_the_environment_is_offered_only_with_a_task_file() -> None:
    assert "webarena" not in task_sources(Settings())
    sites = SiteSettings(webarena_tasks=str(SMALL), webarena_sites=SITES, webarena_accounts=ACCOUNTS)
    assert task_sources(Settings(sites=sites))["webarena"].resets == "none"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sites": ["store"]}, "sites = ['store']: 'store' is no site"),
        ({"sites": "reddit"}, "sites = 'reddit': it must be a list"),
        ({"intent": ""}, "intent = '': it must not be empty"),
        ({"task_id": "7"}, "task_id '7': task_id = '7': it must be a whole number"),
        ({"start_url": "__MAPS__"}, "__MAPS__ stands for no site"),
        ({"geolocation": {"latitude": 1}}, "geolocation = {'latitude': 1}: only null is known"),
        ({"storage_state": "./.auth/bank_state.json"}, "storage_state = './.auth/bank_state.json'"),
        ({"eval": {"eval_types": ["page_image_query"]}}, "'page_image_query' is unknown"),
        ({"eval": {"eval_types": []}}, "nothing would be evaluated"),
        ({"eval": {"reference_answers": None}}, "eval.reference_answers = None: it must be an object"),
        ({"eval": {"reference_answers": {"one_of": ["a"]}}}, "'one_of' is unknown"),
        ({"eval": {"reference_answers": {"exact_match": ["a"]}}}, "exact_match = ['a']: it must be a text"),
        ({"eval": {"reference_answers": {"must_include": [1]}}}, "1 is no text"),
        ({"eval": {"eval_types": ["url_match"]}}, "eval.reference_url = '': it must not be empty"),
        (
            {"eval": {"eval_types": ["url_match"], "reference_url": "__REDDIT__", "url_note": "NEARLY"}},
            "eval.url_note = 'NEARLY': it must be one of: EXACT, GOLD in PRED",
        ),
        ({"eval": {"eval_types": ["program_html"]}}, "program_html has nothing to look at"),
    ],
)
def test_what_is_not_in_the_format_is_told_with_file_task_key_and_value(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    settings = settings_for(tmp_path, raw_task(4), raw_task(7, **changes))
    with pytest.raises(SettingsError) as error:
        WebArenaTasks(settings).families()
    assert str(error.value).startswith(f"{settings.webarena_tasks}: task_id {changes.get('task_id', 7)!r}: ")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"url": "func:os.system('ls')"}, "it is no plain call of a function"),
        ({"url": "func:eval('1')"}, "there is no function 'eval'"),
        ({"url": "func:reddit_get_post_url(1 + 1)"}, "an argument must be a text in quotes or __page__"),
        ({"url": "func:reddit_get_post_url()"}, "reddit_get_post_url has 1 arguments, not 0"),
        ({"url": "func:reddit_get_post_url("}, "it is no call of a function"),
        (
            {"locator": "alert(1)"},
            "eval.program_html[0].locator = 'alert(1)': it must be empty or begin with",
        ),
        ({"required_contents": {}}, "eval.program_html[0].required_contents = {}: it must have one key"),
        ({"url": None}, "eval.program_html[0].url = None: it must be a text"),
    ],
)
def test_what_cannot_be_looked_at_is_told_when_the_file_is_read(
    tmp_path: Path, target: dict[str, Any], said: str
) -> None:
    whole = {"url": "last", "locator": "", "required_contents": {"exact_match": "a"}, **target}
    settings = settings_for(
        tmp_path, raw_task(eval={"eval_types": ["program_html"], "program_html": [whole]})
    )
    with pytest.raises(SettingsError) as error:
        WebArenaTasks(settings).families()
    assert said in str(error.value)


def test_a_number_stands_for_one_task(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="task_id 3: task_id = 3: an earlier task has it"):
        WebArenaTasks(settings_for(tmp_path, raw_task(3), raw_task(3))).families()


@pytest.mark.parametrize(
    ("content", "said"), [("{}", "must hold a list"), ("[", "is no JSON"), ("[1]", "entry 0: the entry = 1")]
)
def test_a_file_that_is_no_list_of_tasks_is_told(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "tasks.json"
    file.write_text(content)
    with pytest.raises(SettingsError, match=said):
        WebArenaTasks(SiteSettings(webarena_tasks=str(file))).families()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"webarena_sites": SITES | {"bank": "http://bank.test"}}, "sites.webarena_sites names 'bank'"),
        ({"webarena_sites": SITES | {"map": "http://me:secret@map.test"}}, "an address without a password"),
        ({"webarena_origins": ("http://tiles.test/a",)}, "which is no origin"),
        ({"webarena_accounts": {}}, "9 to shopping, 1 to shopping_admin"),
        (
            {"webarena_accounts": ACCOUNTS | {"gitlab": ("ONE",)}},
            "gitlab must name two environment variables",
        ),
        ({"webarena_accounts": ACCOUNTS | {"bank": ()}}, "sites.webarena_accounts names 'bank'"),
    ],
)
def test_settings_that_no_task_can_be_played_with_are_told(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        small(**changes).tasks()


def test_addresses_and_accounts_stand_in_a_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[sites]\nwebarena_accounts = {reddit = ["A", "B"], map = []}\n[sites.webarena_sites]\n'
        'reddit = "http://forum.test:9999"\nmap = "http://map.test:3000"\n'
    )
    resolved = resolve(file=file, environment={}, overrides=["sites.webarena_steps=15"])
    assert resolved.settings.sites.webarena_sites == {name: SITES[name] for name in ("reddit", "map")}
    again = tmp_path / "again.toml"
    again.write_text(to_toml(resolved))
    assert resolve(file=again, environment={}).settings == resolved.settings
    by_hand = resolve(
        overrides=['sites.webarena_sites={reddit="http://forum.test"}'], environment={}, folder=tmp_path
    )
    assert by_hand.settings.sites.webarena_sites == {"reddit": "http://forum.test"}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (['sites.webarena_reset={reddit="reset"}'], "never does it"),
        (["sites.webarena_resets=per_batch"], "needs what resets the sites"),
        (
            ["sites.webarena_resets=per_episode", 'sites.webarena_reset={reddit="reset"}'],
            "sites.webarena_concurrency to 1",
        ),
        (["sites.webarena_tasks=a.json", "sites.webarena_patience_s=500"], "over before it began"),
    ],
)
def test_settings_that_do_not_go_together_are_told(tmp_path: Path, overrides: list[str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        resolve(overrides=overrides, environment={}, folder=tmp_path)


def test_a_group_on_shared_sites_is_refused_unless_asked_for(tmp_path: Path) -> None:
    def settings(**sites: Any) -> Settings:
        given = {"webarena_tasks": str(SMALL), "webarena_sites": SITES, **sites}
        curriculum = CurriculumSettings(environments=("webarena",))
        return Settings(curriculum=curriculum, sites=SiteSettings(**given))

    with pytest.raises(SettingsError, match="begins in the state in which others left the sites"):
        require_sound_shared_groups(settings())
    with pytest.raises(SettingsError, match="per_batch"):
        require_sound_shared_groups(settings(webarena_resets="per_batch"))
    require_sound_shared_groups(settings(webarena_resets="per_episode"))
    require_sound_shared_groups(settings(webarena_shared_groups=True))
    require_sound_shared_groups(Settings())


def test_only_one_actor_resets_sites_before_a_batch() -> None:
    sites = SiteSettings(
        webarena_tasks=str(SMALL), webarena_resets="per_batch", webarena_reset={"map": "true"}
    )
    with pytest.raises(SettingsError, match="Use one actor"):
        require_one_resetter(Settings(sites=sites), 2)
    require_one_resetter(Settings(sites=sites), 1)
    require_one_resetter(Settings(), 2)


def test_accounts_that_nobody_set_are_told_before_anything_starts() -> None:
    sites = SiteSettings(webarena_tasks=str(SMALL), webarena_accounts=ACCOUNTS)
    with pytest.raises(SettingsError, match="export WEB_PASSWORD"):
        require_accounts(Settings(sites=sites), {"WEB_USER": "ann"})
    require_accounts(Settings(sites=sites), {"WEB_USER": "ann", "WEB_PASSWORD": "secret"})


def test_an_evaluation_without_a_task_file_says_what_to_set(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["eval", "--suite", "webarena"], env={"HINDCAST_HOME": str(tmp_path)})
    assert isinstance(told.exception, SettingsError)
    assert "set sites.webarena_tasks" in str(told.exception)


def test_an_account_comes_from_the_environment_and_shows_neither_name_nor_password() -> None:
    accounts = {"reddit": ("WEB_USER", "WEB_PASSWORD"), "gitlab": ()}
    account = account_for("reddit", accounts, {"WEB_USER": "ann", "WEB_PASSWORD": "secret"})
    assert account is not None
    assert (account.user, account.password) == ("ann", "secret")
    assert "ann" not in repr(account)
    assert "secret" not in repr(account)
    assert account_for("gitlab", accounts, {}) is None
    with pytest.raises(EnvironmentFailed, match="WEB_PASSWORD") as error:
        account_for("reddit", accounts, {"WEB_USER": "ann"})
    assert "ann" not in str(error.value)


def test_a_call_is_read_with_its_arguments() -> None:
    call = read_call("func:gitlab_get_project_memeber_role(__page__, 'vin\\'ta')")
    assert call.arguments == ("__page__", "vin'ta")
    with pytest.raises(ValueError, match="no call"):
        read_call("func:" + "(" * 100_000)
