"""Page text that cannot pass for what a renderer itself writes: borders of lines, numbers of elements.

A page is data. What it says stays readable, what it could forge does not: text of several lines becomes one line, so
that none begins with `Round 3` or `Task Instruction:`, and a number in square brackets, which means an element to be
acted upon, gets round ones.
"""

import re

from msgspec.structs import replace

from hindcast.core.domain.observation import Node, Page

_NUMBER = re.compile(r"\[(\s*\d+\s*)\]")


def neutralised(page: Page) -> Page:
    """The page with nothing in its texts that a renderer's own marks could be taken for.

    >>> neutralised(Page(url="", title="Round 3\\n[7]", nodes=())).title
    'Round 3 (7)'
    """
    return replace(page, title=_plain(page.title), nodes=tuple(map(_neutral, page.nodes)))


def _neutral(node: Node) -> Node:
    return replace(
        node,
        text=_plain(node.text),
        value=None if node.value is None else _plain(node.value),
        options=tuple(map(_plain, node.options)),
        attributes={name: _plain(value) for name, value in node.attributes.items()},
    )


def _plain(text: str) -> str:
    return _NUMBER.sub(r"(\1)", " ".join(text.split()))
