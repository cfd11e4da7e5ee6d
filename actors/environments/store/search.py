"""Full-text search over the catalogue with SQLite's FTS5, in memory.

Input is a bag of quoted tokens, never query syntax; equal relevance is ordered by id.
"""

import re
import sqlite3
from typing import Literal

import msgspec

from hindcast.actors.environments.store.catalogue import Catalogue, Product

Sort = Literal["relevance", "price", "rating"]
SORTS: tuple[Sort, ...] = ("relevance", "price", "rating")
MAX_QUERY_CHARS = 200
MAX_TOKENS = 12
CLOSEST = 8
"""Products shown when none has every word."""

_TOKEN = re.compile(r"\w+")


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a search, in the requested order."""

    products: tuple[Product, ...]
    exact: bool
    """Whether every product has every word; otherwise they are the closest ones, with some of the words."""


def tokens_of(query: str) -> tuple[str, ...]:
    """Words of a query, lower case, at most `MAX_TOKENS`."""
    return tuple(_TOKEN.findall(query[:MAX_QUERY_CHARS].lower())[:MAX_TOKENS])


def sorted_by(products: tuple[Product, ...], sort: Sort) -> tuple[Product, ...]:
    """Cheapest first, best rated first, or unchanged; ties by id."""
    if sort == "price":
        return tuple(sorted(products, key=lambda product: (product.price_cents, product.id)))
    if sort == "rating":
        return tuple(sorted(products, key=lambda product: (-product.rating_tenths, product.id)))
    return products


class StoreSearchIndex:
    """An FTS5 table over titles, categories, descriptions and origins. Used from one thread."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._connection.execute(
            "CREATE VIRTUAL TABLE words USING fts5(title, details, tokenize = 'porter unicode61')"
        )
        self._connection.executemany(
            "INSERT INTO words (rowid, title, details) VALUES (?, ?, ?)",
            (
                (
                    product.id,
                    product.title,
                    f"{product.category} {product.description} {product.features['Origin']}",
                )
                for product in catalogue.products
            ),
        )

    def _match(self, expression: str, limit: int) -> tuple[Product, ...]:
        rows = self._connection.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY round(bm25(words, 4.0, 1.0), 6), rowid LIMIT ?",
            (expression, limit),
        )
        return tuple(self._catalogue[row[0]] for row in rows)

    def search(self, query: str, *, sort: Sort = "relevance") -> SearchResult:
        """Products with every word of the query; failing that, the closest ones; nothing for a query without words."""
        quoted = [f'"{token}"' for token in tokens_of(query)]
        if not quoted:
            return SearchResult(products=(), exact=False)
        found = self._match(" AND ".join(quoted), len(self._catalogue.products))
        if found:
            return SearchResult(products=sorted_by(found, sort), exact=True)
        return SearchResult(products=sorted_by(self._match(" OR ".join(quoted), CLOSEST), sort), exact=False)

    def close(self) -> None:
        """Close the table."""
        self._connection.close()
