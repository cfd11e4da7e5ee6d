"""The settings that the run was started with, what changed since, and what else was told."""

import json

import msgspec
from sqlalchemy import select

from hindcast.app.page.page_query import PageQuery
from hindcast.storage.readmodel.queries import recipe_changes
from hindcast.storage.readmodel.query_parts import NotInReadModel, holding, of_this_run
from hindcast.storage.readmodel.results import RecipeChange
from hindcast.storage.readmodel.tables import notices, runs

NOTICES = 50
"""The newest that are shown."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was told."""

    position: int
    type: str
    text: str | None
    producer: str | None


class SettingsPage(msgspec.Struct, frozen=True, kw_only=True):
    """The page's answer."""

    recipe: str | None
    settings: dict[str, dict[str, str]]
    """By section and name, each as JSON."""
    fingerprint: dict[str, str]
    """What the bits of its weights depend on, each as JSON."""
    packages: dict[str, str]
    changes: tuple[RecipeChange, ...]
    notices: list[Notice]
    """The newest first."""


def settings(ask: PageQuery) -> SettingsPage:
    """As recorded in the run's first event. Raises NotInReadModel where that is not there yet."""
    row = ask.connection.execute(of_this_run(select(runs), ask.position)).mappings().one_or_none()
    if row is None:
        raise NotInReadModel(f"the read model knows nothing of the run as of position {ask.position} yet")
    resolved = json.loads(row["settings"] or "{}")
    told = (
        select(notices.c.position, notices.c.type, notices.c.text, notices.c.producer)
        .where(holding(notices, ask.position))
        .order_by(notices.c.position.desc())
        .limit(NOTICES)
    )
    return SettingsPage(
        recipe=row["recipe"],
        settings={section: _shown(values) for section, values in resolved.items()},
        fingerprint=_shown(json.loads(row["fingerprint"] or "{}")),
        packages=_shown(json.loads(row["packages"] or "{}")),
        changes=recipe_changes(ask.connection, as_of=ask.position),
        notices=[Notice(**one) for one in ask.connection.execute(told).mappings()],
    )


def _shown(values: dict[str, object]) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in values.items()}
