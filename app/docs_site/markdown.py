"""Markdown from what code says of itself."""

import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`+.*?`+)")
_LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)\s]+)\)")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; what is in its cells stays one line and splits no column."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def code(text: str) -> str:
    """As code, whatever it contains."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text else ""


def _cell(text: str) -> str:
    # what stands in code is no separator to the builder, and would keep the backslash
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if part.startswith("`") else part.replace("|", "\\|") for part in parts)


def relink(text: str, places: dict[str, str]) -> str:
    """Links of a repository's page as links of a site's page.

    places: target as the page writes it, without what follows `#` -> target on the site. What has no place on the site
    (a source file) becomes its name alone, a picture nothing.
    """

    def place(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        path, mark, part = target.partition("#")
        if "://" in target or not path:
            return found.group()
        if path in places:
            return f"{picture}[{words}]({places[path]}{mark}{part})"
        return "" if picture else words

    return _LINK.sub(place, text)
