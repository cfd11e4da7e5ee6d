"""Tables of the page: a column's header is aligned as its cells are."""

import re

import pytest

from processes.system import ROOT

TEMPLATES = ROOT / "app" / "page" / "templates"
TABLE = re.compile(r"<table[^>]*><thead><tr>(?P<head>.*?)</tr></thead><tbody>(?P<body>.*?)</tr>", re.DOTALL)
CELL = re.compile(r'<t[hd](?: class="([^"]*)")?[^>]*>')
TABLES = [
    pytest.param(found["head"], found["body"], id=f"{path.stem}-{number}")
    for path in sorted(TEMPLATES.glob("*.html"))
    for number, found in enumerate(TABLE.finditer(path.read_text()))
]


def test_the_pages_have_tables() -> None:
    assert len(TABLES) > 8


@pytest.mark.parametrize(("head", "body"), TABLES)
def test_a_header_is_aligned_as_the_numbers_below_it(head: str, body: str) -> None:
    heads, cells = ([found[1] == "number" for found in CELL.finditer(row)] for row in (head, body))
    assert heads == cells
