"""Values, documents and command lines as nobody should write them: something valid, changed in one or a few places."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from hindcast.core.text.toml import as_toml

Draw = Callable[..., Any]
DEEP = 5000
"""Levels that exhaust a recursive reader."""

INTEGERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30, -(10**30), 10**400]),
)
FLOATS = st.one_of(
    st.sampled_from([float("inf"), float("-inf"), float("nan"), 1e308, -1e308, 5e-324, -0.0, 1e400, 0.5]),
    st.floats(allow_nan=True),
)
TEXTS = st.one_of(
    st.sampled_from(
        ["", " ", "\n", "a\nb", "../..", "/", "~nobody", "é", "日本語", "\u202e", "\x1b[2J", "\x7f", "%s{0}"]
    ),
    st.sampled_from(
        ["x" * 5000, "inf", "nan", "1e999", "9" * 5000, "0x10", "٣", "true", "None", "[", "]]", "'"]
    ),
    st.sampled_from(
        ["store", "stroe", "store/find_prize", "store/buy:1", "rules", "ruels", "cuda:9", "http://"]
    ),
    st.text(max_size=8),
)
BEYOND = st.sampled_from(["\0", "a\0b", "\ud800", "\udcff"])
"""Text that cannot be written: null characters, and bytes that are no UTF-8 as Python passes them on."""
SCALARS = st.one_of(INTEGERS, FLOATS, TEXTS, st.booleans())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def changed(draw: Draw, content: Any, values: st.SearchStrategy[Any] = VALUES, *, most: int = 2) -> Any:
    """Plain content with one or a few places changed: another value, a key gone, misspelled or added, a list repeated."""
    found = json.loads(json.dumps(content))
    for _ in range(draw(st.integers(1, most))):
        found = draw(_once(found, values))
    return found


@st.composite
def _once(draw: Draw, content: Any, values: st.SearchStrategy[Any]) -> Any:
    if isinstance(content, dict) and content:
        key = draw(st.sampled_from(sorted(content)))
        what = draw(
            st.sampled_from(["inside", "inside", "inside", "value", "value", "gone", "named", "added"])
        )
        if what == "inside":
            return {**content, key: draw(_once(content[key], values))}
        if what == "value":
            return {**content, key: draw(values)}
        rest = {name: value for name, value in content.items() if name != key}
        if what == "gone":
            return rest
        if what == "named":
            return {**rest, draw(st.sampled_from([key[:-1], key + "x", key.upper()])): content[key]}
        return {**content, draw(st.text(max_size=6)): draw(values)}
    if isinstance(content, list) and content:
        place = draw(st.integers(0, len(content) - 1))
        what = draw(st.sampled_from(["inside", "inside", "value", "twice", "gone"]))
        if what == "twice":
            return [*content, content[place]]
        middle = {"inside": lambda: [draw(_once(content[place], values))], "value": lambda: [draw(values)]}
        return [*content[:place], *middle.get(what, list)(), *content[place + 1 :]]
    return draw(st.one_of(_alike(content), values))


def _alike(value: Any) -> st.SearchStrategy[Any]:
    """Other values of a value's own kind."""
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int | float):
        near = [value + 1, value - 1, -value, value * 1000, value // 1000]
        return st.one_of(INTEGERS, FLOATS, st.sampled_from(near))
    if isinstance(value, str):
        return st.one_of(TEXTS, st.sampled_from([value + "x", value[1:], value.upper(), f" {value}"]))
    return VALUES


def toml_of(content: dict[str, Any]) -> str:
    """A document of sections; what TOML has no form for comes out as it may."""
    lines = [
        f"{_key(name)} = {as_toml(value)}" for name, value in content.items() if not isinstance(value, dict)
    ]
    for section, values in content.items():
        if isinstance(values, dict):
            lines += [f"[{_key(section)}]"]
            lines += [f"{_key(name)} = {as_toml(value)}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")


@st.composite
def damaged(draw: Draw, text: str) -> bytes:
    """A text's bytes: as they are, or cut, doubled, with bytes that are no UTF-8, or nested beyond any reader."""
    content = text.encode(errors="surrogatepass")
    how = draw(st.sampled_from(["whole"] * 12 + ["cut", "twice", "bytes", "deep", "flip"]))
    if how == "cut":
        return content[: draw(st.integers(0, len(content)))]
    if how == "twice":
        return content + content
    if how == "bytes":
        return content + draw(st.sampled_from([b"\xff\xfe", b"\0", b"\xed\xa0\x80", b"\xef\xbb\xbf"]))
    if how == "deep":
        return content + draw(st.sampled_from([b"a = " + b"[" * DEEP, b"[" * DEEP, b'{"a":' * DEEP]))
    if how == "flip" and content:
        place = draw(st.integers(0, len(content) - 1))
        return (
            content[:place] + bytes([content[place] ^ (1 << draw(st.integers(0, 7)))]) + content[place + 1 :]
        )
    return content
