"""Which page snapshots are still wanted. Pure: a fold of events' envelopes, as large as what is kept.

Kept are the pages of running episodes, of ended ones that still wait for a judge, and of the latest ended ones, up to a
number from the settings. A page is stored once however many steps show it. It is due for release once no kept episode
shows it, and no longer due when another event names it. The learner needs no pages: it trains from the tokens in events.
"""

from collections.abc import Sequence

import msgspec

from hindcast.core.settings.schema import Settings
from hindcast.core.structs import msgpack_decoder
from hindcast.events.blob_references import RELEASING, blobs_in
from hindcast.events.envelope import BlobRef, Envelope
from hindcast.storage.snapshots import SnapshotKind

REQUESTED, ENDED, JUDGED = "episode.requested", "episode.ended", "episode.judged"
GIVEN_UP = ("episode.abandoned", "episode.cancelled")
RULES = ("hindcast.storage.blobs.wanted_pages", "hindcast.events.blob_references")
"""Modules whose code decides what the state is."""


class _About(msgspec.Struct, frozen=True):
    """The part of a payload that names its episode."""

    episode: str


class _Judge(msgspec.Struct, frozen=True):
    name: str


class _Verdict(msgspec.Struct, frozen=True):
    episode: str
    judge: _Judge


_about = msgpack_decoder(_About)
_verdict = msgpack_decoder(_Verdict)


class KeptEpisode(msgspec.Struct):
    """One episode whose pages are kept."""

    pages: set[str] = msgspec.field(default_factory=set)
    """Digests of its pages."""
    judges: set[str] = msgspec.field(default_factory=set)
    """Judges whose verdict is missing."""


class ReleasablePage(msgspec.Struct, frozen=True):
    """A page with the last event that named it."""

    size: int
    position: int
    """Position of that event."""
    named_ns: int
    """Time of that event, by its producer's clock."""

    def ref(self, sha256: str) -> BlobRef:
        """Reference to the blob."""
        return BlobRef(sha256, self.size)


class PageState(msgspec.Struct):
    """What the log says about pages up to `position`."""

    position: int = 0
    occurred_ns: int = 0
    """Latest time of an event so far."""
    under_way: dict[str, KeptEpisode] = msgspec.field(default_factory=dict)
    ended: dict[str, KeptEpisode] = msgspec.field(default_factory=dict)
    """Ended episodes in the order in which they ended."""
    last_named: dict[str, ReleasablePage] = msgspec.field(default_factory=dict)
    """Every kept page, by digest."""
    uses: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of kept episodes that show a page, by digest."""
    due: dict[str, ReleasablePage] = msgspec.field(default_factory=dict)
    """Pages to release, by digest."""


class PageWindow:
    """The rule: keep the latest `keep` ended episodes, and those without a verdict of all `judges`."""

    def __init__(self, *, keep: int, judges: Sequence[str]) -> None:
        self._keep = keep
        self._judges = frozenset(judges)

    def apply(self, state: PageState, position: int, envelope: Envelope) -> None:
        """Take in the next event; changes the state in place."""
        state.position = position
        state.occurred_ns = max(state.occurred_ns, envelope.occurred_ns)
        kind = envelope.type
        if kind == JUDGED:
            verdict = _verdict.decode(envelope.payload)
            if verdict.episode in state.ended:
                state.ended[verdict.episode].judges.discard(verdict.judge.name)
                self._slide(state)
            return
        if kind == REQUESTED:
            state.under_way.setdefault(_about.decode(envelope.payload).episode, KeptEpisode())
        pages = [] if kind == RELEASING else [blob for blob, page in blobs_in(envelope) if page]
        ends = kind == ENDED or kind in GIVEN_UP
        if not pages and not ends:
            return
        episode = _about.decode(envelope.payload).episode
        episode_state = state.under_way.get(episode) or state.ended.get(episode)
        for blob in pages:
            _show(
                state, episode_state, blob.sha256, ReleasablePage(blob.size, position, envelope.occurred_ns)
            )
        if ends and (ending := state.under_way.pop(episode, None)) is not None and ending.pages:
            ending.judges = set(self._judges) if kind == ENDED else set()
            state.ended[episode] = ending
            self._slide(state)

    def _slide(self, state: PageState) -> None:
        """Drop the oldest ended episodes beyond `keep`, except those that wait for a verdict."""
        beyond = len(state.ended) - self._keep
        for episode in list(state.ended)[: max(0, beyond)]:
            if not state.ended[episode].judges:
                for sha256 in state.ended.pop(episode).pages:
                    state.uses[sha256] -= 1
                    if not state.uses[sha256]:
                        del state.uses[sha256]
                        state.due[sha256] = state.last_named.pop(sha256)


def _show(state: PageState, episode_state: KeptEpisode | None, sha256: str, page: ReleasablePage) -> None:
    """Take in a page that an event names; if its episode is no longer kept, the page is due at once."""
    if episode_state is not None and sha256 not in episode_state.pages:
        episode_state.pages.add(sha256)
        state.uses[sha256] = state.uses.get(sha256, 0) + 1
    if sha256 in state.uses:
        state.due.pop(sha256, None)
        state.last_named[sha256] = page
    else:
        state.due[sha256] = page


def page_window(settings: Settings) -> PageWindow:
    """The rule under a run's settings."""
    return PageWindow(keep=settings.storage.keep_page_episodes, judges=settings.judge.judges)


def pages_kind(settings: Settings, *, run: str) -> SnapshotKind[PageState]:
    """Snapshots of the state. A snapshot of another run, a parent's, or of other settings is not used."""
    window = [settings.storage.keep_page_episodes, *settings.judge.judges]
    return SnapshotKind("pages", PageState, rules=RULES, conditions=f"{run} {window}")
