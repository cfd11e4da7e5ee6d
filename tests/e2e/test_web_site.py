"""A user's site in a real browser: logged in, reset, looked at; what fails is told without secrets; a person is heard."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.web.definition import task_of
from hindcast.actors.environments.web.entry import state_path
from hindcast.actors.environments.web.evaluators import evaluate
from hindcast.actors.environments.web.person import Person, PersonWorld, RecordingStopped, WatchedWindows
from hindcast.actors.environments.web.scripted import Script, act_out
from hindcast.actors.environments.web.site import WebSite
from hindcast.actors.environments.web.tasks import as_task
from hindcast.actors.environments.world import BrowserWorld
from hindcast.app.demonstrations.logins import save_login
from hindcast.core.domain.action import Action
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from servers.browser_site import PATIENT
from servers.notes_site import PASSWORD, RESET_KEY, USER, Notes, serving

pytestmark = pytest.mark.browser

STEPS: list[dict[str, str]] = [
    {"goto": "/login"},
    {"fill": "input[name=user]", "value": USER},
    {"fill": "input[name=password]", "value": "${NOTES_PASSWORD}"},
    {"click": "button"},
]
PATIENCE_S = 120.0
SHOWN_AFTER = "hindcast.actors.environments.web.entry.SIGNED_IN_MS"
"""Waited for to the end where nobody is logged in: shorter in tests."""


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[str, Notes]]:
    with serving() as (site, notes):
        yield site, notes


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES_PASSWORD", PASSWORD)
    monkeypatch.setenv("NOTES_RESET_KEY", RESET_KEY)


def task(site: str, *checks: dict[str, Any], **more: Any) -> Task:
    content = {
        "name": "t",
        "instruction": "Do it.",
        "start": f"{site}/",
        "login": {"steps": STEPS, "signed_in": "#who"},
        "checks": list(checks) or [{"of": "answer", "contains": ""}],
        **more,
    }
    return as_task(task_of(content), 0)


@asynccontextmanager
async def visit(
    host: BrowserHost, wanted: Task, states: Path, *, trusted: bool = True
) -> AsyncIterator[BrowserWorld]:
    world = BrowserWorld(host, WebSite(states, trusted=trusted), PATIENT)
    try:
        await world.reset(wanted)
        yield world
    finally:
        await world.close()


async def test_a_site_is_reset_logged_in_and_looked_at(running: tuple[str, Notes], tmp_path: Path) -> None:
    site, notes = running
    notes.notes.append(("left behind", "home"))
    header = {"authorization": "Bearer ${NOTES_RESET_KEY}"}
    looks = [
        ({"of": "text", "at": "/notes", "selector": "#notes .text", "exact": "call the plumber"}, "success"),
        ({"of": "count", "at": "/notes", "selector": "#notes li", "number": 1}, "success"),
        ({"of": "text", "selector": "h1", "exact": "Fieldnotes"}, "success"),
        ({"of": "text", "selector": ".missing", "contains": ""}, "failure"),
        ({"of": "script", "script": "document.title", "exact": "Fieldnotes"}, "success"),
        ({"of": "script", "script": "nothing.there", "exact": "x"}, "undecided"),
        ({"of": "value", "at": "/notes", "selector": "select", "exact": ""}, "success"),
        ({"of": "http", "address": "/login", "contains": "log in"}, "success"),
        ({"of": "http", "address": "http://127.0.0.1:1/", "contains": "x"}, "undecided"),
        ({"of": "url", "regex": "/$"}, "success"),
    ]
    wanted = task(
        site,
        *(check for check, _ in looks),
        resets="per_episode",
        reset={"url": f"{site}/reset", "headers": header},
        fingerprint="h1",
    )
    async with BrowserHost(PATIENT) as host:
        async with visit(host, wanted, tmp_path) as world:
            evidence = await world.finish("yes")
        assert len(evidence.probes["start"]) == 64
        for number, (check, outcome) in enumerate(looks):
            alone = task(site, check)
            probes = {"found": [evidence.probes["found"][number]]}
            found = evaluate(alone, type(evidence)(answer="yes", final_url=evidence.final_url, probes=probes))
            assert found.outcome == outcome, found.reason
        assert all(secret not in str(evidence) for secret in (PASSWORD, RESET_KEY))


async def test_what_fails_at_the_start_is_told_without_secrets(
    running: tuple[str, Notes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, _ = running
    broken = [
        (task(site, reset={"command": ["false"]}, resets="per_episode"), "ended with 1"),
        (task(site, reset={"command": ["/no/such"]}, resets="per_episode"), "did not start"),
        (
            task(site, reset={"url": f"{site}/reset?k=${{NOTES_PASSWORD}}"}, resets="per_episode"),
            "failed: 303",
        ),
        (task(site, login={"state": "gone", "signed_in": "#who"}), "there is no saved login 'gone'"),
        (task(site, start=f"{site}/nowhere"), "answered 404"),
        (
            task(site, login={"steps": [{"goto": "http://127.0.0.1:1/${NOTES_PASSWORD}"}]}),
            "step 0 of the login",
        ),
    ]
    async with BrowserHost(PATIENT) as host:
        for wanted, why in broken:
            with pytest.raises(EnvironmentFailed) as caught:
                async with visit(host, wanted, tmp_path):
                    pass
            assert why in str(caught.value)
            assert PASSWORD not in str(caught.value)
        with pytest.raises(EnvironmentFailed, match="asks for the secret NOTES_PASSWORD"):
            async with visit(host, task(site), tmp_path, trusted=False):
                pass
        monkeypatch.setenv("NOTES_PASSWORD", "wrong")
        monkeypatch.setattr(SHOWN_AFTER, 500.0)
        with pytest.raises(EnvironmentFailed, match=r"does not show '#who' .* password right"):
            async with visit(host, task(site), tmp_path):
                pass


async def test_a_saved_login_serves_until_it_expires(
    running: tuple[str, Notes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, notes = running

    async def at_once() -> None:
        return None

    kept = await save_login(
        f"{site}/login",
        name="notes",
        origins=(),
        steps=task_of({**task(site).goal, "instruction": "x"}).login.steps,  # type: ignore[union-attr]
        states=tmp_path,
        settings=PATIENT,
        headed=False,
        logged_in=at_once,
    )
    assert kept == state_path(tmp_path, "notes")
    assert kept.stat().st_mode & 0o77 == 0
    wanted = task(site, login={"state": "notes", "signed_in": "#who"})
    async with BrowserHost(PATIENT) as host:
        async with visit(host, wanted, tmp_path) as world:
            assert (await world.finish(None)).final_url == f"{site}/"
        notes.sessions.clear()
        monkeypatch.setattr(SHOWN_AFTER, 500.0)
        with pytest.raises(EnvironmentFailed, match="expired"):
            async with visit(host, wanted, tmp_path):
                pass


async def test_a_person_is_heard_and_nothing_happens_that_is_not_taken_down(
    running: tuple[str, Notes], tmp_path: Path
) -> None:
    site, notes = running
    before = len(notes.notes)
    wanted = task(site)
    async with BrowserHost(PATIENT) as host:
        watched = WatchedWindows(host)
        person = Person(watched, notify=lambda _: None)
        world = PersonWorld(BrowserWorld(watched, WebSite(tmp_path), PATIENT), person)
        try:
            observation = (await world.reset(wanted)).observation
            page = person.window.tab.page

            async def next_action() -> Action:
                async with asyncio.timeout(PATIENCE_S):
                    return await person.next(observation)

            async def click(selector: str) -> None:
                box = await page.locator(selector).first.bounding_box()
                assert box is not None
                await page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

            await click("text=Notes")
            assert page.url == f"{site}/"  # held back
            action = await next_action()
            assert action.name == "Click"
            observation = (await world.step(action)).observation
            assert page.url == f"{site}/notes"

            await page.goto(f"{site}/notes/new")  # as the address bar would
            assert await next_action() == Action(name="Goto", argument=f"{site}/notes/new")
            observation = (await world.step(Action(name="Goto", argument=page.url))).observation

            await click("input[name=text]")
            await page.keyboard.type("One, two")
            await page.keyboard.press("Enter")
            typed = await next_action()
            assert (typed.name, typed.argument) == ("Search", "One, two")
            assert len(notes.notes) == before
            observation = (await world.step(typed)).observation
            assert notes.notes[before:] == [("One, two", "home")]

            await page.go_back()
            assert (await next_action()).name == "Go_backward"
            observation = (await world.step(Action(name="Go_backward"))).observation

            await act_out(Script(answer="done"), person, start=site)
            assert await next_action() == Action(name="exit", argument="done")
        finally:
            await world.close()


async def test_a_password_ends_the_recording(running: tuple[str, Notes], tmp_path: Path) -> None:
    site, _ = running
    wanted = task(site, login={"steps": [{"goto": "/login"}]}, start=f"{site}/login")
    async with BrowserHost(PATIENT) as host:
        watched = WatchedWindows(host)
        person = Person(watched, notify=lambda _: None)
        world = PersonWorld(BrowserWorld(watched, WebSite(tmp_path), PATIENT), person)
        try:
            observation = (await world.reset(wanted)).observation
            page = person.window.tab.page
            await page.locator("input[name=password]").focus()
            await page.keyboard.type(PASSWORD)
            await page.keyboard.press("Enter")
            with pytest.raises(RecordingStopped, match="a password was typed"):
                async with asyncio.timeout(PATIENCE_S):
                    await person.next(observation)
        finally:
            await world.close()
