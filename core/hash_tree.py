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
    subtrees: list[tuple[int, bytes]] = []
    """Complete subtrees from the left: number of leaves, and hash."""
    for leaf in leaves:
        size, subtree = 1, leaf
        while subtrees and subtrees[-1][0] == size:
            subtree = node_of(subtrees.pop()[1], subtree)
            size *= 2
        subtrees.append((size, subtree))
    if not subtrees:
        return sha256().digest()
    root = subtrees.pop()[1]
    while subtrees:
        root = node_of(subtrees.pop()[1], root)
    return root
