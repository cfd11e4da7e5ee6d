"""An episode of a BrowserGym task: our actions as its calls, its accessibility tree as our page, its reward as evidence.

Each world has its own process (driver.py), from reset to close. Every observation numbers elements anew. The world keeps
the `bid` of each number, and refuses other numbers without asking.
"""

import time
from pathlib import Path

import miniwob

from hindcast.actors.environments.base import EpisodeWorld, ResetResult, StepOutcome, WindowImage
from hindcast.actors.environments.browsergym.child import DRIVER, DriverProcess, DriverReply, SeenNode
from hindcast.actors.environments.browsergym.tasks import ENVIRONMENT
from hindcast.actors.environments.chromium import find_browser
from hindcast.actors.environments.snapshot import LIMITS, observe
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Node, Observation, Page
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.grammar.dialects import INFEASIBLE, write_browsergym
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue.episode import StepResult

KINDS = {
    "link": "link",
    "button": "button",
    "checkbox": "checkbox",
    "switch": "checkbox",
    "radio": "radio",
    "textbox": "input",
    "searchbox": "input",
    "spinbutton": "input",
    "combobox": "select",
    "heading": "heading",
    "image": "image",
    "img": "image",
    "StaticText": "text",
}
"""Role -> kind; other roles are `clickable` if they can be acted upon, else `text`."""
TAGS = {"link": "a", "button": "button", "heading": "h", "image": "img", "text": "p", "clickable": "div"}


def page_of(reply: DriverReply) -> tuple[Page, dict[int, str]]:
    """Return the page, and the `bid` of each of its numbers."""
    nodes: list[Node] = []
    bids: dict[int, str] = {}
    spoken: tuple[str, ...] = ()
    for node in reply.nodes:
        if len(nodes) == LIMITS["nodes"]:
            break
        if node.role == "StaticText" and node.name in spoken:
            continue  # the text of a link, button or field appears below it again
        number = len(bids) + 1 if node.acts and node.bid and not node.disabled else None
        if number is not None and node.bid:
            bids[number] = node.bid
        nodes.append(_node(node, number))
        spoken = (node.name, str(node.value))
    title = reply.tabs[reply.active] if 0 <= reply.active < len(reply.tabs) else ""
    page = Page(
        url=reply.url,
        title=_truncate(title),
        nodes=tuple(nodes),
        truncated=len(reply.nodes) > LIMITS["nodes"],
    )
    return page, bids


def _node(node: SeenNode, number: int | None) -> Node:
    kind = KINDS.get(node.role, "clickable" if node.acts else "text")
    field = kind in ("input", "select")
    return Node(
        kind=kind,
        tag=TAGS.get(kind, kind if kind == "select" else "input"),
        text=_truncate(node.name),
        id=number,
        value=_truncate("" if node.value is None else str(node.value)) if field else None,
        checked=str(node.checked).lower() == "true" if kind in ("checkbox", "radio") else None,
        disabled=node.disabled,
        depth=node.depth,
    )


def _truncate(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LIMITS["text"] else text[: LIMITS["text"] - 1] + "…"


RESET_S = 90.0
"""Time limit for starting Python, BrowserGym and its two browsers; 3 s on an idle machine."""
STEP_SLACK_S = 15.0
"""Added to the action's limit: BrowserGym's own limits within a step apply first."""
WAIT_MS = 1000
PAGES = Path(miniwob.__file__).parent / "html" / "miniwob"


class Browsergym:
    """BrowserGym as an environment that brings its own browser."""

    name = ENVIRONMENT

    def __init__(self, settings: Settings, *, driver: Path = DRIVER) -> None:
        self._settings = settings
        self._driver = driver

    def open_world(self) -> EpisodeWorld:
        """Open a world for one episode at a time."""
        return BrowsergymWorld(self._settings, driver=self._driver)


class BrowsergymWorld:
    """An `EpisodeWorld` played by BrowserGym in its own process."""

    def __init__(self, settings: Settings, *, driver: Path) -> None:
        self._settings = settings
        self._driver = driver
        self._limit_s = settings.actors.page_timeout_s + STEP_SLACK_S
        self._child: DriverProcess | None = None
        self._bids: dict[int, str] = {}
        self._reward = 0.0
        self._ended = False
        self._last_reply: DriverReply | None = None

    async def reset(self, task: Task) -> ResetResult:
        """Start the process and the task. Raises EnvironmentFailed."""
        await self.close()
        variables = {
            "MINIWOB_URL": PAGES.as_uri() + "/"
        }  # a variable in the user's environment takes precedence
        browser = find_browser(self._settings.actors.browser_path)
        self._child = await DriverProcess.start(
            self._settings.sites.browsergym_python,
            driver=self._driver,
            variables=variables | ({"HINDCAST_BROWSER": browser} if browser else {}),
        )
        self._reward, self._ended = 0.0, False
        reply = await self._child.ask(
            {"do": "reset", "id": task.goal["id"], "seed": task.seed}, limit_s=RESET_S
        )
        return ResetResult(instruction=task.instruction or reply.goal, observation=self._observe(reply))

    async def step(self, action: Action | ParseFailure) -> StepOutcome:
        """Execute an action. Raises EnvironmentFailed where BrowserGym does not answer."""
        began = time.perf_counter()
        result, detail = await self._act(action)
        acted = time.perf_counter()
        assert self._last_reply is not None
        observation = self._observe(self._last_reply)
        return StepOutcome(
            result=result,
            detail=detail,
            observation=observation,
            done=self._ended,
            act_ms=1000 * (acted - began),
            observe_ms=1000 * (time.perf_counter() - acted),
        )

    async def picture(self) -> WindowImage:
        """Return no image: the browser belongs to BrowserGym."""
        return WindowImage(missing="BrowserGym's browser is not photographed")

    async def finish(self, answer: str | None) -> Evidence:
        """Send the answer to the task and return its reward as evidence."""
        if answer is not None and not self._ended:
            await self._do([write_browsergym(Action(name="exit", argument=answer))])
        assert self._last_reply is not None
        probes = {"reward": self._reward, "ended": self._ended, "infeasible": answer == INFEASIBLE}
        return Evidence(answer=answer, final_url=self._last_reply.url, probes=probes)

    async def close(self) -> None:
        """End the process. Never raises, bounded in time."""
        child, self._child = self._child, None
        if child is not None:
            await child.close()

    async def _act(self, action: Action | ParseFailure) -> tuple[StepResult, str]:
        if isinstance(action, ParseFailure):
            return "parse_failure", action.reason
        if action.name == "exit":
            return "exit", ""
        bid = None if action.element is None else self._bids.get(action.element)
        if action.element is not None and bid is None:
            return "no_such_element", f"element {action.element} is not on the page that was shown"
        error = await self._do(calls_of(action, bid))
        return ("not_actionable", error.splitlines()[0][:300]) if error else ("ok", "")

    async def _do(self, calls: list[str]) -> str:
        """Execute calls; returns BrowserGym's error, or an empty text."""
        if self._child is None:
            raise EnvironmentFailed("The world was used before reset or after close.")
        self._last_reply = await self._child.ask({"do": "step", "calls": calls}, limit_s=self._limit_s)
        self._reward += self._last_reply.reward
        self._ended = self._ended or self._last_reply.ended
        return self._last_reply.error

    def _observe(self, reply: DriverReply) -> Observation:
        self._last_reply = reply
        page, self._bids = page_of(reply)
        return observe(page, tabs=reply.tabs, active_tab=reply.active)


def calls_of(action: Action, bid: str | None) -> list[str]:
    """Translate an action to BrowserGym's calls; an action without a function of its own takes two."""
    if action.name == "Search":
        return [
            write_browsergym(Action(name="Type", element=0, argument=action.argument), bid=bid),
            write_browsergym(Action(name="Press", element=0, argument="Enter"), bid=bid),
        ]
    if action.name == "New_tab" and action.argument:
        goto = Action(name="Goto", argument=action.argument)
        return [write_browsergym(Action(name="New_tab")), write_browsergym(goto)]
    if action.name == "Wait":
        return [f"noop({WAIT_MS})"]
    return [write_browsergym(action, bid=bid)]
