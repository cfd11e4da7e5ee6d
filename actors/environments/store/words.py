"""Every word of the store's pages and instructions: a small policy's tokenizer should have them as single tokens."""

import re
from pathlib import Path

from hindcast.actors.environments.store import vocabulary
from hindcast.actors.environments.store.families import FAMILIES
from hindcast.actors.environments.store.pages import PARTS, PRICE_BANDS, SORT_LABELS
from hindcast.actors.environments.store.shop import NOTES
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.core.settings.schema import SiteSettings

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
