"""A tiny environment as a plugin: a desk with a counter, and a shelf with a number of books to count.

Two families: `count` asks how many books the shelf has, `press` asks for presses of the desk's button.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from playwright.async_api import Page as BrowserPage

from hindcast.actors.environments.base import Answers, Demonstrate, ResetSemantics
from hindcast.actors.environments.plugin import Environment, SitePlaces, options_of
from hindcast.api import Action, Evidence, Judgment, Observation, SettingsError, Task
from hindcast.core.settings.schema import Settings

PAGES = Path(__file__).parent
FAMILIES = {
    "count": "How many books are on the shelf? Answer with the number.",
    "press": "Press 'Add one' {} times.",
}


class QuizOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`sites.options.quiz`."""

    largest: int = 4
    """Largest number that a task asks for."""


class QuizTasks:
    """Tasks by family and seed."""

    resets: ResetSemantics = "per_episode"

    def __init__(self, name: str, options: QuizOptions) -> None:
        self.name = name
        self._largest = options.largest

    def families(self) -> tuple[str, ...]:
        """Names of the families."""
        return tuple(FAMILIES)

    def usual(self) -> tuple[str, ...]:
        """All families."""
        return self.families()

    def task(self, family: str, seed: int) -> Task:
        """The task of a family and seed. Raises SettingsError for an unknown family."""
        if family not in FAMILIES:
            raise SettingsError(f"{self.name} has no family {family!r}; it has: {', '.join(FAMILIES)}")
        number = Random(seed).randint(1, self._largest)
        return Task(
            environment=self.name,
            family=family,
            seed=seed,
            instruction=FAMILIES[family].format(number),
            goal={"number": number},
            max_steps=self._largest + 3,
        )


class QuizSite:
    """The two pages on disk; everything that an episode changes is in its page."""

    def __init__(self, name: str) -> None:
        self.name = name

    def origins(self, task: Task) -> tuple[str, ...]:
        """The folder of the pages."""
        return (PAGES.as_uri(),)

    async def enter(self, page: BrowserPage, task: Task) -> str:
        """Load the desk. Returns the instruction."""
        await page.goto(f"{(PAGES / 'desk.html').as_uri()}#{task.goal['number']}")
        return task.instruction

    async def probe(self, page: BrowserPage, task: Task) -> dict[str, Any]:
        """The count on the desk; None on the shelf."""
        return {"count": await page.evaluate("document.getElementById('count')?.textContent")}

    async def leave(self, task: Task) -> None:
        """Do nothing: the site holds nothing."""


def count_books(task: Task, instruction: str, observation: Observation, earlier: Sequence[Action]) -> Action:
    """Look at the shelf and read the number there."""
    nodes = observation.page.nodes
    stock = next((node.text for node in nodes if node.text.startswith("Books: ")), "")
    if stock:
        return Action(name="exit", argument=stock.removeprefix("Books: "))
    return Action(name="Click", element=next(node.id for node in nodes if node.text == "Shelf"))


def press(task: Task, instruction: str, observation: Observation, earlier: Sequence[Action]) -> Action:
    """Press the button as often as the task asks."""
    if len(earlier) == task.goal["number"]:
        return Action(name="exit", argument="done")
    return Action(
        name="Click", element=next(node.id for node in observation.page.nodes if node.text == "Add one")
    )


class Quiz(Environment):
    """The plugin."""

    options = QuizOptions

    def tasks(self, name: str, settings: Settings) -> QuizTasks:
        """Tasks with numbers up to the option `largest`."""
        return QuizTasks(name, options_of(name, settings))

    def open_site(self, name: str, settings: Settings, places: SitePlaces) -> QuizSite:
        """The pages of this package."""
        return QuizSite(name)

    def evaluate(self, task: Task, evidence: Evidence, answers: Answers) -> Judgment:
        """Compare the answer, or the count on the page, with the task's number."""
        found = evidence.answer if task.family == "count" else evidence.probes.get("count")
        right = str(found) == str(task.goal["number"])
        return Judgment(
            outcome="success" if right else "failure",
            reward=float(right),
            reason=f"{found}, and {task.goal['number']} is right",
        )

    def demonstrators(self) -> Mapping[str, Demonstrate]:
        """One for each family."""
        return {"count": count_books, "press": press}


ENVIRONMENT = Quiz()
