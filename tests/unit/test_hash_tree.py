"""RFC 6962's hash tree: the published vectors."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hindcast.core.hash_tree import leaf_of, node_of, root_of

VECTORS = [
    "",
    "00",
    "10",
    "2021",
    "3031",
    "40414243",
    "5051525354555657",
    "606162636465666768696a6b6c6d6e6f",
]
"""The entries of Certificate Transparency's reference tests, in hexadecimal."""
ROOTS = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


@pytest.mark.parametrize("count", ROOTS)
def test_roots_are_those_of_the_reference(count: int) -> None:
    assert root_of(leaf_of(bytes.fromhex(one)) for one in VECTORS[:count]).hex() == ROOTS[count]


def test_the_root_of_nothing_is_the_hash_of_nothing() -> None:
    assert root_of([]) == sha256(b"").digest()


def split_root(leaves: list[bytes]) -> bytes:
    """The definition in RFC 6962, section 2.1, word for word."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while 2 * split < len(leaves):
        split *= 2
    return node_of(split_root(leaves[:split]), split_root(leaves[split:]))


@given(st.lists(st.binary(max_size=4), min_size=1, max_size=70))
def test_the_root_that_is_computed_in_one_pass_is_the_defined_one(entries: list[bytes]) -> None:
    leaves = [leaf_of(one) for one in entries]
    assert root_of(iter(leaves)) == split_root(leaves)


def test_a_node_is_never_taken_for_a_leaf() -> None:
    left, right = leaf_of(b"a"), leaf_of(b"b")
    assert node_of(left, right) != leaf_of(left + right)
