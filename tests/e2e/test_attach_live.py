"""A running system with consumers attached: one keeps up, one crashes, one is suspended, one is slow; the run goes on.

Then somebody cancels an episode, pauses the run, lets it go on and drains it, from the terminal and from the page.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import text

from hindcast.app.attach.attachment import store_url
from hindcast.app.attach.store import ConsumerStore
from hindcast.app.runs.runs import open_run
from hindcast.events.catalogue import ControlApplied, ControlRequested, EpisodeCancelled, EpisodeStarted
from hindcast.events.envelope import Recorded
from hindcast.events.log.reader import read
from hindcast.storage.readmodel.episode_queries import list_episodes
from processes.system import ROOT, START_S, Home, settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.broker, pytest.mark.browser]

RUN = "watched"
END_S = 240


def attach(home: Home, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from hindcast.app.cli import main; main()",
            "attach",
            *arguments,
            "--run",
            RUN,
        ],
        cwd=ROOT / "tests",
        env={**home.environment, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows(home: Home) -> dict[str, Any]:
    return {row["name"]: row for row in home.json("consumer", "list", "--run", RUN)["consumers"]}


def ledger(home: Home, name: str) -> list[int]:
    store = ConsumerStore(store_url(open_run(RUN, home=home.folder), name))
    try:
        with store.writing() as db:
            return list(db.scalars(text("SELECT position FROM ledger ORDER BY rowid")))
    finally:
        store.close()


def recordeds(home: Home) -> list[Recorded]:
    async def collect() -> list[Recorded]:
        async with open_run(RUN, home=home.folder).connect_log() as log:
            return [recorded async for recorded in read(log)]

    return asyncio.run(collect())


def open_episodes(home: Home, *states: str) -> list[str]:
    """What the read model says is in one of these states, the newest first."""
    model = open_run(RUN, home=home.folder).read_model()
    try:
        with model.reading() as connection:
            return [
                one.episode for state in states for one in list_episodes(connection, state=state, limit=50)
            ]
    finally:
        model.close()


class LivePage:
    """The page of the run, as a visitor without a browser has it."""

    def __init__(self, home: Home) -> None:
        self._base, _, token = home.json("page", "--address")["address"].partition("/?token=")
        self._headers = {"Authorization": f"Bearer {token}"}

    def overview(self) -> dict[str, Any]:
        with self._get(f"/{RUN}/overview.json") as answer:
            return dict(json.load(answer)["summary"])

    def _get(self, path: str) -> Any:
        request = urllib.request.Request(f"{self._base}{path}", headers=self._headers)
        return urllib.request.urlopen(request, timeout=120)

    def send(self, **said: str) -> None:
        """The form for it; raises unless the page shows the run afterwards."""
        with self._get(f"/{RUN}/") as answer:
            shown = answer.read().decode()
        assert f'value="{said["command"]}"' in shown, "there is no such button"
        word = shown.split('name="form" value="')[1].split('"')[0]
        data = urlencode({"form": word, **said}).encode()
        request = urllib.request.Request(
            f"{self._base}/{RUN}/control", data=data, headers={"Origin": self._base, **self._headers}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert answer.status == 200


def pause_and_cancel(home: Home) -> None:
    """Pause while episodes wait, and cancel one of them; where all were begun meanwhile, let it go on and try again."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        home.wait_for("episodes to wait", lambda: len(open_episodes(home, "requested")) > 4)
        assert home.json("ctl", "pause", "--run", RUN, "--author", "me", "--reason", "lunch")["works"]
        home.wait_for("what was begun to end", lambda: not open_episodes(home, "started"))
        for episode in open_episodes(home, "requested")[:1]:
            home.json("ctl", "cancel", episode, "--run", RUN, "--author", "me", "--reason", "not that one")
            home.wait_for(
                "its end", lambda one=episode: one not in open_episodes(home, "requested", "started")
            )
            if episode in open_episodes(home, "cancelled"):
                return
        home.json("ctl", "resume", "--run", RUN, "--author", "me")
    raise AssertionError("no episode waited at any pause")


def control(home: Home) -> None:
    """Everything that a person can ask of a run while it goes on."""
    page = LivePage(home)
    pause_and_cancel(home)
    home.wait_for("the page to say so", lambda: page.overview()["pauses"] == {"me": "lunch"})
    page.send(command="resume", of="me")
    home.wait_for("the page to say so", lambda: page.overview()["pauses"] == {})
    home.wait_for("the next to begin", lambda: open_episodes(home, "started"))

    page.send(command="pause", reason="dinner")
    home.wait_for("the page to say so", lambda: [*page.overview()["pauses"].values()] == ["dinner"])
    (author,) = page.overview()["pauses"]
    home.json("ctl", "resume", "--run", RUN, "--author", author)
    home.wait_for("the page to say so", lambda: page.overview()["pauses"] == {})

    page.send(command="drain", reason="from the page")
    # the first is answered before the next is asked: two that come together are answered together
    home.wait_for("that to be done", lambda: drains(recordeds(home)))
    home.wait_for("nothing to be left", lambda: not open_episodes(home, "requested", "started"))
    home.json("ctl", "drain", "--run", RUN, "--author", "me", "--reason", "from the terminal")
    home.wait_for("both to be done", lambda: len(drains(recordeds(home))) == 2)


def drains(log: list[Recorded]) -> list[int]:
    """Where the curriculum says that it has drained the run."""
    return [
        one.position for one in log if isinstance(one.fact, ControlApplied) and one.fact.command == "drain"
    ]


def check_control(log: list[Recorded]) -> None:
    """What was asked stands in the log with who asked and why, and what came of it after it."""
    asked = [(one.position, one.fact) for one in log if isinstance(one.fact, ControlRequested)]
    told = [(fact.command, fact.reason) for _, fact in asked if fact.command != "cancel"]
    assert told[0] == ("pause", "lunch")
    assert told[-5:] == [
        ("resume", ""),
        ("pause", "dinner"),
        ("resume", ""),
        ("drain", "from the page"),
        ("drain", "from the terminal"),
    ]
    cancels = {fact.arguments["episode"]: at for at, fact in asked if fact.command == "cancel"}
    gone = {one.fact.episode: one.position for one in log if isinstance(one.fact, EpisodeCancelled)}
    assert any(gone.get(episode, 0) > at for episode, at in cancels.items())
    resumed, drained = asked[-5][0], asked[-2][0]
    begun = [one.position for one in log if isinstance(one.fact, EpisodeStarted)]
    assert any(resumed < position < drained for position in begun)
    assert drained < drains(log)[0]


def test_a_run_does_not_notice_who_is_attached_and_heeds_who_controls_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    system = home.start("--run", RUN, *settings({"actors.contexts": "2"}))
    attached: list[subprocess.Popen[str]] = []
    try:
        attached += [
            attach(home, "attached_consumers:ledger", "--name", "quick", "--from", "live"),
            attach(home, "attached_consumers:slow", "--name", "suspended"),
            attach(home, "attached_consumers:slow", "--name", "slow", SLOW_S="1"),
            attach(home, "attached_consumers:poisoned", "--name", "crashed", "--retries", "0", POISON="10"),
            attach(
                home, "hindcast.app.examples.success_watcher:consumer", WATCH_EPISODES="4", WATCH_UNDER="1.1"
            ),
        ]
        home.wait_for(
            "the second to begin", lambda: (rows(home).get("suspended", {}).get("position") or 0) > 0
        )
        os.kill(attached[1].pid, signal.SIGSTOP)
        home.wait_for("two updates", lambda: home.json("run", "show", RUN)["updates"] >= 2)

        listed = rows(home)
        states = {name: row["state"] for name, row in listed.items()}
        assert {states[name] for name in ("projector", "learner", "curriculum", "actor")} == {"running"}, (
            states
        )
        assert {"episodes", "verdicts"} <= set(states)
        assert (states["quick"], states["suspended"], states["crashed"]) == ("running", "stalled", "failed")
        assert "position 10" in listed["crashed"]["detail"]
        assert listed["slow"]["lag_events"] > listed["quick"]["lag_events"]
        assert listed["slow"]["lag_s"] > 0
        assert all(row["position"] is not None for row in listed.values()), listed

        view = home.json("watch", RUN, "--once")
        assert view["up"]
        assert view["learner"]["updates"] >= 2
        assert [actor["name"] for actor in view["actors"]] == ["actor.1"]
        assert view["bottleneck"]
        assert {consumer["name"] for consumer in view["consumers"]} >= set(states)
        assert all(rate["low"] <= rate["rate"] <= rate["high"] for rate in view["success"])
        control(home)
        assert [home.restarts(f"{role}.1") for role in ("bus", "actor", "learner", "projector")] == [0] * 4
    finally:
        for process in attached:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        said = [process.communicate(timeout=END_S)[0] for process in attached]
        assert home.stop(system) == 0
    check_control(recordeds(home))
    assert "n=4" in said[-1], "the success watcher said nothing"
    for name in ("quick", "suspended"):
        end = attach(home, "attached_consumers:ledger", "--name", name, "--until", "end", "--json")
        out, err = end.communicate(timeout=END_S)
        assert end.returncode == 0, err
        taken = ledger(home, name)
        assert taken == list(range(taken[0], taken[-1] + 1))
        assert f'"position":{taken[-1]},' in out
