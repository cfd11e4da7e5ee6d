"""Compares two pages and describes their differences; maps addresses between the recorded site and the present one. Pure.

The store's port changes with each start, and MiniWoB++'s folder with each machine. Therefore only the `plain_address` part
of addresses is compared, as in fingerprints.
"""

import difflib
from typing import Any

import msgspec

from hindcast.actors.environments.snapshot import page_digest, plain_address
from hindcast.core.domain.observation import Node, Page
from hindcast.core.ids import digest_hex
from hindcast.core.prompts.rendering.lines import render_line
from hindcast.events.envelope import BlobRef

GONE = (
    "the recorded page is missing: its blob was deleted (storage.keep_page_episodes) or removed; only its fingerprint "
    "is left"
)
CONTEXT_LINES = 1
"""Number of unchanged lines around each change."""


class Bases(msgspec.Struct, frozen=True):
    """The part of the site's addresses before the plain address, in the recording and now."""

    recorded: str
    now: str

    @classmethod
    def of(cls, recorded_url: str, now_url: str) -> "Bases":
        """Build it from the recorded and the present address of a page of the site."""
        return cls(base_of(recorded_url), base_of(now_url))

    def as_now(self, address: str) -> str:
        """Map a recorded address to the present site; addresses of other sites stay unchanged."""
        return _moved(address, self.recorded, self.now)

    def as_recorded(self, address: str) -> str:
        """Map an address of the present site to the recorded site."""
        return _moved(address, self.now, self.recorded)


def base_of(url: str) -> str:
    """Return the part before the plain address: scheme, host and port, or a folder; empty for `about:blank`.

    >>> base_of("http://127.0.0.1:4711/cart?id=3")
    'http://127.0.0.1:4711'
    """
    return url.removesuffix(plain_address(url))


def _moved(address: str, old: str, new: str) -> str:
    if not old or not new:
        return address
    bare_old, bare_new = old.partition("://")[2], new.partition("://")[2]
    for old_start, new_start in ((old, new), (bare_old, bare_new)):
        path = address.removeprefix(old_start)
        if old_start and path != address and path[:1] in ("", "/", "?", "#"):
            return new_start + path
    return address


def is_same_blob(page: Page, ref: BlobRef, bases: Bases) -> bool:
    """Whether a page, encoded with the recorded address, has the digest of a stored one."""
    page_as_recorded = msgspec.structs.replace(page, url=bases.as_recorded(page.url))
    return digest_hex(msgspec.msgpack.encode(page_as_recorded)) == ref.sha256


def tell_apart(recorded: Page, replayed: Page) -> tuple[str, ...]:
    """List the differences of two pages as lines: `-` recorded, `+` now; empty for equal fingerprints."""
    if page_digest(recorded) == page_digest(replayed):
        return ()
    # pages with equal text may differ in their fields, for instance an empty value and a missing one
    return (
        _changes(_lines(recorded), _lines(replayed))
        or _changes([repr(node) for node in recorded.nodes], [repr(node) for node in replayed.nodes])
        or _changes(_outline(recorded), _outline(replayed))
    )


def _outline(page: Page) -> list[str]:
    return [] if page.outline is msgspec.UNSET else [repr(element) for element in page.outline]


def _changes(recorded: list[str], replayed: list[str]) -> tuple[str, ...]:
    return tuple(
        line
        for line in difflib.unified_diff(recorded, replayed, n=CONTEXT_LINES, lineterm="")
        if not line.startswith(("---", "+++", "@@"))
    )


def _lines(page: Page) -> list[str]:
    return [
        f"address {plain_address(page.url)}",
        f"title {page.title}",
        f"facts of the site so far {page.ordinal}",
        *(_line(node) for node in page.nodes),
        *(["more that was cut off"] if page.truncated else []),
    ]


def _line(node: Node) -> str:
    """Format a node as a policy reads it, followed by what renderers leave out."""
    attributes = " ".join(f"{name}={value!r}" for name, value in sorted(node.attributes.items()))
    return f"{render_line(node)}  <{node.tag}{f' {attributes}' if attributes else ''}> depth {node.depth}"


def tell_values_apart(recorded: Any, replayed: Any, *, path: str = "") -> tuple[str, ...]:
    """List where two plain values differ, one line for each place: `state.cart[0].quantity: recorded 2, now 3`."""
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        return tuple(
            line
            for key in sorted({*recorded, *replayed})
            for line in tell_values_apart(
                recorded.get(key, _ABSENT), replayed.get(key, _ABSENT), path=f"{path}.{key}".lstrip(".")
            )
        )
    if isinstance(recorded, list) and isinstance(replayed, list) and len(recorded) == len(replayed):
        return tuple(
            line
            for index, (recorded_item, replayed_item) in enumerate(zip(recorded, replayed, strict=True))
            for line in tell_values_apart(recorded_item, replayed_item, path=f"{path}[{index}]")
        )
    return () if recorded == replayed else (f"{path}: recorded {_show(recorded)}, now {_show(replayed)}",)


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


_ABSENT = _Absent()
SHOWN_CHARS = 160
"""Maximum number of characters of a value in a difference."""


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"
