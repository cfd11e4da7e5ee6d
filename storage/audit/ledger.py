"""What an audit keeps of every event: 20 bytes, to check later references to positions and ids.

This is the only state that grows with every event; the rest grows with episodes, tasks and producers.
"""

from array import array
from bisect import bisect_right

import numpy as np

NO_EPISODE = -1
FIRST_READING = -2
"""Mark of a reading of episode 0; it decreases by one for each next episode."""


def _key(text: str) -> int:
    """64 bits of an event's id: the last half of a UUID, which is random."""
    try:
        return (
            int(text[19:].replace("-", ""), 16) & 0xFFFFFFFFFFFFFFFF if len(text) == 36 else _last_bytes(text)
        )
    except ValueError:
        return _last_bytes(text)


def _last_bytes(text: str) -> int:
    """The last bytes of an id that is no UUID."""
    return int.from_bytes(text.encode()[-8:], "little")


class Ledger:
    """Per event: key of its id, first 8 bytes of its digest, and the episode whose step or reading it is."""

    def __init__(self) -> None:
        self._ids = array("Q")
        self._digests = array("Q")
        self._episodes = array("i")
        self._starts: list[tuple[int, int]] = []
        """Stretches of consecutive positions: first position, and its index."""
        self._last = 0
        self._causes = array("Q")
        self._caused = array("Q")
        """Index of the event that names a cause."""

    def add(self, position: int, event_id: str, digest: bytes, *, cause: str | None) -> None:
        """Add the next event; positions increase."""
        if not self._starts or position != self._last + 1:
            self._starts.append((position, len(self._ids)))
        self._last = position
        self._ids.append(_key(event_id))
        self._digests.append(int.from_bytes(digest[:8], "little"))
        self._episodes.append(NO_EPISODE)
        if cause is not None:
            self._causes.append(_key(cause))
            self._caused.append(len(self._ids) - 1)

    def mark_step(self, episode: int) -> None:
        """Mark the last event as a step of the episode with this number."""
        self._episodes[-1] = episode

    def mark_reading(self, episode: int) -> None:
        """Mark the last event as a language model's reading of the episode with this number."""
        self._episodes[-1] = FIRST_READING - episode

    def _index(self, position: int) -> int | None:
        stretch = bisect_right(self._starts, position, key=lambda start: start[0]) - 1
        if stretch < 0:
            return None
        first, index = self._starts[stretch]
        end = self._starts[stretch + 1][1] if stretch + 1 < len(self._starts) else len(self._ids)
        event_index = index + position - first
        return event_index if event_index < end else None

    def digest_start(self, position: int) -> bytes | None:
        """First 8 bytes of the sha256 of the event at a position; None if none was read."""
        index = self._index(position)
        return None if index is None else self._digests[index].to_bytes(8, "little")

    def episode_of(self, position: int) -> int:
        """Number of the episode whose step is at a position, or `NO_EPISODE`."""
        index = self._index(position)
        return NO_EPISODE if index is None else max(NO_EPISODE, self._episodes[index])

    def read_at(self, position: int) -> int:
        """Number of the episode whose reading is at a position, or `NO_EPISODE`."""
        index = self._index(position)
        mark = NO_EPISODE if index is None else self._episodes[index]
        return FIRST_READING - mark if mark <= FIRST_READING else NO_EPISODE

    def _position(self, index: int) -> int:
        stretch = bisect_right(self._starts, index, key=lambda start: start[1]) - 1
        first, began = self._starts[stretch]
        return first + index - began

    def repeated(self) -> list[tuple[int, int]]:
        """Pairs of positions of events with the same id: the earlier, the later."""
        ids = np.frombuffer(self._ids, dtype=np.uint64) if self._ids else np.empty(0, np.uint64)
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        repeats = np.flatnonzero(ordered[1:] == ordered[:-1])
        return [(self._position(int(order[i])), self._position(int(order[i + 1]))) for i in repeats]

    def uncaused(self) -> list[int]:
        """Positions of events that name a cause which is not before them."""
        if not self._causes:
            return []
        ids = np.frombuffer(self._ids, dtype=np.uint64)
        causes = np.frombuffer(self._causes, dtype=np.uint64)
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        slots = np.minimum(np.searchsorted(ordered, causes), len(ids) - 1)
        caused = np.frombuffer(self._caused, dtype=np.uint64).astype(np.int64)
        holds = (ordered[slots] == causes) & (order[slots] < caused)
        return [self._position(int(index)) for index in caused[~holds]]
