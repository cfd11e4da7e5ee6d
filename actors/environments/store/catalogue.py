"""The seeded catalogue and its full-text search: equal (products, seed) give equal products in every process.

Search uses SQLite's FTS5 in memory. Its input is a bag of quoted tokens, never query syntax; equal relevance is ordered by
id.
"""

import re
import sqlite3
from functools import cached_property, lru_cache
from random import Random
from typing import Literal

import msgspec

from hindcast.actors.environments.store import vocabulary
from hindcast.core.ids import digest_hex
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import SiteSettings

GROUP = 8
"""Products per noun that a small catalogue aims at: enough similar ones for a wrong choice."""


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """One customer's review."""

    stars: int
    author: str
    text: str


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """One product. Its title is unique in the catalogue."""

    id: int
    brand: str
    adjective: str
    material: str
    noun: str
    category: str
    price_cents: int
    rating_tenths: int
    review_count: int
    colours: tuple[str, ...]
    """Colors to choose from; empty: no choice."""
    sizes: tuple[str, ...]
    """Sizes to choose from; empty: no choice."""
    description: str
    features: dict[str, str]
    reviews: tuple[Review, ...]

    @property
    def title(self) -> str:
        """The title, such as `Norda slim oak lamp`."""
        return f"{self.brand} {self.adjective} {self.material} {self.noun}"

    @property
    def price(self) -> str:
        """The price, such as `$24.50`."""
        return money(self.price_cents)

    @property
    def rating(self) -> str:
        """The rating, such as `4.3`."""
        return f"{self.rating_tenths // 10}.{self.rating_tenths % 10}"


def money(cents: int) -> str:
    """An amount in dollars, such as `$24.50`."""
    return f"${cents // 100}.{cents % 100:02d}"


def stars_text(stars: int) -> str:
    """A number of stars, such as `1 star` or `4 stars`."""
    return f"{stars} star{'' if stars == 1 else 's'}"


class Catalogue:
    """All products, with the look-ups that pages and tasks need. Read-only."""

    def __init__(self, products: tuple[Product, ...]) -> None:
        self.products = products
        self.name = digest_hex(msgspec.msgpack.encode(products, order="sorted"))[:12]
        """Content digest: tasks name the catalogue they were made for."""
        self.categories: dict[str, tuple[str, ...]] = {}
        by_category: dict[str, dict[str, None]] = {}
        for product in products:
            by_category.setdefault(product.category, {})[product.noun] = None
        for category in vocabulary.CATEGORIES:
            if category in by_category:
                self.categories[category] = tuple(by_category[category])

    def get(self, product_id: int) -> Product | None:
        """The product of this id; None when there is none."""
        return self.products[product_id - 1] if 1 <= product_id <= len(self.products) else None

    def __getitem__(self, product_id: int) -> Product:
        product = self.get(product_id)
        if product is None:
            raise KeyError(f"no product {product_id}: ids run from 1 to {len(self.products)}")
        return product

    def matching(
        self, *, noun: str, brand: str = "", adjective: str = "", material: str = ""
    ) -> tuple[Product, ...]:
        """Products with this noun and every other word given, in order of id."""
        return tuple(
            product
            for product in self._by_noun.get(noun, ())
            if brand in ("", product.brand)
            and adjective in ("", product.adjective)
            and material in ("", product.material)
        )

    @cached_property
    def _by_noun(self) -> dict[str, list[Product]]:
        index: dict[str, list[Product]] = {}
        for product in self.products:
            index.setdefault(product.noun, []).append(product)
        return index


def _combinations(kind: vocabulary.Kind, count: int, random: Random) -> list[tuple[str, str, str]]:
    """(brand, adjective, material) of `count` products: few different words, so that many products share some."""
    materials = random.sample(vocabulary.CATEGORIES[kind.category], 6)
    brands = random.sample(vocabulary.BRANDS, len(vocabulary.BRANDS))
    adjectives = random.sample(vocabulary.ADJECTIVES, len(vocabulary.ADJECTIVES))
    m, b, a = 3, 4, 6
    while m * b * a < 2 * count and (m, b, a) != (6, 16, 24):
        m, b, a = min(m + 1, 6), min(b + 3, 16), min(a + 4, 24)
    grid = [
        (brand, adjective, mat)
        for mat in materials[:m]
        for brand in brands[:b]
        for adjective in adjectives[:a]
    ]
    return random.sample(grid, count)


def _product(number: int, kind: vocabulary.Kind, words: tuple[str, str, str], random: Random) -> Product:
    brand, adjective, material = words
    options = random.choices(("none", "colour", "size", "both"), weights=(30, 30, 25, 15))[0]
    colours: tuple[str, ...] = ()
    if options in ("colour", "both"):
        colours = tuple(random.sample(vocabulary.COLOURS, random.randint(3, 4)))
    reviews = tuple(
        Review(
            stars=random.randint(*((4, 5) if text in vocabulary.PRAISE else (1, 3))),
            author=random.choice(vocabulary.FIRST_NAMES),
            text=text,
        )
        for text in random.sample(vocabulary.REVIEWS, random.randint(1, 3))
    )
    return Product(
        id=number,
        brand=brand,
        adjective=adjective,
        material=material,
        noun=kind.noun,
        category=kind.category,
        price_cents=random.randint(kind.low * 20, kind.high * 20) * 5,
        rating_tenths=random.randint(25, 50),
        review_count=random.randint(3, 400),
        colours=colours,
        sizes=vocabulary.SIZES if options in ("size", "both") else (),
        description=" ".join(random.sample(vocabulary.DESCRIPTIONS, 2)),
        features={name: random.choice(values) for name, values in vocabulary.FEATURES.items()},
        reviews=reviews,
    )


@lru_cache(maxsize=4)
def build_catalogue(products: int, seed: int) -> Catalogue:
    """The catalogue of this size and seed; built once per process.

    Ids run from 1 and do not depend on kind or price.
    """
    random = Random(derive_seed(seed, "store", "catalogue"))
    kinds = vocabulary.KINDS[: max(2, min(len(vocabulary.KINDS), products // GROUP))]
    planned: list[tuple[vocabulary.Kind, tuple[str, str, str]]] = []
    for index, kind in enumerate(kinds):
        count = products // len(kinds) + (1 if index < products % len(kinds) else 0)
        planned += [(kind, words) for words in _combinations(kind, count, random)]
    random.shuffle(planned)
    return Catalogue(
        tuple(_product(i, kind, words, random) for i, (kind, words) in enumerate(planned, start=1))
    )


def catalogue_of(settings: SiteSettings) -> Catalogue:
    """The catalogue that these settings describe."""
    return build_catalogue(settings.products, settings.catalogue_seed)


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
        matches = self._match(" AND ".join(quoted), len(self._catalogue.products))
        if matches:
            return SearchResult(products=sorted_by(matches, sort), exact=True)
        return SearchResult(products=sorted_by(self._match(" OR ".join(quoted), CLOSEST), sort), exact=False)

    def close(self) -> None:
        """Close the table."""
        self._connection.close()
