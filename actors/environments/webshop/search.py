"""Search over title, description, first bullet and options: BM25 as upstream, by SQLite's FTS5.

Upstream uses Lucene (pyserini: k1 0.9, b 0.4, English stop words). FTS5 has k1 1.2 and b 0.75, and also stems with
Porter. docs/webshop.md compares their results.
"""

import re
import sqlite3
from collections.abc import Sequence
from threading import Lock

from hindcast.actors.environments.webshop.products import WebshopProduct

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
