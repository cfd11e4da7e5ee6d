"""Table of episodes with filters, which are part of the address."""

import re

import msgspec
from sqlalchemy import select

from hindcast.app.page.runs import PageQuery, whole_number
from hindcast.core.errors import SettingsError
from hindcast.storage.readmodel.episode_queries import EpisodeRow, list_episodes
from hindcast.storage.readmodel.query_parts import holding
from hindcast.storage.readmodel.tables import tasks

PAGE = 50
"""Rows of a page."""
FILTERS = ("state", "outcome", "environment", "family", "origin", "task", "group", "policy")


class EpisodesPage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the page of episodes."""

    episodes: list[EpisodeRow]
    filters: dict[str, str]
    """The chosen filters."""
    families: list[str]
    """Families to choose from, as `store/buy`."""
    before: int | None
    """Parameter of the next page; None: there is none."""


def episode_table(ask: PageQuery) -> EpisodesPage:
    """The latest episodes that match."""
    chosen = {name: word for name in FILTERS if (word := ask.word(name))}
    first, last = _versions(ask)
    environment, _, family = chosen.get("family", "").rpartition("/")
    found = list_episodes(
        ask.connection,
        as_of=ask.position,
        state=ask.word("state"),
        environment=environment or ask.word("environment"),
        family=family or None,
        origin=ask.word("origin"),
        task=ask.word("task"),
        group=ask.word("group"),
        version=first,
        last_version=last,
        outcome=ask.word("outcome"),
        before=ask.number("before"),
        limit=PAGE + 1,
    )
    kinds = (
        select(tasks.c.environment, tasks.c.family)
        .where(holding(tasks, ask.position), tasks.c.family.is_not(None))
        .distinct()
    )
    return EpisodesPage(
        episodes=found[:PAGE],
        filters=chosen,
        families=sorted(f"{site}/{name}" for site, name in ask.connection.execute(kinds)),
        before=found[PAGE - 1].requested_position if len(found) > PAGE else None,
    )


def _versions(ask: PageQuery) -> tuple[int | None, int | None]:
    """First and last policy version of a filter: `7`, or `3-7` from a pooled point of a curve."""
    several = re.fullmatch(r"([0-9]+)-([0-9]+)", ask.word("policy") or "")
    if several is None:
        return ask.number("policy"), None
    first, last = (whole_number(one) for one in several.groups())
    if first is None or last is None:
        raise SettingsError(f"policy={ask.word('policy')!r} in the address: there are no versions that high")
    return first, last
