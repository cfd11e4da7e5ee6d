"""Recorded pages drawn part by part: what stands in a row, what was touched, what changed."""

import msgspec

from hindcast.app.page.drawn_page import DEEPEST, PageDrawing, draw_page
from hindcast.app.page.rendering import environment
from hindcast.core.domain.observation import KINDS, Node, Page

HOSTILE = "<script>window.pwned = 1</script>"


def a_page(*nodes: Node) -> Page:
    return Page(url="http://127.0.0.1/", title=HOSTILE, nodes=nodes)


FIRST = a_page(
    Node(kind="link", tag="a", text="Home", id=1, depth=2),
    Node(kind="link", tag="a", text="Cart", id=2, depth=2),
    Node(kind="heading", tag="h1", text="Mug", depth=1),
    Node(kind="button", tag="button", text="Buy", id=3, depth=1),
    Node(kind="text", tag="p", text="$7.98", depth=1),
    Node(kind="text", tag="p", text="$7.98", depth=20),
)


def drawn(page: PageDrawing) -> str:
    return str(environment().get_template("drawing.html").module.drawing(page))


def test_links_and_buttons_of_one_depth_share_a_row_and_texts_stand_alone() -> None:
    rows = draw_page(FIRST, touched=None, before=None).rows
    assert [[part.node.text for part in row.parts] for row in rows] == [
        ["Home", "Cart"],
        ["Mug"],
        ["Buy"],
        ["$7.98"],
        ["$7.98"],
    ]
    assert [row.depth for row in rows] == [1, 0, 0, 0, DEEPEST]


def test_what_the_page_before_did_not_have_is_marked_each_as_often_as_it_is_new() -> None:
    later = a_page(
        *(msgspec.structs.replace(node, id=None if node.id is None else node.id + 5) for node in FIRST.nodes),
        Node(kind="text", tag="p", text="$7.98", depth=1),
        Node(kind="input", tag="input", text="Quantity", value="2", id=20),
    )
    page = draw_page(later, touched=20, before=FIRST)
    parts = [part for row in page.rows for part in row.parts]
    assert [part.node.kind for part in parts if part.changed] == ["text", "input"], "a number is no content"
    assert page.changed == 2
    assert [part.node.text for part in parts if part.touched] == ["Quantity"]
    assert draw_page(FIRST, touched=None, before=None).changed is None
    assert draw_page(FIRST, touched=None, before=FIRST).changed == 0


def test_every_kind_is_drawn_and_what_the_site_wrote_is_text() -> None:
    nodes = [
        Node(
            kind=kind,
            tag=HOSTILE,
            text=f"{HOSTILE} {kind}",
            id=place,
            value=HOSTILE,
            checked=True,
            options=(HOSTILE, "other"),
        )
        for place, kind in enumerate(KINDS)
    ]
    text = drawn(draw_page(a_page(*nodes), touched=4, before=None))
    assert "<script" not in text
    assert "not a screenshot" in text
    for kind in KINDS:
        assert f'class="part part-{kind}' in text
    assert text.count(" acted") == 1
    assert "The page has no visible part" in drawn(draw_page(a_page(), touched=None, before=None))
