"""The store's tasks: pure, no server and no browser needed."""

import re
from collections.abc import Collection
from pathlib import Path
from random import Random

from hindcast.actors.environments.base import TaskSource, Variant
from hindcast.actors.environments.store import vocabulary
from hindcast.actors.environments.store.catalogue import Catalogue, catalogue_of
from hindcast.actors.environments.store.families import FAMILIES, Goal
from hindcast.actors.environments.store.goals.variations import vary
from hindcast.actors.environments.store.goals.visits import why_unreachable
from hindcast.actors.environments.store.pages import NOTES, PARTS, PRICE_BANDS, SORT_LABELS
from hindcast.actors.environments.store.session import opening_state
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import SiteSettings

ENVIRONMENT = "store"


class StoreTasks(TaskSource):
    """`TaskSource` of the store."""

    name = ENVIRONMENT

    def __init__(self, settings: SiteSettings) -> None:
        self._settings = settings

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue that the tasks refer to; built on first use."""
        return catalogue_of(self._settings)

    def families(self) -> tuple[str, ...]:
        """Names of the families, in a stable order."""
        return tuple(FAMILIES)

    def task(self, family: str, seed: int) -> Task:
        """The task of a family and seed. Raises SettingsError for an unknown family."""
        store_family = FAMILIES.get(family)
        if store_family is None:
            raise SettingsError(f"the store has no task family {family!r}; it has: {', '.join(FAMILIES)}")
        random = Random(derive_seed(seed, ENVIRONMENT, family, "goal"))
        goal = store_family.draw(self.catalogue, opening_state(self.catalogue, family, seed), random)
        return self._asking(family, seed, goal, random)

    def vary(self, task: Task, *, families: Collection[str], random: Random) -> Variant | None:
        """See `GoalSpace`."""
        variation = vary(self.catalogue, task, families=families, random=random)
        if variation is None:
            return None
        return Variant(self._asking(variation.family, task.seed, variation.goal, random), variation.change)

    def why_unreachable(self, task: Task) -> str:
        """See `GoalSpace`."""
        return why_unreachable(self.catalogue, task)

    def _asking(self, family: str, seed: int, goal: Goal, random: Random) -> Task:
        store_family = FAMILIES[family]
        return Task(
            environment=ENVIRONMENT,
            family=family,
            seed=seed,
            instruction=store_family.say(goal, random),
            goal={**goal, "catalogue": self.catalogue.name},
            max_steps=store_family.max_steps,
        )


INSTRUCTION_SEEDS = 40
"""Tasks per family whose instructions are read for words: every phrasing occurs in them."""

_MARKUP = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|<[^>]*>", re.DOTALL)
_WORD = re.compile(r"[A-Za-z][A-Za-z/]*")


def _texts() -> list[str]:
    texts = [
        *vocabulary.CATEGORIES,
        *(material for materials in vocabulary.CATEGORIES.values() for material in materials),
        *(kind.noun for kind in vocabulary.KINDS),
        *vocabulary.BRANDS,
        *vocabulary.ADJECTIVES,
        *vocabulary.COLOURS,
        *vocabulary.SIZES,
        *vocabulary.FEATURES,
        *(value for values in vocabulary.FEATURES.values() for value in values),
        *vocabulary.DESCRIPTIONS,
        *vocabulary.REVIEWS,
        *vocabulary.FIRST_NAMES,
        *vocabulary.LAST_NAMES,
        *vocabulary.STREETS,
        *vocabulary.CITIES,
        *vocabulary.MONTHS,
        *vocabulary.STATUSES,
        *NOTES.values(),
        *PARTS.values(),
        *SORT_LABELS.values(),
        *(label for label, _, _ in PRICE_BANDS.values()),
        "Results for Not found Visit over Page of N/A done Search the store Only Cart Wish list",
    ]
    templates = sorted((Path(__file__).parent / "templates").glob("*.html"))
    texts += [_MARKUP.sub(" ", template.read_text(encoding="utf-8")) for template in templates]
    tasks = StoreTasks(SiteSettings())
    texts += [
        tasks.task(family, seed).instruction for family in FAMILIES for seed in range(INSTRUCTION_SEEDS)
    ]
    return texts


def vocabulary_words() -> tuple[str, ...]:
    """All words, each once, in alphabetical order; with capitals as on the pages."""
    return tuple(sorted({word for text in _texts() for word in _WORD.findall(text)}))
