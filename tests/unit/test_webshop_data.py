"""WebShop's files become products, goals and search results; what cannot be read is refused by file, item and field."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hindcast.actors.environments.webshop.goals import SPLITS, bounds_of, price_limit
from hindcast.actors.environments.webshop.products import read_products
from hindcast.actors.environments.webshop.shop import WebshopShop, shop_of
from hindcast.actors.environments.webshop.tasks import MAX_STEPS, ServerTasks, WebshopTasks, webshop_tasks
from hindcast.app.settings.checks.sites import require_webshop_data
from hindcast.app.settings.configuration import resolve
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import SiteSettings
from stories.webshop_files import small_set, written


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> SiteSettings:
    return written(tmp_path_factory.mktemp("webshop"))


@pytest.fixture(scope="module")
def shop(sites: SiteSettings) -> WebshopShop:
    return shop_of(sites)


def read(tmp_path: Path, products: Any, attributes: Any = None) -> Any:
    items, about = tmp_path / "items.json", tmp_path / "about.json"
    items.write_text(json.dumps(products))
    about.write_text(json.dumps({} if attributes is None else attributes))
    return read_products(items, about)


def test_options_prices_and_attributes_are_read_as_upstream_does(shop: WebshopShop) -> None:
    first, second, third = shop.products[:3]
    assert first.options == {"color": ("black", "dark blue", "rose gold")}
    assert second.options["size"] == ("small", "large | wide", "x-large")
    assert (first.price, first.price_tag) == (12.5, "$12.5")
    assert second.price_tag == "$10.0 to $20.5"
    assert 10 <= second.price <= 20.5
    assert (third.price, shop.products[4].price) == (34.0, 100.0)
    assert first.query == "lip balm"
    assert first.bullets == ("",)
    assert len(second.bullets) == 2


def test_numbers_that_are_too_long_missing_or_there_already_are_left_out(tmp_path: Path) -> None:
    one = small_set()[0][0]
    found = read(tmp_path, [one, one, {**one, "asin": "nan"}, {**one, "asin": "B0000000001"}])
    assert [product.asin for product in found] == [one["asin"]]
    assert found[0].attributes == ("DUMMY_ATTR",)
    assert found[0].asked is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda item: item.pop("name"), ["item 1 (B000000001)", "'name'"]),
        (lambda item: item.pop("asin"), ["item 1 has no field 'asin'"]),
        (lambda item: item.update(pricing="dear"), ["'pricing' is 'dear'", "$10.00 to $20.00"]),
        (lambda item: item.update(pricing=[True]), ["'pricing' is [True]"]),
        (lambda item: item.update(customization_options={"size": ["s"]}), ["under 'size'", "'value'"]),
        (lambda item: item.update(small_description=["a", 3]), ["'small_description'", "list of texts"]),
    ],
)
def test_an_item_that_does_not_fit_is_refused_by_file_item_and_field(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], words: list[str]
) -> None:
    products = small_set()[0][:2]
    change(products[1])
    with pytest.raises(SettingsError) as refused:
        read(tmp_path, products)
    assert all(word in str(refused.value) for word in [str(tmp_path / "items.json"), *words]), refused.value


def test_files_that_are_missing_damaged_or_of_another_shape_are_refused(tmp_path: Path) -> None:
    whole = gzip.compress(json.dumps(small_set()[0]).encode())
    for name, content, words in (
        ("missing.json", None, "cannot be read"),
        ("cut.json.gz", whole[: len(whole) // 2], "cannot be read"),
        ("plain.json.gz", b"[]", "cannot be read"),
        ("text.json", b"{", "is not JSON"),
        ("object.json", b"{}", "is a list of products"),
        ("empty.json", b"[]", "holds no product"),
        ("numbers.json", b"[3]", "item 0 is a int"),
    ):
        path, about = tmp_path / name, tmp_path / "about.json"
        about.write_text("{}")
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(SettingsError, match=words) as refused:
            read_products(path, about)
        assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"webshop_items": "a.json"}, "need each other"),
        ({"webshop_instructions": "a.json"}, "need each other"),
        ({"webshop_human": "a.json"}, "webshop_human needs the products"),
        (
            {
                "webshop_items": "a.json",
                "webshop_instructions": "b.json",
                "webshop_url": "http://127.0.0.1:3000",
            },
            "both set",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        resolve(overrides=[f"sites.{name}={value}" for name, value in changes.items()])


def test_the_environment_needs_data_and_a_run_reads_them_before_it_begins(
    sites: SiteSettings, tmp_path: Path
) -> None:
    asked = "curriculum.environments=webshop"
    with pytest.raises(SettingsError, match=r"docs/webshop\.md"):
        resolve(overrides=[asked])
    named = [
        f"sites.webshop_{name}={getattr(sites, f'webshop_{name}')}" for name in ("items", "instructions")
    ]
    require_webshop_data(resolve(overrides=[asked, *named]).settings)
    (tmp_path / "damaged.json").write_text("[{}]")
    damaged = [named[0], f"sites.webshop_instructions={tmp_path / 'damaged.json'}"]
    with pytest.raises(SettingsError, match="is an object by product"):
        require_webshop_data(resolve(overrides=[asked, *damaged]).settings)
    require_webshop_data(resolve(overrides=damaged).settings)


def test_goals_are_the_same_in_every_process_and_their_digests_say_their_content(
    shop: WebshopShop, tmp_path: Path
) -> None:
    again = shop_of(written(tmp_path))
    assert again.families == shop.families
    assert again.digest == shop.digest
    assert len(shop.goals) == sum(map(len, shop.families.values()))
    # recorded once: digests and limits must never change, or tasks of old logs would name goals that are gone
    goal = shop.families["synthetic_test"][0]
    assert (goal.digest, goal.asin, goal.price_upper) == ("10d5baf537a89c46", "B000000032", 60.0)


def test_synthetic_goals_are_all_combinations_of_options_in_upstreams_words(shop: WebshopShop) -> None:
    product = shop.products[2]
    goals = [
        goal
        for goal in shop.goals.values()
        if goal.asin == product.asin and goal.instruction.startswith("Find me")
    ]
    assert {goal.options for goal in goals} == {
        (colour, size) for colour in product.options["color"] for size in product.options["size"]
    }
    assert all(goal.attributes == product.asked_attributes for goal in goals)
    said = {goal.instruction.split(", and price")[0] for goal in goals}
    assert f"{product.asked} with color: rose gold, and size: large | wide" in said


def test_goals_by_people_lose_their_full_stop_and_those_without_attributes_are_left_out(
    shop: WebshopShop,
) -> None:
    human = [goal for split in SPLITS for goal in shop.families[split]]
    assert len(human) == 30
    assert all(", and price lower than" in goal.instruction for goal in human)
    assert not any(".," in goal.instruction for goal in human)
    assert {goal.options for goal in human} == {(), ("rose gold",)}


def test_limits_are_the_larger_of_two_of_the_next_four_tens() -> None:
    limits = {price_limit(34.0, str(number)) for number in range(200)}
    assert limits == {50.0, 60.0, 70.0}
    assert {price_limit(40.0, str(number)) for number in range(200)} == {60.0, 70.0, 80.0}
    assert {price_limit(975.0, str(number)) for number in range(20)} == {990.0}
    assert price_limit(980.0, "a") == price_limit(5000.0, "a") == 1_000_000.0


def test_parts_cover_all_goals_once_and_no_product_is_in_two_synthetic_ones(shop: WebshopShop) -> None:
    synthetic = [shop.families[f"synthetic_{split}"] for split in SPLITS]
    products = [{goal.asin for goal in goals} for goals in synthetic]
    assert all(len(one & other) == 0 for one in products for other in products if one is not other)
    assert [len(one) for one in products] == [6, 6, 18]
    first = [goal.asin for goal in synthetic[0][:6]]
    assert len(set(first)) == 6, "each product's first goal comes first"
    assert [len(shop.families[split]) for split in SPLITS] == [6, 6, 18]
    assert bounds_of(12_087) == {"test": (0, 500), "dev": (500, 1500), "train": (1500, 12_087)}
    assert bounds_of(1501)["train"] == (1500, 1501)
    assert bounds_of(1500) == {"test": (0, 300), "dev": (300, 600), "train": (600, 1500)}


def test_search_finds_by_title_description_first_bullet_and_options(shop: WebshopShop) -> None:
    def found(query: str) -> list[str]:
        return [product.asin for product in shop.index.search(query)]

    assert found("borealis floor lamps")[0] in {p.asin for p in shop.products if "Borealis" in p.title}
    assert len(found("floor lamp black")) == 50
    assert set(found("wide")) == {p.asin for p in shop.products if "size" in p.options}
    assert found("ships") == [], "the second bullet is not searched"
    assert found("") == found('"-*:') == found("unheardof") == []
    assert found("lip balm OR NEAR(") == found("LIP  balm or near")


def test_a_seed_names_a_goal_and_seeds_in_a_row_name_different_ones(sites: SiteSettings) -> None:
    tasks = WebshopTasks(sites)
    assert tasks.families() == ("test", "dev", "train", "synthetic_test", "synthetic_dev", "synthetic_train")
    assert tasks.usual() == ("train",)
    made = [tasks.task("synthetic_test", 1_000_000 + seed) for seed in range(20)]
    assert len({task.instruction for task in made}) == 20
    assert made[3] == tasks.task("synthetic_test", 1_000_003)
    assert all(task.max_steps == MAX_STEPS and task.goal["shop"] == tasks.shop.digest for task in made)
    with pytest.raises(SettingsError, match="no task family 'buy'"):
        tasks.task("buy", 0)


def test_tasks_come_from_data_or_from_a_server_or_not_at_all(sites: SiteSettings) -> None:
    assert webshop_tasks(SiteSettings()) is None
    assert isinstance(webshop_tasks(sites), WebshopTasks)
    server = SiteSettings(webshop_url="http://127.0.0.1:3000")
    tasks = webshop_tasks(server)
    assert isinstance(tasks, ServerTasks)
    assert tasks.task("test", 7).goal == {"session": "fixed_7"}
    assert tasks.task("dev", 7).goal == {"session": "fixed_507"}
    assert tasks.task("train", 0).goal == {"session": "fixed_1500"}
