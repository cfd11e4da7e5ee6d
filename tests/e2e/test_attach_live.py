"""Consumers attached to a running system: one keeps up, one crashes, one is suspended, one is slow; the run goes on."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from system import ROOT, Home, settings

from app.attach.running import store_url
from app.attach.store import Store
from app.runs import open_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RUN = "watched"
END_S = 240


def attach(home: Home, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", "from app.cli import main; main()", "attach", *arguments, "--run", RUN],
        cwd=ROOT / "tests",
        env={**home.environment, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows(home: Home) -> dict[str, Any]:
    return {row["name"]: row for row in home.json("consumer", "list", "--run", RUN)["consumers"]}


def ledger(home: Home, name: str) -> list[int]:
    store = Store(store_url(open_run(RUN, home=home.folder), name))
    try:
        with store.writing() as db:
            return list(db.scalars(text("SELECT position FROM ledger ORDER BY rowid")))
    finally:
        store.close()


def test_a_run_does_not_notice_who_is_attached(tmp_path: Path) -> None:
    home = Home(tmp_path)
    system = home.start("--run", RUN, *settings())
    attached: list[subprocess.Popen[str]] = []
    try:
        attached += [
            attach(home, "attached_consumers:ledger", "--name", "quick", "--from", "live"),
            attach(home, "attached_consumers:slow", "--name", "suspended"),
            attach(home, "attached_consumers:slow", "--name", "slow", SLOW_S="1"),
            attach(home, "attached_consumers:poisoned", "--name", "crashed", "--retries", "0", POISON="10"),
            attach(home, "app.examples.success_watcher:consumer", WATCH_EPISODES="4", WATCH_UNDER="1.1"),
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
        assert [home.restarts(f"{role}.1") for role in ("bus", "actor", "learner", "projector")] == [0] * 4
    finally:
        for process in attached:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        said = [process.communicate(timeout=END_S)[0] for process in attached]
        assert home.stop(system) == 0
    assert "n=4" in said[-1], "the success watcher said nothing"
    for name in ("quick", "suspended"):
        end = attach(home, "attached_consumers:ledger", "--name", name, "--until", "end", "--json")
        out, err = end.communicate(timeout=END_S)
        assert end.returncode == 0, err
        taken = ledger(home, name)
        assert taken == list(range(taken[0], taken[-1] + 1))
        assert f'"position":{taken[-1]},' in out
