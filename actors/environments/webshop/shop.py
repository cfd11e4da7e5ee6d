"""The shop: products, search and goals from WebShop's files, loaded once per process.

The search is BM25 over title, description, first bullet and options, as upstream, by SQLite's FTS5. Upstream uses Lucene
(pyserini: k1 0.9, b 0.4, English stop words). FTS5 has k1 1.2 and b 0.75, and also stems with Porter. docs/webshop.md
compares their results.
"""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Literal

import msgspec

from hindcast.actors.environments.webshop.goals import (
    SPLITS,
    WebshopGoal,
    human_goals,
    part_of,
    synthetic_goals,
)
from hindcast.actors.environments.webshop.products import WebshopProduct, read_products
from hindcast.core.ids import digest_hex
from hindcast.core.settings.schema import SiteSettings

FOUND = 50
"""Most results of a search."""
MAX_QUERY_CHARS = 1000
MAX_WORDS = 100
"""Further words of a query are ignored."""

_WORD = re.compile(r"\w+")


class WebshopSearchIndex:
    """Full-text index of all products."""

    def __init__(self, products: Sequence[WebshopProduct]) -> None:
        self._products = products
        self._lock = Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._connection.execute(
            "CREATE VIRTUAL TABLE words USING fts5(content, content = '', tokenize = 'porter unicode61')"
        )
        self._connection.executemany(
            "INSERT INTO words (rowid, content) VALUES (?, ?)",
            ((number, contents_of(product)) for number, product in enumerate(products)),
        )

    def search(self, query: str) -> tuple[WebshopProduct, ...]:
        """The best matches, at most `FOUND`, ties in the file's order; none for a query without words."""
        words = _WORD.findall(query[:MAX_QUERY_CHARS].lower())[:MAX_WORDS]
        if not words:
            return ()
        expression = " OR ".join(f'"{word}"' for word in words)
        with self._lock:
            rows = self._connection.execute(
                "SELECT rowid FROM words WHERE words MATCH ? ORDER BY round(bm25(words), 6), rowid LIMIT ?",
                (expression, FOUND),
            ).fetchall()
        return tuple(self._products[row[0]] for row in rows)


def contents_of(product: WebshopProduct) -> str:
    """The text that a product is indexed by."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    return " ".join((product.title, product.description, product.bullets[0], options)).lower()


FAMILIES = (*SPLITS, *(f"synthetic_{split}" for split in SPLITS))
"""Parts of the human goals, then of the synthetic ones. The data determine which exist."""


class WebshopShop:
    """Everything that pages, tasks and evidence are made from. Immutable."""

    def __init__(
        self,
        products: tuple[WebshopProduct, ...],
        *,
        human: tuple[WebshopGoal, ...] = (),
        shows_attributes: bool = False,
        option_match: Literal["released", "values"] = "released",
    ) -> None:
        self.products = products
        self.option_match = option_match
        """How rewards compare the options of synthetic goals; see `WebshopSettings.webshop_option_match`."""
        self.shows_attributes = shows_attributes
        """Whether product pages link to their attributes, as upstream's `--attrs`."""
        self._by_asin = {product.asin: product for product in products}
        self._human = human

    @cached_property
    def digest(self) -> str:
        """Digest of all products' content, 16 hexadecimal characters."""
        return digest_hex(msgspec.msgpack.encode(self.products, order="sorted"))[:16]

    @cached_property
    def index(self) -> WebshopSearchIndex:
        """Full-text index over the products."""
        return WebshopSearchIndex(self.products)

    @cached_property
    def families(self) -> Mapping[str, tuple[WebshopGoal, ...]]:
        """Goals by family; families without goals are left out."""
        synthetic = synthetic_goals(self.products, compare_pairs=self.option_match == "released")
        goals_by_part = [part_of(self._human, split, by_product=False) for split in SPLITS]
        goals_by_part += [part_of(synthetic, split, by_product=True) for split in SPLITS]
        return {name: goals for name, goals in zip(FAMILIES, goals_by_part, strict=True) if goals}

    @cached_property
    def goals(self) -> Mapping[str, WebshopGoal]:
        """Goals by digest."""
        return {goal.digest: goal for goals in self.families.values() for goal in goals}

    def get(self, asin: str) -> WebshopProduct | None:
        """The product with this number."""
        return self._by_asin.get(asin)


def shop_of(settings: SiteSettings) -> WebshopShop:
    """The shop that the settings name; the same object for the same files. Raises SettingsError."""
    return _load(
        settings.webshop_items,
        settings.webshop_instructions,
        settings.webshop_human,
        settings.webshop_show_attributes,
        settings.webshop_option_match,
    )


@lru_cache(maxsize=4)
def _load(
    items: str,
    instructions: str,
    human: str,
    shows_attributes: bool,
    option_match: Literal["released", "values"],
) -> WebshopShop:
    products = read_products(Path(items), Path(instructions))
    written = human_goals(products, Path(human)) if human else ()
    return WebshopShop(products, human=written, shows_attributes=shows_attributes, option_match=option_match)
