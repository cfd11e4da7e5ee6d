"""Runs in BrowserGym's own interpreter: plays one task at a time by orders on standard input, one line of JSON each.

    {"do": "reset", "id": gym id, "seed": number}   ->  the observation, with the goal
    {"do": "step", "calls": [calls of its dialect]} ->  the observation, with the sum of rewards; stops at the first error
    {"do": "end"}                                   ->  nothing: the process ends, as it does when its input closes

It imports only BrowserGym, the packages of the tasks and the standard library. The format is JSON because Python
includes it. BrowserGym's own output goes to standard error.
"""

import importlib
import json
import os
import sys
from typing import Any

MAX_NODES = 2000
INTERACTIVE = {
    "button", "link", "checkbox", "radio", "switch", "tab", "menuitem", "option", "textbox", "searchbox", "combobox",
    "slider", "spinbutton", "menuitemcheckbox", "menuitemradio", "treeitem", "listbox",
}  # fmt: skip


def visible_nodes(tree: dict[str, Any], extra: dict[str, Any]) -> list[dict[str, Any]]:
    """The visible nodes of an accessibility tree, in its order: role, name, value, states, bid, acts, depth."""
    nodes = tree.get("nodes", [])
    by_id = {node["nodeId"]: node for node in nodes}
    visible: list[dict[str, Any]] = []
    waiting = [(nodes[0]["nodeId"], 0)] if nodes else []
    while waiting and len(visible) < MAX_NODES:
        node_id, depth = waiting.pop()
        node = by_id.get(node_id)
        if node is None:
            continue
        node_reply = _visible_node(node, extra, depth)
        if node_reply is not None:
            visible.append(node_reply)
        child_depth = depth + (node_reply is not None)
        waiting += [(child, child_depth) for child in reversed(node.get("childIds", []))]
    return visible


def _visible_node(node: dict[str, Any], extra: dict[str, Any], depth: int) -> dict[str, Any] | None:
    role = node.get("role", {}).get("value", "")
    name = str(node.get("name", {}).get("value") or "").strip()
    bid = node.get("browsergym_id")
    extra_properties = extra.get(bid, {}) if bid else {}
    acts = bool(bid) and (role in INTERACTIVE or bool(extra_properties.get("clickable")))
    if node.get("ignored") or role in ("InlineTextBox", "RootWebArea", "none") or not (name or acts):
        return None
    if extra_properties.get("visibility") is not None and extra_properties["visibility"] < 0.5:
        return None
    states = {entry["name"]: entry.get("value", {}).get("value") for entry in node.get("properties", [])}
    return {
        "role": role,
        "name": name,
        "value": node.get("value", {}).get("value"),
        "checked": states.get("checked"),
        "disabled": bool(states.get("disabled")),
        "bid": bid,
        "acts": acts,
        "depth": depth,
    }


def observation_reply(observation: dict[str, Any]) -> dict[str, Any]:
    """The part of an observation that goes into a reply."""
    return {
        "goal": str(observation.get("goal") or ""),
        "url": str(observation.get("url") or ""),
        "tabs": [str(title) for title in observation.get("open_pages_titles", ())],
        "active": int(observation.get("active_page_index", [0])[0]),
        "error": str(observation.get("last_action_error") or ""),
        "nodes": visible_nodes(observation["axtree_object"], observation.get("extra_element_properties", {})),
    }


class Player:
    """One environment of BrowserGym."""

    def __init__(self) -> None:
        self._environment: Any = None

    def reset(self, order: dict[str, Any]) -> dict[str, Any]:
        """Create the task."""
        import gymnasium
        from browsergym.core.action.highlevel import HighLevelActionSet  # type: ignore[import-not-found]

        importlib.import_module("browsergym." + order["id"].split("/", 1)[1].split(".", 1)[0])
        self.close()
        calls = HighLevelActionSet(subsets=["chat", "infeas", "bid", "coord", "nav", "tab"])
        self._environment = gymnasium.make(
            order["id"], headless=True, action_mapping=calls.to_python_code, disable_env_checker=True
        )
        observation, _ = self._environment.reset(seed=order["seed"])
        return {**observation_reply(observation), "reward": 0.0, "ended": False}

    def step(self, order: dict[str, Any]) -> dict[str, Any]:
        """Execute calls, one after the other."""
        earned = 0.0
        observation: dict[str, Any] = {}
        ended = False
        for call in order["calls"]:
            observation, reward, terminated, truncated, _ = self._environment.step(call)
            earned += float(reward)
            ended = bool(terminated or truncated)
            if ended or observation.get("last_action_error"):
                break
        return {**observation_reply(observation), "reward": earned, "ended": ended}

    def close(self) -> None:
        """Close its browsers."""
        if self._environment is not None:
            self._environment.close()
            self._environment = None


def use_browser(path: str) -> None:
    """Make both of BrowserGym's launches start this browser; the launch of its chat takes no settings."""
    from playwright.sync_api import BrowserType

    launch = BrowserType.launch

    def launch_given(self: BrowserType, **options: Any) -> Any:
        return launch(self, **{"executable_path": path, **options})

    BrowserType.launch = launch_given  # type: ignore[method-assign]


def main() -> None:
    """Execute orders until the input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if os.environ.get("HINDCAST_BROWSER"):
        use_browser(os.environ["HINDCAST_BROWSER"])
    player = Player()
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "end":
            break
        try:
            reply = player.reset(order) if order["do"] == "reset" else player.step(order)
        except Exception as error:
            reply = {"failed": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
    player.close()


if __name__ == "__main__":
    main()
