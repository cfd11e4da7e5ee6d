"""Packing of allowed token sets: the part of the vocabulary that a constraint left for each token of an answer.

Invariant 4: a constrained answer's log-probabilities are those of the distribution renormalized over these sets. The sets
are recorded, so that scoring, verifying and replaying need neither the constraint nor its code.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindcast.core.domain.arrays import pack_ids, unpack_ids
from hindcast.core.errors import CorruptEvent
from hindcast.core.structs import decode_msgpack

Allowed = NDArray[np.bool_]
"""A set of tokens  # [vocabulary]."""


class _TokenSet(msgspec.Struct, frozen=True, array_like=True):
    """The listed ids or, if `others`, all other ids: the shorter list is stored."""

    others: bool
    ids: bytes


class _Record(msgspec.Struct, frozen=True, array_like=True):
    vocabulary: int
    sets: tuple[_TokenSet, ...]
    """Distinct sets, in the order of first use."""
    used: bytes
    """int32 per token: index of its set."""


def pack_allowed(sets: Sequence[Allowed]) -> bytes:
    """Pack one set per token, equal ones once; b"" for no tokens."""
    if not sets:
        return b""
    index_of: dict[bytes, int] = {}
    indices = [index_of.setdefault(np.packbits(each).tobytes(), len(index_of)) for each in sets]
    first = [indices.index(number) for number in range(len(index_of))]
    record = _Record(len(sets[0]), tuple(_packed(sets[position]) for position in first), pack_ids(indices))
    return msgspec.msgpack.encode(record)


def unpack_allowed(packed: bytes) -> Allowed:
    """Unpack what `pack_allowed` packed  # [tokens, vocabulary].

    Raises:
        CorruptEvent: `pack_allowed` cannot have made these bytes.
    """
    try:
        record = decode_msgpack(packed, _Record)
        sets = np.zeros((len(record.sets), record.vocabulary), dtype=np.bool_)
        for row, each in zip(sets, record.sets, strict=True):
            row[unpack_ids(each.ids)] = True
            if each.others:
                np.logical_not(row, out=row)
        return sets[unpack_ids(record.used)]
    except (msgspec.DecodeError, IndexError, ValueError) as error:
        raise CorruptEvent(
            f"a step's {len(packed)} bytes of allowed tokens are none: {error}. Run: hindcast audit"
        ) from error


def _packed(allowed: Allowed) -> _TokenSet:
    inverted = 2 * int(np.count_nonzero(allowed)) > len(allowed)
    return _TokenSet(inverted, pack_ids(np.flatnonzero(allowed != inverted).astype(np.int32)))
