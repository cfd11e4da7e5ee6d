"""WebShop without a browser, for text agents: the same places, words and evidence, one page per step, no server.

Actions that need a window or a mouse are not actionable here. Typed text waits for the button or for Enter.
"""

import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from hindcast.actors.environments.base import EpisodeWorld, ResetResult, StepOutcome, WindowImage
from hindcast.actors.environments.snapshot import observe
from hindcast.actors.environments.webshop.evaluators import record_at
from hindcast.actors.environments.webshop.goals import WebshopGoal
from hindcast.actors.environments.webshop.shop import MAX_QUERY_CHARS, WebshopShop
from hindcast.actors.environments.webshop.tasks import ENVIRONMENT
from hindcast.actors.environments.webshop.views import (
    WebshopElement,
    WebshopLocation,
    WebshopView,
    address_of,
    location_at,
    view_of,
)
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Node, Observation, Page
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from hindcast.events.catalogue.episode import StepResult

_TAGS = {"heading": "h", "text": "p", "button": "button", "link": "a"}

Result = tuple[StepResult, str]
_DONE: Result = ("ok", "")


class WebshopText:
    """WebShop as an environment without a browser."""

    name = ENVIRONMENT

    def __init__(self, shop: WebshopShop) -> None:
        self._shop = shop

    def open_world(self) -> EpisodeWorld:
        """Open a world for one episode at a time."""
        return TextWorld(self._shop)


class TextWorld:
    """An `EpisodeWorld` whose state is the place, the typed text and the history."""

    def __init__(self, shop: WebshopShop) -> None:
        self._shop = shop
        self._goal: WebshopGoal | None = None
        self._history: list[WebshopLocation] = []
        self._at = 0
        self._typed = ""
        self._looked_at: frozenset[str] = frozenset()
        """Products whose pages were opened: upstream's text shows their links as clicked."""

    async def reset(self, task: Task) -> ResetResult:
        """Return the search page of the task's goal. Raises EnvironmentFailed when the task is about other products."""
        goal_fields = task.goal.get("wanted", {})
        goal = self._shop.goals.get(goal_fields.get("digest", ""))
        if goal is None or task.goal.get("shop") != self._shop.digest:
            raise EnvironmentFailed(
                f"task {task.id} was made from other data of WebShop's: use the same sites.webshop_items and "
                "sites.webshop_instructions for tasks and shop"
            )
        self._goal = goal
        self._history, self._at, self._typed = [WebshopLocation(goal=goal.digest)], 0, ""
        self._looked_at = frozenset()
        return ResetResult(instruction=task.instruction, observation=self._observe())

    async def step(self, action: Action | ParseFailure) -> StepOutcome:
        """Execute an action. An action that this page does not offer is a result and changes nothing."""
        began = time.perf_counter()
        if isinstance(action, ParseFailure):
            result: Result = "parse_failure", action.reason
        elif action.name == "exit":
            result = "exit", ""
        else:
            result = self._act(action)
        acted = time.perf_counter()
        observation = self._observe()
        return StepOutcome(
            result=result[0],
            detail=result[1],
            observation=observation,
            done=self._view().ended,
            act_ms=1000 * (acted - began),
            observe_ms=1000 * (time.perf_counter() - acted),
        )

    async def picture(self) -> WindowImage:
        """Return no image: the page is a text."""
        return WindowImage(missing="a page of text has no picture")

    async def finish(self, answer: str | None) -> Evidence:
        """Return what was bought as evidence."""
        location = self._location()
        assert self._goal is not None
        record = record_at(self._shop, location, self._goal)
        return Evidence(answer=answer, final_url=address_of(location), probes=msgspec.to_builtins(record))

    async def close(self) -> None:
        """Do nothing: the world holds nothing."""

    # ---- acting -----------------------------------------------------------------------------------------------------

    def _act(self, action: Action) -> Result:
        match action.name:
            case "Click" | "Type" | "Search" | "Press" if action.element is not None:
                return self._on_element(action)
            case "Press" if (action.argument or "").lower() in ("enter", "return"):
                return self._search(self._typed)
            case "Goto":
                return self._go_to(action.argument or "")
            case "Go_backward":
                return self._move_in_history(-1, "back")
            case "Go_forward":
                return self._move_in_history(1, "forward")
            case "Wait":
                return _DONE
            case _:
                return "not_actionable", f"{action.name} means nothing on a page of text"

    def _on_element(self, action: Action) -> Result:
        offered = dict(_offered(self._view()))
        element = offered.get(action.element or 0)
        if element is None:
            return "no_such_element", f"there is no element {action.element}"
        if action.name == "Click":
            if element.kind == "search":
                return _DONE
            if element.name == "search":
                return self._search(self._typed)
            assert element.to is not None
            return self._visit(element.to)
        if element.kind != "search":
            return "not_actionable", f"element {action.element} takes no text"
        if action.name == "Press":
            return self._search(self._typed) if action.argument in ("Enter", "Return") else _DONE
        self._typed = action.argument or ""
        return self._search(self._typed) if action.name == "Search" else _DONE

    def _search(self, keywords: str) -> Result:
        field = next((element for element in self._view().elements if element.kind == "search"), None)
        if field is None or field.to is None:
            return "not_actionable", "this page has no search field"
        return (
            self._visit(msgspec.structs.replace(field.to, keywords=keywords[:MAX_QUERY_CHARS]))
            if keywords.strip()
            else _DONE
        )

    def _go_to(self, address: str) -> Result:
        location = None if _has_host(address) else location_at(address)
        if location is None or view_of(self._shop, location) is None:
            return "navigation_blocked", f"{address[:200]} is no page of the shop"
        return self._visit(location)

    def _move_in_history(self, by: int, direction: str) -> Result:
        if not 0 <= self._at + by < len(self._history):
            return "not_actionable", f"there is no page to go {direction} to"
        self._at += by
        return _DONE

    def _visit(self, location: WebshopLocation) -> Result:
        self._history = [*self._history[: self._at + 1], location]
        self._at += 1
        self._typed = ""
        if location.kind == "item":
            self._looked_at |= {location.asin}
        return _DONE

    # ---- seeing -----------------------------------------------------------------------------------------------------

    def _location(self) -> WebshopLocation:
        if not self._history:
            raise EnvironmentFailed("The world was used before reset.")
        return self._history[self._at]

    def _view(self) -> WebshopView:
        view = view_of(self._shop, self._location())
        assert view is not None, "every visited place was one that the shop has"
        return view

    def _observe(self) -> Observation:
        view = self._view()
        page = page_of(view, address_of(self._location()), typed=self._typed, looked_at=self._looked_at)
        return observe(page, tabs=(view.title,))


def _has_host(address: str) -> bool:
    try:
        return bool(urlsplit(address).netloc)
    except ValueError:  # a policy may write anything
        return True


def page_of(
    view: WebshopView, address: str, *, typed: str = "", looked_at: frozenset[str] = frozenset()
) -> Page:
    """Render a view as the page that a policy reads, elements numbered from 1."""
    number = 0
    nodes = []
    for element in view.elements:
        acts = element.to is not None
        number += acts
        node = _node(element, number if acts else None, typed)
        if element.kind == "link" and element.text in looked_at:
            node = msgspec.structs.replace(node, attributes={"visited": "true"})
        nodes.append(node)
    return Page(url=address, title=view.title, nodes=tuple(nodes))


def _node(element: WebshopElement, number: int | None, typed: str) -> Node:
    if element.kind == "search":
        return Node(kind="input", tag="input", text=element.text, id=number, value=typed)
    if element.kind == "option":
        return Node(kind="radio", tag="input", text=element.text, id=number, checked=element.chosen)
    return Node(kind=element.kind, tag=_TAGS[element.kind], text=element.text, id=number)


def _offered(view: WebshopView) -> Iterator[tuple[int, WebshopElement]]:
    """Elements that can be acted upon, by their numbers."""
    return enumerate((element for element in view.elements if element.to is not None), start=1)
