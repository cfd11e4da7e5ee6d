"""The hash tree of RFC 6962 (Merkle): one root for a sequence of entries.

    leaf = SHA-256(0x00 || entry)      node = SHA-256(0x01 || left || right)

A leaf is never taken for a node. The left subtree of n entries holds the largest power of two below n.
"""

from collections.abc import Iterable
from hashlib import sha256


def leaf_of(entry: bytes) -> bytes:
    """The hash of an entry."""
    return sha256(b"\x00" + entry).digest()


def node_of(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees."""
    return sha256(b"\x01" + left + right).digest()


def root_of(leaves: Iterable[bytes]) -> bytes:
    """The root over leaves, computed as they come; memory is the logarithm of their number. Of none: SHA-256 of nothing."""
    whole: list[tuple[int, bytes]] = []
    """Complete subtrees from the left: number of leaves, and hash."""
    for leaf in leaves:
        size, found = 1, leaf
        while whole and whole[-1][0] == size:
            found = node_of(whole.pop()[1], found)
            size *= 2
        whole.append((size, found))
    if not whole:
        return sha256().digest()
    root = whole.pop()[1]
    while whole:
        root = node_of(whole.pop()[1], root)
    return root
