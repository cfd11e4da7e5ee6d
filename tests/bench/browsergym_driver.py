"""Run by BrowserGym's own interpreter, never imported by ours: plays what it reads from standard input.

One line of JSON comes out: episodes, steps, won, wall_s and what an observation holds. Every part of it is BrowserGym's
own API; the one thing set from outside is which browser both of its launches start.
"""

import json
import os
import sys
import time
from typing import Any

orders = json.load(sys.stdin)
os.environ["MINIWOB_URL"] = orders["pages"]

import browsergym.miniwob  # type: ignore[import-not-found]  # noqa: E402, F401  (registers the tasks; reads the address)
import gymnasium  # noqa: E402
from driver import use_browser  # type: ignore[import-not-found]  # noqa: E402  (of the environment `browsergym`)

use_browser(orders["browser"])


def click(at: list[float]) -> str:
    """The action, in BrowserGym's simplest form: Python code with a page."""
    return f"page.mouse.click({at[0]!r}, {at[1]!r})"


def environment(family: str) -> Any:
    """Without any delay that can be switched off."""
    return gymnasium.make(
        f"browsergym/miniwob.{family}",
        headless=True,
        slow_mo=0,
        timeout=60_000,  # ms, its 5 s end a measurement on a busy machine
        pre_observation_delay=0,
        action_mapping=None,
        use_raw_page_output=orders["raw"],
        disable_env_checker=True,
    )


def size(part: Any) -> str:
    """How much there is of a part."""
    if hasattr(part, "shape"):
        return f"array {part.shape}, {part.nbytes} bytes"
    return f"{len(json.dumps(part, default=str))} bytes of JSON"


def main() -> None:
    """Play, count, tell."""
    environments: dict[str, Any] = {}
    steps = won = 0
    observation: dict[str, Any] = {}
    began = time.perf_counter()
    for play in orders["plays"]:
        family = play["family"]
        if family not in environments:
            environments[family] = environment(family)
        environments[family].reset(seed=play["seed"])
        reward = 0.0
        for at in play["clicks"]:
            observation, reward, ended, _, _ = environments[family].step(click(at))
            steps += 1
            if ended:
                break
        won += reward > 0
    wall_s = time.perf_counter() - began
    contents = {name: size(part) for name, part in observation.items() if name != "page"}
    for one in environments.values():
        one.close()
    tally = {"episodes": len(orders["plays"]), "steps": steps, "won": won, "wall_s": wall_s}
    sys.stdout.write(json.dumps({**tally, "contents": contents}) + "\n")


main()
