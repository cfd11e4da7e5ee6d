"""What tells two pages apart, and where a page was when it was recorded."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hindcast.actors.environments.snapshot import page_digest
from hindcast.actors.replay.pages import Bases, is_same_blob, tell_apart, tell_values_apart
from hindcast.core.domain.observation import Node, Page
from hindcast.core.ids import digest_hex
from hindcast.events.envelope import BlobRef

BASES = Bases.of("http://127.0.0.1:1111/cart?id=3", "http://127.0.0.1:2222/")
BUY = Node(kind="button", tag="button", text="Buy", id=1)


def page(*nodes: Node, url: str = "http://127.0.0.1:1111/cart", ordinal: int = 2) -> Page:
    return Page(url=url, title="Cart", nodes=nodes, ordinal=ordinal)


def test_an_address_of_the_recorded_site_leads_to_the_site_of_now() -> None:
    assert BASES.as_now("http://127.0.0.1:1111/cart") == "http://127.0.0.1:2222/cart"
    assert BASES.as_now("127.0.0.1:1111/cart") == "127.0.0.1:2222/cart"
    assert BASES.as_now("http://127.0.0.1:1111") == "http://127.0.0.1:2222"


def test_any_other_address_stays() -> None:
    for address in (
        "/cart",
        "http://127.0.0.1:11112/",
        "http://example.com/127.0.0.1:1111/",
        "about:blank",
        "",
    ):
        assert BASES.as_now(address) == address


def test_a_folder_is_a_base_too() -> None:
    bases = Bases.of("file:///old/miniwob/click-test.html", "file:///new/lib/miniwob/click-test.html")
    assert (
        bases.as_recorded("file:///new/lib/miniwob/click-test.html") == "file:///old/miniwob/click-test.html"
    )


def test_a_blank_tab_has_no_base_that_could_be_led_anywhere() -> None:
    assert Bases.of("about:blank", "http://127.0.0.1:2222/").as_now("about:blank") == "about:blank"


def test_a_page_is_known_by_its_blob_though_the_site_moved_and_the_blob_is_gone() -> None:
    recorded, now = page(BUY), page(BUY, url="http://127.0.0.1:2222/cart")
    ref = BlobRef(digest_hex(msgspec.msgpack.encode(recorded)), 1)
    assert is_same_blob(now, ref, BASES)
    assert not is_same_blob(page(url="http://127.0.0.1:2222/cart"), ref, BASES)


def test_pages_with_the_same_fingerprint_have_no_difference() -> None:
    assert tell_apart(page(BUY), page(BUY, url="http://127.0.0.1:2222/cart")) == ()


def test_the_difference_names_what_came_and_what_went() -> None:
    lines = tell_apart(page(BUY), page(msgspec.structs.replace(BUY, text="Sold out")))
    assert [line for line in lines if line[0] == "-"] == ["-button Buy [1]  <button> depth 0"]
    assert [line for line in lines if line[0] == "+"] == ["+button Sold out [1]  <button> depth 0"]


NODES = st.builds(
    Node,
    kind=st.sampled_from(["text", "link", "input"]),
    tag=st.sampled_from(["p", "a"]),
    text=st.text("ab ", max_size=3),
    id=st.none() | st.integers(1, 3),
    value=st.none() | st.sampled_from(["", "x"]),
    checked=st.none() | st.booleans(),
    attributes=st.dictionaries(st.sampled_from(["class", "selected"]), st.just("true"), max_size=1),
    depth=st.integers(0, 1),
)
PAGES = st.builds(
    Page,
    url=st.sampled_from(["http://h/a", "http://h/b"]),
    title=st.sampled_from(["", "t"]),
    nodes=st.lists(NODES, max_size=3).map(tuple),
    ordinal=st.integers(0, 1),
    truncated=st.booleans(),
)


@given(PAGES, PAGES)
def test_pages_are_told_apart_exactly_when_their_fingerprints_differ(one: Page, other: Page) -> None:
    assert bool(tell_apart(one, other)) == (page_digest(one) != page_digest(other))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_values_are_told_apart_exactly_when_they_differ(one: Any, other: Any) -> None:
    assert bool(tell_values_apart(one, other)) == (one != other)


def test_the_place_of_a_differing_value_is_named() -> None:
    one = {"state": {"cart": [{"quantity": 2}]}, "gone": 1}
    other = {"state": {"cart": [{"quantity": 3}]}}
    assert tell_values_apart(one, other) == (
        "gone: recorded 1, now nothing",
        "state.cart[0].quantity: recorded 2, now 3",
    )
