from hindcast.actors.environments.store.catalogue import (
    MAX_TOKENS,
    StoreSearchIndex,
    build_catalogue,
    sorted_by,
    tokens_of,
)
from hindcast.actors.environments.store.pages import ListingFilter
from hindcast.actors.environments.store.tasks import vocabulary_words
from hindcast.actors.environments.store.vocabulary import KINDS
from hindcast.core.settings.schema import SiteSettings


def test_the_default_catalogue_is_the_same_on_every_machine() -> None:
    settings = SiteSettings()
    catalogue = build_catalogue(settings.products, settings.catalogue_seed)
    assert catalogue.name == "f4a90f70b206", (
        "a changed catalogue changes every task: recorded runs no longer match"
    )


def test_titles_are_unique_and_ids_are_places() -> None:
    for products in (20, 333, 5000):
        catalogue = build_catalogue(products, 3)
        assert len(catalogue.products) == products
        assert len({product.title for product in catalogue.products}) == products
        assert [product.id for product in catalogue.products] == list(range(1, products + 1))


def test_every_noun_has_similar_products_to_choose_among() -> None:
    catalogue = build_catalogue(400, 7)
    for kind in KINDS:
        alike = catalogue.matching(noun=kind.noun)
        assert len(alike) >= 8
        assert len({product.price_cents for product in alike}) > 1


def test_search_finds_the_products_that_have_every_word() -> None:
    catalogue = build_catalogue(400, 7)
    index = StoreSearchIndex(catalogue)
    for product in catalogue.products[:40]:
        found = index.search(product.title)
        assert found.exact
        assert product in found.products
        similar = {other.id for other in index.search(f"{product.noun} {product.material}").products}
        assert similar >= {p.id for p in catalogue.matching(noun=product.noun, material=product.material)}


def test_search_without_a_full_match_gives_the_closest_and_says_so() -> None:
    catalogue = build_catalogue(400, 7)
    index = StoreSearchIndex(catalogue)
    found = index.search("lamp made of moonlight")
    assert not found.exact
    assert {product.noun for product in found.products} == {"lamp"}
    assert index.search("moonlight").products == ()
    assert index.search("").products == ()


def test_search_knows_plurals_and_descriptions() -> None:
    index = StoreSearchIndex(build_catalogue(400, 7))
    assert index.search("Lamps").products == index.search("lamp").products
    packed = index.search("packed without plastic").products
    assert packed
    assert all("Packed without plastic." in product.description for product in packed)


def test_equal_relevance_is_ordered_by_id() -> None:
    index = StoreSearchIndex(build_catalogue(400, 7))
    found = [product.id for product in index.search("lamp").products]
    assert len(found) > 8
    lengths = {len(product.title.split()) for product in index.search("lamp").products}
    assert lengths == {4}
    by_price = index.search("lamp", sort="price").products
    assert list(by_price) == sorted(by_price, key=lambda product: (product.price_cents, product.id))
    by_rating = sorted_by(by_price, "rating")
    assert [p.rating_tenths for p in by_rating] == sorted((p.rating_tenths for p in by_price), reverse=True)


def test_query_syntax_is_only_words() -> None:
    index = StoreSearchIndex(build_catalogue(400, 7))
    plain = index.search("lamp").products
    for query in (
        '"lamp"',
        "lamp*",
        "title:lamp",
        "(lamp",
        "lamp)",
        "^lamp",
        "{lamp}",
        "-lamp",
        "lamp;",
        "LAMP",
    ):
        found = index.search(query).products
        assert found in (plain, index.search("title lamp").products), query
    for query in (
        "lamp AND",
        "NEAR(lamp oak)",
        "lamp OR chair NOT",
        '"',
        "'; DROP TABLE words; --",
        "\0",
        "𝕝𝕒𝕞𝕡",
        "灯",
    ):
        index.search(query)
    assert len(tokens_of("a " * 1000)) == MAX_TOKENS


def test_an_address_changes_only_what_was_asked() -> None:
    choice = ListingFilter(query="oak lamp", category="", noun="", sort="price", band="50", page=3)
    assert choice.address("/search", page=2) == "/search?q=oak+lamp&sort=price&price=50&page=2"
    assert choice.address("/search", sort="relevance") == "/search?q=oak+lamp&price=50"


def test_the_vocabulary_is_small_and_covers_titles_and_instructions() -> None:
    words = set(vocabulary_words())
    assert len(words) < 600
    for product in build_catalogue(400, 7).products:
        assert words.issuperset(product.title.split())
