"""WebShop's reward equals a second one, written from the formula, on released and made-up data and at every border."""

from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hindcast.actors.environments.webshop.evaluators import record_at
from hindcast.actors.environments.webshop.goals import WebshopGoal
from hindcast.actors.environments.webshop.reward import (
    Bought,
    Nouns,
    Reward,
    colour_or_text,
    is_same,
    nouns_of,
    reward_of,
    similarity,
    title_overlap,
    type_reward,
    words_for_nouns,
)
from hindcast.actors.environments.webshop.shop import WebshopShop, shop_of
from hindcast.actors.environments.webshop.views import WebshopLocation
from stories.webshop_files import released, written
from stories.webshop_reference import ratio, reference_reward, token_set_ratio

TRIPLES = 1500

WANTED = WebshopGoal(
    digest="0" * 16,
    asin="B000000001",
    instruction="",
    attributes=("long lasting", "tea tree"),
    options=("dark blue", "x-large"),
    price_upper=40.0,
    title="Acme Lip Balm Jar",
    query="lip balm",
    product_category="Beauty › Skin Care › Lip Care",
)
BOUGHT = Bought(
    asin="B000000002",
    title="Acme lip balm",
    description="",
    bullets=("With Tea Tree oil",),
    attributes=("lasting long",),
    query="lip balm",
    product_category="Home › Lighting",
    price=40.0,
    chosen={"color": "blue (matte)", "size": "x-large"},
)
NOUNS = Nouns(rule="words/1", bought=("acme", "lip", "balm"), wanted=("acme", "lip", "balm", "jar"))


def reward(nouns: Nouns = NOUNS, wanted: WebshopGoal = WANTED, **changes: object) -> Reward:
    return reward_of(msgspec.structs.replace(BOUGHT, **changes), wanted, nouns)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> WebshopShop:
    return shop_of(released() or written(tmp_path_factory.mktemp("webshop")))


def test_everything_found_is_a_reward_of_one() -> None:
    assert reward() == Reward(
        total=1.0, r_type=1.0, attributes_found=2, attributes=2, options_found=2, options=2, price_fits=True
    )


def test_a_price_equal_to_the_limit_fits_and_the_next_one_does_not() -> None:
    assert reward(price=40.0).price_fits
    assert reward(price=40.000001).total == pytest.approx(4 / 5)


def test_without_options_what_was_chosen_does_not_count() -> None:
    wanted = msgspec.structs.replace(WANTED, options=())
    assert reward(wanted=wanted).total == 1
    assert reward(wanted=wanted, chosen={}).total == 1
    assert reward(chosen={}).total == pytest.approx(3 / 5)


def test_options_are_compared_by_their_colour_wherever_the_word_stands() -> None:
    assert colour_or_text("dark blue") == "blue"
    assert reward(chosen={"a": "steelblue", "b": "X LARGE"}).options_found == 2
    assert reward(chosen={"a": "navy", "b": "large"}).options_found == 1, "large is a word of x-large"
    assert reward(chosen={"a": "navy", "b": "xl"}).options_found == 0


@pytest.mark.parametrize(
    ("shared", "of", "alike", "expected"),
    [
        (0, 10, True, 0.0),
        (1, 11, True, 0.1),
        (1, 10, True, 1.0),
        (1, 10, False, 0.5),
        (2, 10, False, 0.5),
        (3, 10, False, 1.0),
        (0, 0, False, 0.5),
        (0, 0, True, 1.0),
    ],
)
def test_kinds_of_products(shared: int, of: int, alike: bool, expected: float) -> None:
    wanted = tuple(f"noun{number}" for number in range(of))
    nouns = Nouns(rule="", bought=(*wanted[:shared], "other"), wanted=wanted)
    bought = msgspec.structs.replace(BOUGHT, query="lip balm" if alike else "lamps")
    assert type_reward(bought, WANTED, nouns) == expected


def test_two_shared_parts_of_the_category_are_enough_in_any_order_and_one_is_not() -> None:
    nouns = Nouns(rule="", bought=("a",), wanted=tuple("abcdefghij"))
    for category, expected in (("Skin Care› Beauty", 1.0), ("Beauty › Beauty", 0.5), ("", 0.5)):
        bought = msgspec.structs.replace(BOUGHT, query="", product_category=category)
        assert type_reward(bought, WANTED, nouns) == expected


def test_a_noun_said_twice_counts_twice_in_what_is_wanted() -> None:
    assert title_overlap(Nouns(rule="", bought=("lamp",), wanted=("lamp", "lamp", "oak", "lamp"))) == 0.25


def test_a_ratio_of_85_is_not_enough_and_rounding_decides() -> None:
    def texts(length: int, shared: int) -> tuple[str, str]:
        common = "abcdefghij" * 20
        return common[:shared] + "x" * (length - shared), common[:shared] + "y" * (length - shared)

    for length, shared, expected in ((20, 17, 85), (41, 35, 85), (50, 43, 86), (200, 171, 86)):
        one, other = texts(length, shared)
        assert similarity(one, other) == ratio(one, other) == expected
        assert is_same(one, other) == (expected > 85)


def test_similarity_folds_case_order_and_marks_and_drops_accents() -> None:
    assert similarity("Oil-Free!", "free OIL") == 100
    assert similarity("café", "caf") == 100
    assert similarity("", "") == similarity("™", "a") == 0


def test_nouns_without_spacy_are_words_and_the_rule_is_named() -> None:
    assert words_for_nouns("Women's 2-Pack of Portable Lamps, 12 oz") == (
        "women",
        "pack",
        "portable",
        "lamps",
        "oz",
    )
    found = nouns_of(bought="Oak Lamp", wanted="Lamp of Oak")
    assert found.rule
    assert title_overlap(found) == 1


def test_rewards_equal_the_reference_on_a_thousand_triples_and_more(shop: WebshopShop) -> None:
    random = Random(11)
    goals = [goal for family in shop.families.values() for goal in family]
    by_query: dict[str, list[str]] = {}
    for product in shop.products:
        by_query.setdefault(product.query, []).append(product.asin)
    seen: set[float] = set()
    for number in range(TRIPLES):
        goal = random.choice(goals)
        # a third buys what the goal was made from, a third something like it, a third anything
        chosen_from = ([goal.asin], by_query[goal.query], [product.asin for product in shop.products])[
            number % 3
        ]
        product = shop.get(random.choice(chosen_from))
        assert product is not None
        options = {
            name: random.choice([value for value in values if value in goal.options] or values)
            if random.random() < 0.7
            else random.choice(values)
            for name, values in product.options.items()
            if values and random.random() < 0.9
        }
        record = record_at(
            shop, WebshopLocation(goal=goal.digest, kind="done", asin=product.asin, options=options), goal
        )
        assert record.bought is not None
        assert record.nouns is not None
        if number % 5 == 0:
            goal = msgspec.structs.replace(goal, price_upper=product.price)
        found = reward_of(record.bought, goal, record.nouns)
        assert found.total == reference_reward(record.bought, goal, record.nouns), (
            goal,
            product.asin,
            options,
        )
        assert 0 <= found.total <= 1
        seen.add(found.r_type)
    assert {0.0, 1.0} <= seen, "the triples reach the kinds of products that matter"


_words = st.lists(
    st.sampled_from(["oil", "free", "blue", "dark", "x-large", "large", "é", "Red", "tea tree", "12"]),
    max_size=3,
).map(" ".join)
_texts = st.lists(_words, max_size=3).map(tuple)


@settings(max_examples=300, deadline=None)
@given(
    goal=st.builds(
        WebshopGoal,
        digest=st.just(""),
        asin=st.just(""),
        instruction=st.just(""),
        attributes=st.lists(_words, min_size=1, max_size=3).map(tuple),
        options=_texts,
        price_upper=st.sampled_from([10.0, 20.0]),
        title=_words,
        query=st.sampled_from(["a", "b"]),
        product_category=st.sampled_from(["x › y › z", "y›x", "x › x", ""]),
    ),
    bought=st.builds(
        Bought,
        asin=st.just(""),
        title=_words,
        description=_words,
        bullets=_texts,
        attributes=_texts,
        query=st.sampled_from(["a", "b"]),
        product_category=st.sampled_from(["x › y › z", "z › q", "x"]),
        price=st.sampled_from([10.0, 10.01, 20.0, 25.0]),
        chosen=st.dictionaries(st.sampled_from(["color", "size"]), _words),
    ),
)
def test_rewards_equal_the_reference_on_whatever_there_may_be(goal: WebshopGoal, bought: Bought) -> None:
    nouns = nouns_of(bought=bought.title, wanted=goal.title)
    assert reward_of(bought, goal, nouns).total == reference_reward(bought, goal, nouns)


@given(one=st.text(max_size=12), other=st.text(max_size=12))
def test_similarity_equals_the_reference_on_any_text(one: str, other: str) -> None:
    assert similarity(one, other) == token_set_ratio(one, other)


def test_the_small_set_of_the_tests_is_rewarded_too(tmp_path: Path) -> None:
    shop = shop_of(written(tmp_path))
    for goal in shop.families["test"]:
        product = shop.get(goal.asin)
        assert product is not None
        chosen = {
            name: value
            for name, values in product.options.items()
            for value in values
            if value in goal.options
        }
        record = record_at(
            shop, WebshopLocation(goal=goal.digest, kind="done", asin=goal.asin, options=chosen), goal
        )
        assert record.bought is not None
        assert record.nouns is not None
        assert reward_of(record.bought, goal, record.nouns).total == 1


PAIRED = msgspec.structs.replace(WANTED, options=("black", "16 inch"), option_names=("color", "size"))


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ({"color": "black", "size": "16 inch"}, 2),
        ({"color": "jet black", "size": "16 inch"}, 2),
        ({"color": "black", "size": "14 inch"}, 1),
        ({"color": "navy", "size": "14 inch"}, 0),
        ({}, 0),
    ],
)
def test_options_of_synthetic_goals_are_compared_as_pairs(chosen: dict[str, str], found: int) -> None:
    assert reward(wanted=PAIRED, chosen=chosen).options_found == found


def test_a_pair_is_only_a_color_if_name_or_value_is_exactly_that_color() -> None:
    steel = msgspec.structs.replace(PAIRED, options=("steelblue", "x-large"))
    chosen = {"color": "steelblue", "size": "small"}
    assert reward(wanted=steel, chosen=chosen).options_found == 0
    values = msgspec.structs.replace(steel, option_names=())
    assert reward(wanted=values, chosen=chosen).options_found == 1


def test_the_setting_decides_how_synthetic_goals_are_compared_and_leaves_their_digests(
    tmp_path: Path,
) -> None:
    settings = written(tmp_path)
    released_rule = shop_of(settings).families["synthetic_train"]
    by_values = shop_of(settings.model_copy(update={"webshop_option_match": "values"})).families[
        "synthetic_train"
    ]
    assert [goal.digest for goal in released_rule] == [goal.digest for goal in by_values]
    assert all(goal.option_names for goal in released_rule)
    assert not any(goal.option_names for goal in by_values)
    assert not any(goal.option_names for goal in shop_of(settings).families["train"])
