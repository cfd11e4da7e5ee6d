"""One episode: its task, its steps, what judges said, and what was trained on it."""

import msgspec

from app.page.asking import Ask
from storage.readmodel.answers import EpisodeDetail
from storage.readmodel.queries import show_episode


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """The page's answer."""

    detail: EpisodeDetail


def episode(ask: Ask) -> Episode:
    """The episode that the address names. Raises NotInReadModel."""
    return Episode(detail=show_episode(ask.connection, ask.parts["episode"], as_of=ask.position))
