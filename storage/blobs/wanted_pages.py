"""Whose snapshots of pages are still wanted. Pure: a fold of events' envelopes, as large as what is kept.

Kept are the pages of episodes under way, of those that a judge has still to speak about, and of the latest so many that
came to an end with a page to show, whichever end it was. A page is stored once however many steps saw it: it is due
once the last of them may go, and no longer due when another one names it. The learner needs none of them: it trains,
and remembers successes, from the tokens in events.
"""

from collections.abc import Sequence

import msgspec

from hindcast.core.settings.schema import Settings
from hindcast.events.blob_references import RELEASING, blobs_in
from hindcast.events.envelope import BlobRef, Envelope
from hindcast.storage.snapshots import SnapshotKind

REQUESTED, ENDED, JUDGED = "episode.requested", "episode.ended", "episode.judged"
GIVEN_UP = ("episode.abandoned", "episode.cancelled")
RULES = ("hindcast.storage.blobs.wanted_pages", "hindcast.events.blob_references")
"""Modules whose code decides what the state is."""


class _About(msgspec.Struct, frozen=True):
    """What a payload says about whose it is."""

    episode: str


class _Judge(msgspec.Struct, frozen=True):
    name: str


class _Verdict(msgspec.Struct, frozen=True):
    episode: str
    judge: _Judge


_about = msgspec.msgpack.Decoder(_About)
_verdict = msgspec.msgpack.Decoder(_Verdict)


class KeptEpisode(msgspec.Struct):
    """One episode whose pages are kept."""

    pages: set[str] = msgspec.field(default_factory=set)
    """Their digests, each once."""
    judges: set[str] = msgspec.field(default_factory=set)
    """Those who have still to speak about it."""


class ReleasablePage(msgspec.Struct, frozen=True):
    """A page that nobody kept refers to."""

    size: int
    position: int
    """Of the last event that named it."""
    named_ns: int
    """When that was, by the clock of who said it."""

    def ref(self, sha256: str) -> BlobRef:
        """The blob."""
        return BlobRef(sha256, self.size)


class PageState(msgspec.Struct):
    """What the log says about pages up to `position`."""

    position: int = 0
    occurred_ns: int = 0
    """The latest time that an event up to there says."""
    under_way: dict[str, KeptEpisode] = msgspec.field(default_factory=dict)
    ended: dict[str, KeptEpisode] = msgspec.field(default_factory=dict)
    """In the order in which they ended."""
    last_named: dict[str, ReleasablePage] = msgspec.field(default_factory=dict)
    """Every page that is kept."""
    uses: dict[str, int] = msgspec.field(default_factory=dict)
    """Kept episodes that show it."""
    due: dict[str, ReleasablePage] = msgspec.field(default_factory=dict)
    """Pages to be let go of."""


class PageWindow:
    """The rule: `keep` ended episodes, and those that not all of `judges` have spoken about."""

    def __init__(self, *, keep: int, judges: Sequence[str]) -> None:
        self._keep = keep
        self._judges = frozenset(judges)

    def apply(self, state: PageState, position: int, envelope: Envelope) -> None:
        """The next event; changes the state in place."""
        state.position = position
        state.occurred_ns = max(state.occurred_ns, envelope.occurred_ns)
        kind = envelope.type
        if kind == JUDGED:
            said = _verdict.decode(envelope.payload)
            if said.episode in state.ended:
                state.ended[said.episode].judges.discard(said.judge.name)
                self._slide(state)
            return
        if kind == REQUESTED:
            state.under_way.setdefault(_about.decode(envelope.payload).episode, KeptEpisode())
        pages = [] if kind == RELEASING else [blob for blob, page in blobs_in(envelope) if page]
        ends = kind == ENDED or kind in GIVEN_UP
        if not pages and not ends:
            return
        episode = _about.decode(envelope.payload).episode
        seen = state.under_way.get(episode) or state.ended.get(episode)
        for blob in pages:
            _show(state, seen, blob.sha256, ReleasablePage(blob.size, position, envelope.occurred_ns))
        if ends and (ending := state.under_way.pop(episode, None)) is not None and ending.pages:
            ending.judges = set(self._judges) if kind == ENDED else set()
            state.ended[episode] = ending
            self._slide(state)

    def _slide(self, state: PageState) -> None:
        """Let go of the oldest beyond those that are kept, but for those that wait for a verdict."""
        beyond = len(state.ended) - self._keep
        for episode in list(state.ended)[: max(0, beyond)]:
            if not state.ended[episode].judges:
                for sha256 in state.ended.pop(episode).pages:
                    state.uses[sha256] -= 1
                    if not state.uses[sha256]:
                        del state.uses[sha256]
                        state.due[sha256] = state.last_named.pop(sha256)


def _show(state: PageState, seen: KeptEpisode | None, sha256: str, named: ReleasablePage) -> None:
    """A page is named by an episode that is kept, or by one that is not any more: what comes late is due at once."""
    if seen is not None and sha256 not in seen.pages:
        seen.pages.add(sha256)
        state.uses[sha256] = state.uses.get(sha256, 0) + 1
    if sha256 in state.uses:
        state.due.pop(sha256, None)
        state.last_named[sha256] = named
    else:
        state.due[sha256] = named


def page_window(settings: Settings) -> PageWindow:
    """The rule under a run's settings."""
    return PageWindow(keep=settings.storage.keep_page_episodes, judges=settings.judge.judges)


def pages_kind(settings: Settings, *, run: str) -> SnapshotKind[PageState]:
    """How the state is kept. Another run's, a parent's, or one of other settings is of no use: it is folded anew."""
    window = [settings.storage.keep_page_episodes, *settings.judge.judges]
    return SnapshotKind("pages", PageState, rules=RULES, conditions=f"{run} {window}")
