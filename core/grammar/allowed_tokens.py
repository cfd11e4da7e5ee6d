"""Which tokens an answer's tokens were drawn from, as compact bytes: what a constraint left of the vocabulary, per token.

Invariant 4: a constrained answer's log-probabilities are those of the distribution renormalised over these sets. They
are recorded as they were used, so that scoring, verifying and replaying need neither the constraint nor its code.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from hindcast.core.domain.arrays import pack_ids, unpack_ids
from hindcast.core.errors import CorruptEvent

Allowed = NDArray[np.bool_]
"""A set of tokens  # [vocabulary]."""


class _TokenSet(msgspec.Struct, frozen=True, array_like=True):
    """The ids listed, or all others: whichever list is shorter."""

    others: bool
    ids: bytes


class _Record(msgspec.Struct, frozen=True, array_like=True):
    vocabulary: int
    sets: tuple[_TokenSet, ...]
    """Each once, in the order of their first use."""
    used: bytes
    """int32 per token: index of its set."""


def pack_allowed(sets: Sequence[Allowed]) -> bytes:
    """One set per token, equal ones stored once; b"" for no tokens."""
    if not sets:
        return b""
    known: dict[bytes, int] = {}
    used = [known.setdefault(np.packbits(each).tobytes(), len(known)) for each in sets]
    first = [used.index(number) for number in range(len(known))]
    record = _Record(len(sets[0]), tuple(_packed(sets[place]) for place in first), pack_ids(used))
    return msgspec.msgpack.encode(record)


def unpack_allowed(packed: bytes) -> Allowed:
    """Inverse of `pack_allowed`  # [tokens, vocabulary].

    Raises:
        CorruptEvent: the bytes are none that `pack_allowed` gives.

    """
    try:
        record = msgspec.msgpack.decode(packed, type=_Record)
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
    others = 2 * int(np.count_nonzero(allowed)) > len(allowed)
    return _TokenSet(others, pack_ids(np.flatnonzero(allowed != others).astype(np.int32)))
