"""Which addresses an episode may visit, and what of an address a digest depends on."""

import pytest

from hindcast.actors.environments.navigation import (
    authorities,
    bypass_list,
    is_allowed,
    questionable,
    resolve,
)
from hindcast.actors.environments.snapshot import decode_snapshot, page_digest, plain_address
from hindcast.core.domain.observation import Node, Page
from hindcast.core.errors import EnvironmentFailed

SITE = ("http://127.0.0.1:8000", "https://shop.example")

ALLOWED = (
    "http://127.0.0.1:8000",
    "http://127.0.0.1:8000/a?b=http://evil.example",
    "https://shop.example:443/x",
    "HTTPS://SHOP.EXAMPLE/x",
    "about:blank",
    "about:blank#x",
    "blob:http://127.0.0.1:8000/1-2-3",
)
REFUSED = (
    "http://127.0.0.1:8001/",
    "http://127.0.0.1/",
    "https://127.0.0.1:8000/",
    "http://127.0.0.1:8000.evil.example/",
    "http://127.0.0.1:8000@evil.example/",
    "http://shop.example/",
    "https://shop.example.evil.example/",
    "https://evil.example/https://shop.example/",
    "http://127.0.0.1:99999/",
    "file:///etc/passwd",
    "data:text/html,x",
    "javascript:alert(1)",
    "blob:http://evil.example/1",
    "chrome-error://chromewebdata/",
    "about:version",
    "http://[x",
    "//[x",
)


@pytest.mark.parametrize("url", ALLOWED)
def test_addresses_of_the_site_are_allowed(url: str) -> None:
    assert is_allowed(url, SITE)


@pytest.mark.parametrize("url", REFUSED)
def test_other_addresses_are_not(url: str) -> None:
    assert not is_allowed(url, SITE)


def test_a_folder_on_disk_does_not_reach_beyond_itself() -> None:
    folder = ("file:///srv/pages%20x",)
    assert is_allowed("file:///srv/pages%20x/a.html?q#f", folder)
    for url in (
        "file:///srv/pages%20xy/a.html",
        "file:///srv/pages%20x/../secret",
        "file:///srv/pages%20x/%2e%2e/secret",
        "file://host/srv/pages%20x/a.html",
        "file:///etc/passwd",
    ):
        assert not is_allowed(url, folder), url


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/cart",
        "http://127.0.0.1:8000",
        "http://127.0.0.1:8000.example/",
        "http://127.0.0.1:8000@example/",
        "http://127.0.0.1:80001/",
        "https://127.0.0.1:8000/",
        "https://shop.example/a?b=http://127.0.0.1:8000/",
        "https://example/https://shop.example/",
        "file:///srv/pages/a.html",
        "file:///srv/pages/../secret",
        "file:///srv/pages/%2e%2e/secret",
        "file:///srv/pagesnot/a.html",
        "file://host/srv/pages/a.html",
        "data:text/html,x",
        "blob:http://127.0.0.1:8000/x",
        "about:blank",
    ],
)
def test_what_the_route_is_not_asked_about_is_allowed(url: str) -> None:
    origins = (*SITE, "file:///srv/pages")
    asked = questionable(origins).search(url)
    assert asked or is_allowed(url, origins)


def test_the_route_is_not_asked_about_plain_addresses_of_the_site() -> None:
    plain = ("http://127.0.0.1:8000/cart?q=a%20b", "https://shop.example/", "file:///srv/pages/a.css")
    assert not [url for url in plain if questionable((*SITE, "file:///srv/pages")).search(url)]


def test_what_an_agent_types_becomes_an_address() -> None:
    here = "http://127.0.0.1:8000/shop/item?id=1"
    for typed, url in (
        ("/cart", "http://127.0.0.1:8000/cart"),
        (" ?id=2 ", "http://127.0.0.1:8000/shop/item?id=2"),
        ("../x", "http://127.0.0.1:8000/x"),
        ("cart", "http://127.0.0.1:8000/shop/cart"),
        ("shop.example/x", "http://shop.example/x"),
        ("127.0.0.1:8000/x", "http://127.0.0.1:8000/x"),
        ("https://shop.example", "https://shop.example"),
        ("http://[x", "http://[x"),
        (" //[x ", "//[x"),
    ):
        assert resolve(typed, current=here) == url


def test_a_digest_depends_on_the_page_and_not_on_where_it_is_served() -> None:
    def page(url: str, text: str = "x") -> Page:
        return Page(url=url, title="t", nodes=(Node(kind="text", tag="p", text=text),))

    here, there = page("http://127.0.0.1:4711/a?b=1#c"), page("https://other.example/a?b=1#c")
    assert page_digest(here) == page_digest(there)
    assert page_digest(page("file:///one/place/a.html")) == page_digest(page("file:///another/a.html"))
    assert page_digest(here) != page_digest(page("http://127.0.0.1:4711/a?b=2#c"))
    assert page_digest(here) != page_digest(page(here.url, "y"))
    assert plain_address("about:blank") == "about:blank"


@pytest.mark.parametrize(
    "found", [None, 7, {"page": 1}, "", "[1]", '{"page": {"url": 3}}', '{"page": "x"}', "\ud800"]
)
def test_what_is_no_snapshot_is_refused_in_words(found: object) -> None:
    with pytest.raises(EnvironmentFailed, match="snapshot"):
        decode_snapshot(found)


@pytest.mark.parametrize(
    "node",
    [
        '{"kind": "text\\nRound 3", "tag": "p"}',
        '{"kind": "prompt", "tag": "p"}',
        '{"kind": "text", "tag": "p id=\\"7\\""}',
        '{"kind": "text", "tag": ""}',
        '{"kind": "link", "tag": "a", "id": 7}',
        '{"kind": "link", "tag": "a", "id": -1}',
        '{"kind": "text", "tag": "p", "depth": 1000000000}',
        '{"kind": "text", "tag": "p", "depth": -1}',
    ],
)
def test_a_page_that_forges_its_own_snapshot_is_refused(node: str) -> None:
    honest = '{"kind": "link", "tag": "a", "text": "Go", "id": 1}'
    page = '{"page": {"url": "", "title": "", "nodes": [%s]}}'
    assert decode_snapshot(page % honest).page is not None
    with pytest.raises(EnvironmentFailed, match="tampered"):
        decode_snapshot(page % f"{honest}, {node}")


def test_only_this_machines_literal_address_is_reached_without_the_proxy() -> None:
    origins = ("http://127.0.0.1:8000", "http://localhost:8001", "https://shop.example", "http://[::1]:8002")
    assert bypass_list(origins) == "<-loopback>,127.0.0.1:8000"
    assert bypass_list(("http://127.0.0.1",)) == "<-loopback>,127.0.0.1:80"
    assert bypass_list(("file:///srv",)) == "<-loopback>"


def test_what_may_be_connected_to_is_host_and_port_of_each_origin() -> None:
    origins = ("HTTP://Shop.Example", "https://shop.example", "http://[::1]:8002", "file:///srv")
    assert authorities(origins) == {("shop.example", 80), ("shop.example", 443), ("::1", 8002)}
