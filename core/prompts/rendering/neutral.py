"""Neutralizes page text that could pass for a renderer's own output: line breaks and element numbers.

A page is data. Text of several lines becomes one line, so that no line begins with `Round 3` or `Task Instruction:`. A
number in square brackets, which denotes an element, gets round ones. The text stays readable.
"""

import re

from msgspec.structs import replace

from hindcast.core.domain.observation import Node, Page

_NUMBER = re.compile(r"\[(\s*\d+\s*)\]")


def neutralised(page: Page) -> Page:
    """Neutralize all texts of a page.

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
