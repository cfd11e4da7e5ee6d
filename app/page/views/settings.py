"""The settings that the run was started with, their changes, and notices."""

import json

import msgspec
from sqlalchemy import select

from hindcast.app.page.runs import PageQuery
from hindcast.storage.readmodel.query_parts import NotInReadModel, holding, of_this_run
from hindcast.storage.readmodel.run_queries import RecipeChange, recipe_changes
from hindcast.storage.readmodel.tables import notices, runs

NOTICES = 50
"""Number of newest notices shown."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One notice."""

    position: int
    type: str
    text: str | None
    producer: str | None


class SettingsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the settings page."""

    recipe: str | None
    settings: dict[str, dict[str, str]]
    """By section and name, each as JSON."""
    fingerprint: dict[str, str]
    """Hardware and versions that the weights' bits depend on, each as JSON."""
    packages: dict[str, str]
    changes: tuple[RecipeChange, ...]
    notices: list[Notice]
    """Notices, newest first."""


def settings(ask: PageQuery) -> SettingsPage:
    """Settings of the run's first event. Raises NotInReadModel if the read model lacks it."""
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
