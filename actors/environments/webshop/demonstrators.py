"""Scripted shoppers: one knows the product that the goal was made from; the other is WebShop's rule agent.

The rule agent (arXiv 2207.01206, section 5) searches for the instruction and buys the first result.
"""

from collections.abc import Sequence

from hindcast.actors.environments.webshop.goals import WebshopGoal
from hindcast.actors.environments.webshop.shop import FAMILIES
from hindcast.actors.environments.webshop.views import WebshopLocation, location_at
from hindcast.core.domain.action import Action
from hindcast.core.domain.observation import Node, Observation, Page
from hindcast.core.domain.task import Task
from hindcast.core.structs import convert

PAGES = 2
"""Pages of results that are examined before the title is searched for instead."""
TITLE_WORDS = 12


def demonstrate(task: Task, instruction: str, observation: Observation, earlier: Sequence[Action]) -> Action:
    """The next action of a shopper who finds the goal's product, chooses its options and buys it.

    Where only the server knows the goal, the next action of the rule agent.
    """
    if "wanted" not in task.goal:
        return buy_first(task, instruction, observation, earlier)
    goal = convert(task.goal["wanted"], WebshopGoal)
    page = observation.page
    location = _location(page)
    if location.kind == "results":
        return _choose_result(page, location, goal)
    if location.kind == "item" and location.asin == goal.asin:
        return _choose_options(page, goal, earlier)
    if (field := _field(page)) is None:
        return _press(page, "Back to Search")
    searches = sum(action.name == "Search" for action in earlier)
    words = (
        (*goal.attributes, goal.query, *goal.options) if searches == 0 else goal.title.split()[:TITLE_WORDS]
    )
    return Action(name="Search", argument=" ".join(words), element=field)


def buy_first(task: Task, instruction: str, observation: Observation, earlier: Sequence[Action]) -> Action:
    """The rule agent's next action."""
    page = observation.page
    if (field := _field(page)) is not None and not any(action.name == "Search" for action in earlier):
        return Action(name="Search", argument=instruction, element=field)
    link = next((node for node in page.nodes if node.kind == "link" and node.id is not None), None)
    if link is not None:
        return Action(name="Click", element=link.id)
    return _press(page, "Buy Now")


def _choose_result(page: Page, location: WebshopLocation, goal: WebshopGoal) -> Action:
    links = [node for node in page.nodes if node.kind == "link" and node.text == goal.asin]
    if links:
        return Action(name="Click", element=links[0].id)
    if location.page < PAGES and _button(page, "Next >") is not None:
        return _press(page, "Next >")
    return _press(page, "Back to Search")


def _choose_options(page: Page, goal: WebshopGoal, earlier: Sequence[Action]) -> Action:
    values = {node.text: node for node in page.nodes if node.kind == "radio"}
    for option in goal.options:
        node = values.get(option)
        if node is not None and not node.checked:
            return Action(name="Click", element=node.id)
        if node is None and (not earlier or earlier[-1].name != "Scroll Down"):
            return Action(name="Scroll Down")
    return _press(page, "Buy Now")


def _press(page: Page, text: str) -> Action:
    button = _button(page, text)
    return Action(name="Wait") if button is None else Action(name="Click", element=button.id)


def _button(page: Page, text: str) -> Node | None:
    return next((node for node in page.nodes if node.kind == "button" and node.text == text), None)


def _field(page: Page) -> int | None:
    return next((node.id for node in page.nodes if node.kind == "input"), None)


def _location(page: Page) -> WebshopLocation:
    return location_at(page.url) or WebshopLocation(goal="")


DEMONSTRATORS = dict.fromkeys(FAMILIES, demonstrate)
"""Family -> demonstrate(task, instruction, observation, earlier actions) -> next action."""
