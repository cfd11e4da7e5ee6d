"""Speaks as actors/environments/browsergym/driver.py does, without BrowserGym: a page whose second button gives a reward."""

import json
import subprocess
import sys
import time

BUTTON = {"value": None, "checked": None, "disabled": False, "depth": 0, "acts": True}


def seen(error: str = "", reward: float = 0.0, *, ended: bool = False) -> dict[str, object]:
    nodes = [
        {**BUTTON, "role": "button", "name": "Wrong", "bid": "a12"},
        {**BUTTON, "role": "button", "name": "Right", "bid": "a15"},
        {**BUTTON, "role": "textbox", "name": "Find", "bid": "b3", "value": "old"},
    ]
    return {
        "goal": "Press Right.",
        "url": "http://127.0.0.1/play",
        "tabs": ["Play"],
        "active": 0,
        "error": error,
        "nodes": nodes,
        "reward": reward,
        "ended": ended,
    }


def answer(order: dict[str, object], task: str, told: list[str]) -> object:
    if task.endswith(".fails"):
        return {"failed": "NameNotFound: Environment does not exist"}
    if order["do"] == "reset":
        return seen()
    calls = order["calls"]
    assert isinstance(calls, list)
    told += calls
    if calls == ['click("a12")']:
        return seen("ValueError: the element is covered\nand more")
    if calls == ['click("a15")']:
        return seen(reward=0.5)
    if calls[0].startswith("send_msg_to_user"):
        return seen(json.dumps(told), 0.25, ended=True)
    return seen()


task, told = "", list[str]()
for line in sys.stdin:
    order = json.loads(line)
    task = order.get("id", task)
    if task.endswith(".ends"):
        sys.exit("no browser is installed")
    if task.endswith(".hangs"):
        child = subprocess.Popen(["sleep", "600"])
        sys.stderr.write(f"{child.pid}\n")
        sys.stderr.flush()
        time.sleep(600)
    text = "what?" if task.endswith(".garbage") else json.dumps(answer(order, task, told))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
