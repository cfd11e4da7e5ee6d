"""BrowserGym behind its bridge: what is told to its process, what becomes of its pages and rewards, and of its faults."""

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from hindcast.actors.environments.browsergym import child as bridge
from hindcast.actors.environments.browsergym import world as worlds
from hindcast.actors.environments.browsergym.child import DriverReply, SeenNode
from hindcast.actors.environments.browsergym.driver import visible_nodes
from hindcast.actors.environments.browsergym.tasks import BrowsergymTasks, evaluate
from hindcast.actors.environments.browsergym.world import BrowsergymWorld, calls_of, page_of
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.evidence import Evidence
from hindcast.core.errors import EnvironmentFailed, SettingsError
from hindcast.core.settings.schema import Settings
from stories.curriculum_story import settings_of

STAND_IN = Path(__file__).parents[1] / "fakes" / "browsergym_stand_in.py"


def settings(**sites: Any) -> Settings:
    named = tuple(f"browsergym/play.{name}" for name in ("ok", "fails", "hangs", "garbage", "ends"))
    return settings_of(sites={"browsergym_python": sys.executable, "browsergym_tasks": named, **sites})


def world(of: Settings | None = None) -> BrowsergymWorld:
    return BrowsergymWorld(of or settings(), driver=STAND_IN)


TASKS = BrowsergymTasks(settings().sites)


async def test_an_episode_is_played_by_bids_and_its_rewards_are_the_evidence() -> None:
    task = TASKS.task("play.ok", 3)
    playing = world()
    try:
        start = await playing.reset(task)
        assert start.instruction == "Press Right."
        page = start.observation.page
        assert [(node.id, node.kind, node.text) for node in page.nodes] == [
            (1, "button", "Wrong"),
            (2, "button", "Right"),
            (3, "input", "Find"),
        ]
        assert start.observation.tabs == ("Play",)
        covered = await playing.step(Action(name="Click", element=1))
        assert (covered.result, covered.detail) == ("not_actionable", "ValueError: the element is covered")
        nowhere = await playing.step(Action(name="Click", element=9))
        assert nowhere.result == "no_such_element"
        unread = await playing.step(ParseFailure(reason="no call"))
        assert (unread.result, unread.detail) == ("parse_failure", "no call")
        assert (await playing.step(Action(name="Click", element=2))).result == "ok"
        assert (await playing.step(Action(name="Search", element=3, argument="mug"))).result == "ok"
        evidence = await playing.finish("42")
    finally:
        await playing.close()
    assert evidence.probes == {"reward": 0.75, "ended": True, "infeasible": False}
    assert playing._last_reply is not None
    reply_error = playing._last_reply.error
    assert (
        reply_error
        == '["click(\\"a12\\")", "click(\\"a15\\")", "fill(\\"b3\\", \\"mug\\")", "press(\\"b3\\", \\"Enter\\")", "send_msg_to_user(\\"42\\")"]'
    )
    assert (await playing.picture()).missing
    judgment = evaluate(task, evidence)
    assert (judgment.outcome, judgment.reward) == ("success", 0.75)


def test_the_verdict_is_that_of_the_reward_alone() -> None:
    task = TASKS.task("play.ok", 1)

    def judged(**probes: Any) -> tuple[str, float, str]:
        said = evaluate(task, Evidence(answer=None, final_url="", probes=probes))
        return said.outcome, said.reward, said.reason

    assert judged(reward=3.0, ended=True)[:2] == ("success", 1.0)
    assert judged(reward=0.0, ended=True) == ("failure", 0.0, "play.ok: BrowserGym's reward is 0")
    assert judged(reward=-1.0, ended=False) == ("failure", 0.0, "play.ok: the task was not brought to an end")
    assert judged()[0] == "undecided"


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("play.fails", "could not reset: NameNotFound"),
        ("play.garbage", "answered reset with something else"),
        ("play.ends", "process ended: no browser is installed"),
    ],
)
async def test_a_process_that_fails_abandons_the_episode_with_its_words(family: str, words: str) -> None:
    playing = world()
    with pytest.raises(EnvironmentFailed, match=words):
        await playing.reset(TASKS.task(family, 1))
    await playing.close()


@pytest.mark.process
async def test_a_process_that_hangs_is_killed_with_what_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "CLOSE_S", 0.5)
    playing = world()
    task = TASKS.task("play.hangs", 1)
    monkeypatch.setattr(worlds, "RESET_S", 6.0)
    with pytest.raises(EnvironmentFailed, match="did not answer reset within 6 s"):
        await playing.reset(task)
    assert playing._child is not None
    started = psutil.Process(playing._child._process.pid)
    family = [started, *started.children(recursive=True)]
    await playing.close()
    gone, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
    assert started in gone


async def test_a_python_that_is_not_there_is_named() -> None:
    with pytest.raises(EnvironmentFailed, match=r"sites\.browsergym_python is '/nowhere/python'"):
        await world(settings(browsergym_python="/nowhere/python")).reset(TASKS.task("play.ok", 1))


def test_tasks_are_those_of_the_settings() -> None:
    assert TASKS.families()[:2] == ("play.ok", "play.fails")
    task = TASKS.task("play.ok", 7)
    assert (task.goal, task.seed, task.max_steps) == ({"id": "browsergym/play.ok"}, 7, 20)
    with pytest.raises(SettingsError, match=r"'play\.other' is not among"):
        TASKS.task("play.other", 1)
    for wrong in ((), ("miniwob.click-test",)):
        with pytest.raises(SettingsError, match=r"sites\.browsergym_tasks"):
            BrowsergymTasks(settings(browsergym_tasks=wrong).sites)


def test_what_browsergym_has_no_function_for_takes_two_calls() -> None:
    assert calls_of(Action(name="New_tab", argument="http://a/"), None) == ["new_tab()", 'goto("http://a/")']
    assert calls_of(Action(name="Wait"), None) == ["noop(1000)"]
    assert calls_of(Action(name="Press", element=2, argument="Enter"), "a7") == ['press("a7", "Enter")']
    assert calls_of(Action(name="Right Click", element=2), "7") == ['click("7", button="right")']


def ax(number: str, role: str, name: str = "", *children: str, **more: Any) -> dict[str, Any]:
    return {
        "nodeId": number,
        "role": {"value": role},
        "name": {"value": name},
        "childIds": list(children),
        **more,
    }


def test_an_accessibility_tree_becomes_what_is_shown_in_its_order() -> None:
    tree = {
        "nodes": [
            ax("1", "RootWebArea", "Page", "2", "5", "8"),
            ax(
                "5",
                "checkbox",
                "Gift",
                browsergym_id="6",
                properties=[{"name": "checked", "value": {"value": "true"}}],
            ),
            ax("2", "generic", "", "3", "4", browsergym_id="1"),
            ax("3", "button", "Buy", "7", browsergym_id="2"),
            ax("7", "StaticText", "Buy"),
            ax("4", "link", "Hidden", browsergym_id="3"),
            ax("8", "generic", "Card", browsergym_id="9", ignored=False),
            ax("9", "button", "of nobody", browsergym_id="10"),
        ]
    }
    extra = {"2": {"visibility": 1.0}, "3": {"visibility": 0.0}, "9": {"visibility": 1.0, "clickable": True}}
    shown = visible_nodes(tree, extra)
    assert [(one["role"], one["name"], one["bid"], one["acts"], one["depth"]) for one in shown] == [
        ("button", "Buy", "2", True, 0),
        ("StaticText", "Buy", None, False, 1),
        ("checkbox", "Gift", "6", True, 0),
        ("generic", "Card", "9", True, 0),
    ]
    assert shown[2]["checked"] == "true"
    assert visible_nodes({"nodes": []}, {}) == []


def test_a_page_numbers_what_can_be_acted_upon_and_says_nothing_twice() -> None:
    def node(role: str, name: str, bid: str | None = None, **more: Any) -> SeenNode:
        given = {
            "value": None,
            "checked": None,
            "disabled": False,
            "acts": bid is not None,
            "depth": 0,
            **more,
        }
        return SeenNode(role=role, name=name, bid=bid, **given)

    nodes = (
        node("button", "Buy", "2"),
        node("StaticText", "Buy"),
        node("checkbox", "Gift", "6", checked="true"),
        node("textbox", "Name", "7", value="Ann"),
        node("StaticText", "Ann"),
        node("button", "Off", "8", disabled=True),
        node("generic", "Card  of\nsorts", "9"),
        node("StaticText", "x" * 300),
    )
    seen = DriverReply(
        goal="", url="http://a/", tabs=("A",), active=0, error="", nodes=nodes, reward=0.0, ended=False
    )
    page, bids = page_of(seen)
    assert bids == {1: "2", 2: "6", 3: "7", 4: "9"}
    assert [(one.id, one.kind, one.text[:12], one.value, one.checked) for one in page.nodes] == [
        (1, "button", "Buy", None, None),
        (2, "checkbox", "Gift", None, True),
        (3, "input", "Name", "Ann", None),
        (None, "button", "Off", None, None),
        (4, "clickable", "Card of sort", None, None),
        (None, "text", "xxxxxxxxxxxx", None, None),
    ]
    assert (page.title, page.truncated, len(page.nodes[-1].text)) == ("A", False, 200)
