"""WebArena on stand-in sites in a real browser: log-ins, looks and verdicts, each check passed and failed."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from PIL import Image

from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.webarena.evaluators import evaluate, questions
from hindcast.actors.environments.webarena.probes import decode_probes
from hindcast.actors.environments.webarena.site import WebArenaSite
from hindcast.actors.environments.webarena.tasks import WebArenaTasks, goal_of
from hindcast.core.domain.action import Action
from hindcast.core.domain.evidence import Evidence, Outcome
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.settings.schema import SiteSettings
from hindcast.core.text.toml import as_toml
from servers.browser_site import PATIENT
from servers.webarena_sites import PASSWORD, USER, WebArenaSites
from stories.webarena_tasks import ACCOUNTS, SMALL, raw_task, settings_for

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.browser]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[BrowserHost]:
    async with BrowserHost(PATIENT) as host:
        yield host


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[WebArenaSites]:
    async with WebArenaSites().running() as sites:
        yield sites


@pytest.fixture
def sites(running: WebArenaSites, monkeypatch: pytest.MonkeyPatch) -> WebArenaSites:
    monkeypatch.setenv("WEB_USER", USER)
    monkeypatch.setenv("WEB_PASSWORD", PASSWORD)
    running.reset()
    running.log_ins.clear()
    running.requests.clear()
    return running


def settings(sites: WebArenaSites, **changes: Any) -> SiteSettings:
    given = {
        "webarena_tasks": str(SMALL),
        "webarena_sites": sites.addresses,
        "webarena_accounts": ACCOUNTS | {"shopping_site_admin": ("WEB_USER", "WEB_PASSWORD")},
        "webarena_settle_s": 0.0,
        **changes,
    }
    return SiteSettings(**given)


def task_number(given: SiteSettings, number: int) -> Task:
    return next(task for task in WebArenaTasks(given).tasks() if goal_of(task).number == number)


async def episode(
    host: BrowserHost, site: WebArenaSite, task: Task, *deeds: Action, answer: str | None = None
) -> Evidence:
    world = await host.open_world(site)
    try:
        start = await world.reset(task)
        assert start.instruction == task.instruction
        for deed in deeds:
            outcome = await world.step(deed)
            assert outcome.result == "ok", (deed, outcome.detail)
        return await world.finish(answer)
    finally:
        await world.close()


def goto(address: str) -> Action:
    return Action(name="Goto", argument=address)


class Case(NamedTuple):
    """What an agent does at a task of the small file, and how that is judged."""

    number: int
    outcome: Outcome
    deeds: tuple[str, ...] = ()
    """Addresses it goes to, after the site's own."""
    on: str = "shopping"
    answer: str | None = None


CASES = (
    Case(0, "success", answer="yes"),
    Case(0, "failure", answer="no"),
    Case(2, "undecided", answer="two days"),
    Case(3, "undecided", answer="they cannot be added"),
    Case(4, "success", ("/lamp.html",)),
    Case(4, "failure"),
    Case(5, "success", ("/search?sort=price&q=lamp&page=2",)),
    Case(5, "failure", ("/search?q=lamp",)),
    Case(6, "success", ("/wishlist/?add=Green+Lamp",)),
    Case(6, "failure", ("/lamp.html",)),
    Case(7, "success", ("/buy?sku=TABLE-1", "/buy?sku=LAMP-1")),
    Case(7, "failure", ("/buy?sku=LAMP-1", "/buy?sku=TABLE-1")),
    Case(7, "failure"),
    Case(9, "success", ("/f/books/7/owls",), on="reddit"),
    Case(9, "failure", ("/f/books/8/mice",), on="reddit"),
    Case(9, "failure", ("/f/music",), on="reddit"),
    Case(10, "success", ("/team/-/project_members?role=Guest",), on="gitlab"),
    Case(10, "failure", on="gitlab"),
    Case(12, "success", ("/letter?subscribe=yes",)),
    Case(12, "failure"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.number}-{case.outcome}")
async def test_every_check_of_the_small_file_passes_and_fails(
    host: BrowserHost, sites: WebArenaSites, case: Case
) -> None:
    given = settings(sites)
    task = task_number(given, case.number)
    deeds = [goto(sites.addresses[case.on] + path) for path in case.deeds]
    evidence = await episode(host, WebArenaSite(given), task, *deeds, answer=case.answer)
    judgment = evaluate(task, evidence)
    assert judgment.outcome == case.outcome, judgment.reason
    assert bool(questions(task, evidence)) == (case.outcome == "undecided")


async def test_a_review_is_asked_of_the_shop(host: BrowserHost, sites: WebArenaSites) -> None:
    given = settings(sites)
    task, site = task_number(given, 8), WebArenaSite(given)
    assert evaluate(task, await episode(host, site, task)).outcome == "failure"
    rating = {"rating_name": "Rating", "percent": 80}
    sites.reviews.append({"nickname": "Ann", "ratings": [rating]})
    assert evaluate(task, await episode(host, site, task)).outcome == "success"
    sites.reviews.append({"nickname": "Bob", "ratings": [rating]})
    assert evaluate(task, await episode(host, site, task)).outcome == "failure"


async def test_a_task_on_two_sites_begins_on_the_first_with_a_tab_for_each(
    host: BrowserHost, sites: WebArenaSites
) -> None:
    given = settings(sites)
    task, site = task_number(given, 11), WebArenaSite(given)
    world = await host.open_world(site)
    try:
        start = await world.reset(task)
        assert start.observation.page.url == f"{sites.addresses['gitlab']}/team"
        assert sorted(start.observation.tabs) == ["", ""]
        link = f"{sites.addresses['reddit']}/f/books/7"
        await world.step(goto(f"{sites.addresses['gitlab']}/team?note={link}"))
        assert evaluate(task, await world.finish(None)).outcome == "success"
    finally:
        await world.close()
    assert sites.log_ins == {"gitlab": 1, "reddit": 1}


async def test_the_place_where_an_episode_ended_is_that_before_anybody_looked(
    host: BrowserHost, sites: WebArenaSites
) -> None:
    given = settings(sites)
    task = task_number(given, 7)
    ended = f"{sites.addresses['shopping']}/lamp.html"
    evidence = await episode(
        host, WebArenaSite(given), task, goto(f"{sites.addresses['shopping']}/buy?sku=A"), goto(ended)
    )
    assert evidence.final_url == ended
    order, cart = decode_probes(evidence)
    assert order.url == f"{sites.addresses['shopping']}/sales/order/view/order_id/1/"
    assert cart.url == f"{sites.addresses['shopping']}/cart"


@pytest.mark.parametrize("lite", [True, False])
async def test_a_long_page_is_read_to_its_end(
    host: BrowserHost, sites: WebArenaSites, tmp_path: Path, lite: bool
) -> None:
    target = {
        "url": "last",
        "locator": "",
        "required_contents": {"must_include": ["<!DOCTYPE html>", "teal"]},
    }
    wanted = {"eval_types": ["program_html"], "reference_answers": None, "program_html": [target]}
    entry = raw_task(
        lite=lite, sites=["shopping"], start_url="__SHOPPING__", require_login=False, eval=wanted
    )
    given = settings_for(tmp_path, entry, **settings(sites).model_dump(exclude={"webarena_tasks"}))
    [task] = WebArenaTasks(given).tasks()
    for last, outcome in (("teal", "success"), ("tea", "failure")):
        shown = goto(f"{sites.addresses['shopping']}/long?last={last}")
        evidence = await episode(host, WebArenaSite(given), task, shown)
        judgment = evaluate(task, evidence)
        assert judgment.outcome == outcome, judgment.reason
        [look] = decode_probes(evidence)
        assert len(look.found or "") > 400_000


async def test_one_log_in_serves_many_episodes_until_the_site_forgets_it(
    host: BrowserHost, sites: WebArenaSites
) -> None:
    given = settings(sites)
    task, site = task_number(given, 6), WebArenaSite(given)
    for _ in range(2):
        await episode(host, site, task)
    assert sites.log_ins == {"shopping": 1}
    sites.sessions.clear()
    await episode(host, site, task)
    assert sites.log_ins == {"shopping": 2}


async def test_the_administration_is_entered_by_its_own_form(
    host: BrowserHost, sites: WebArenaSites, tmp_path: Path
) -> None:
    state = "./.auth/shopping_admin_state.json"
    entry = raw_task(sites=["shopping_admin"], storage_state=state, start_url="__SHOPPING_ADMIN__/dashboard")
    changes = settings(sites).model_dump(exclude={"webarena_tasks"})
    given = settings_for(tmp_path, entry, **changes)
    [task] = WebArenaTasks(given).tasks()
    evidence = await episode(host, WebArenaSite(given), task)
    assert evidence.final_url == f"{sites.addresses['shopping_admin']}/dashboard"
    assert sites.log_ins == {"shopping_admin": 1}


async def test_an_account_that_the_site_does_not_take_is_told_without_it(
    host: BrowserHost, sites: WebArenaSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_PASSWORD", "a-secret-word")
    given = settings(sites)
    with pytest.raises(
        EnvironmentFailed, match="did not take the account in WEB_USER and WEB_PASSWORD"
    ) as error:
        await episode(host, WebArenaSite(given), task_number(given, 0))
    assert "a-secret-word" not in str(error.value)
    assert USER not in str(error.value)


async def test_a_site_that_does_not_answer_is_told_without_the_account(
    host: BrowserHost, sites: WebArenaSites
) -> None:
    # nothing listens on port 1
    given = settings(sites, webarena_sites=sites.addresses | {"reddit": "http://127.0.0.1:1"})
    with pytest.raises(EnvironmentFailed, match="logging in to reddit at") as error:
        await episode(host, WebArenaSite(given), task_number(given, 9))
    assert USER not in str(error.value)


async def test_without_an_account_nobody_logs_in_and_helpers_leave_the_verdict_open(
    host: BrowserHost, sites: WebArenaSites
) -> None:
    given = settings(sites, webarena_accounts=dict.fromkeys(ACCOUNTS, ()))
    task = task_number(given, 7)
    evidence = await episode(host, WebArenaSite(given), task)
    judgment = evaluate(task, evidence)
    assert judgment.outcome == "undecided"
    assert "sites.webarena_accounts has no shopping_site_admin" in judgment.reason
    assert not sites.log_ins


async def test_a_log_from_elsewhere_reaches_neither_accounts_nor_resets(
    host: BrowserHost, sites: WebArenaSites
) -> None:
    given = settings(sites)
    with pytest.raises(EnvironmentFailed, match="webarena_accounts would be used as a log says"):
        await episode(host, WebArenaSite(given, trusted=False), task_number(given, 0))
    assert not sites.requests


@pytest.mark.parametrize(("when", "times"), [("per_episode", 2), ("per_batch", 1)])
async def test_a_site_is_reset_when_the_settings_say(
    host: BrowserHost, sites: WebArenaSites, tmp_path: Path, when: str, times: int
) -> None:
    reset = {"shopping": f"{sites.addresses['shopping']}/reset"}
    given = settings(sites, webarena_resets=when, webarena_reset=reset, webarena_concurrency=1)
    site, task = WebArenaSite(given, slots_folder=tmp_path), task_number(given, 0)
    for _ in range(2):
        await episode(host, site, task)
    assert sites.requests.count("shopping POST /reset") == times


async def test_a_reset_that_fails_ends_the_episode_before_it_begins(
    host: BrowserHost, sites: WebArenaSites
) -> None:
    given = settings(sites, webarena_resets="per_batch", webarena_reset={"shopping": "false"})
    with pytest.raises(EnvironmentFailed, match="the reset of shopping ended with 1"):
        await episode(host, WebArenaSite(given), task_number(given, 0))


async def test_a_place_is_given_back_with_the_episode(
    host: BrowserHost, sites: WebArenaSites, tmp_path: Path
) -> None:
    given = settings(sites, webarena_concurrency=1, webarena_patience_s=60.0)
    # two actors: each has a site of its own
    one, other = (WebArenaSite(given, slots_folder=tmp_path) for _ in range(2))
    task = task_number(given, 4)
    world = await host.open_world(one)
    await world.reset(task)
    hasty = WebArenaSite(given.model_copy(update={"webarena_patience_s": 0.3}), slots_folder=tmp_path)
    with pytest.raises(EnvironmentFailed, match="waiting for a place"):
        await episode(host, hasty, task)
    await world.close()
    await episode(host, other, task)


async def test_an_evaluation_plays_each_task_once_and_prints_success_per_site(
    sites: WebArenaSites, tmp_path: Path
) -> None:
    given = settings(sites, webarena_steps=1).model_dump(exclude_defaults=True)
    texts = {key: value if isinstance(value, str) else as_toml(value) for key, value in given.items()}
    named = [part for key, text in texts.items() for part in ("--set", f"sites.{key}={text}")]
    patient = {
        "page_timeout_s": 60,
        "action_timeout_s": 60,
        "generate_timeout_s": 240,
        "episode_timeout_s": 500,
    }
    named += [part for key, limit in patient.items() for part in ("--set", f"actors.{key}={limit}")]
    named += ["--set", "curriculum.lease_s=600"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from hindcast.app.cli import main; main()"),
        *("eval", "--suite", "webarena", "--json"),
        *("--family", "gitlab", "--family", "multi", *named),
        env={**os.environ, "HINDCAST_HOME": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    report = json.loads(said)
    assert (report["suite"], report["episodes"], report["rate"]) == ("webarena", 2, 0.0)
    by_site = report["by_task"]
    assert {site: by_site[site]["episodes"] for site in by_site} == {"gitlab": 1, "multi": 1}
    assert sites.log_ins == {"gitlab": 1, "reddit": 1}


@pytest.mark.parametrize(("window", "height"), [((1280, 720), 360), ((1280, 1024), 512)])
async def test_the_window_has_the_size_that_the_settings_say(
    host: BrowserHost, sites: WebArenaSites, window: tuple[int, int], height: int
) -> None:
    """WebArena and WebRL were evaluated with 1280 x 720; a picture of it is half as wide here."""
    given = settings(sites, webarena_window=window)
    world = await host.open_world(WebArenaSite(given))
    try:
        await world.reset(task_number(given, 0))
        picture = await world.picture()
        assert Image.open(BytesIO(picture.image)).size == (640, height)
    finally:
        await world.close()
