"""Pages of one table or tree: episodes, curriculum, policies, lineage, alerts, consumers, settings."""

import asyncio
import json
from typing import Any

import msgspec
from sqlalchemy import select

from hindcast.app.alerts.report import AlertReport, alert_report
from hindcast.app.attach.consumers import ConsumerRow, list_consumers
from hindcast.app.page.charts import CurvePoint
from hindcast.app.page.index_builds import IDLE, IndexBuild
from hindcast.app.page.runs import PageQuery, whole_number
from hindcast.app.page.views.family import FailedEpisode, failed_episodes, family_curves
from hindcast.app.settings.configuration import Layer, flatten, merge
from hindcast.core.errors import HindcastError, SettingsError
from hindcast.core.settings.changes import decode_settings, flatten_settings
from hindcast.core.text.nearest import advice
from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.learner.recipes import load_recipe
from hindcast.storage.page_index import PageIndex, PageIndexStatus, episodes_with_text
from hindcast.storage.readmodel.comparison import flat_settings
from hindcast.storage.readmodel.episode_counts import FACETS, FacetValue, count_episodes, facets
from hindcast.storage.readmodel.episode_queries import (
    EpisodeRow,
    Mention,
    Narrowing,
    count_requested,
    list_episodes,
)
from hindcast.storage.readmodel.lineage.graph import Lineage
from hindcast.storage.readmodel.lineage.lineage import lineage
from hindcast.storage.readmodel.query_parts import (
    NotInReadModel,
    holding,
    of_this_run,
    training_judge,
)
from hindcast.storage.readmodel.run_queries import PolicyRow, RecipeChange, list_policies, recipe_changes
from hindcast.storage.readmodel.tables import notices, runs
from hindcast.storage.readmodel.task_queries import PhaseRow, TaskRow, list_phases, list_tasks

PAGE = 50
"""Rows of a page."""
FILTERS = ("state", "outcome", "environment", "family", "origin", "judge", "task", "group", "policy")
COLUMNS = {
    "verdict": True,
    "reward": True,
    "task": True,
    "origin": True,
    "steps": True,
    "policy": True,
    "actor": True,
    "took": True,
    "group": True,
    "member": False,
    "attempt": False,
    "state": False,
    "reason": False,
    "discarded": False,
    "position": False,
}
"""Columns of the list of episodes in their order, apart from the episode's name: whether each is shown by default."""
KINDS = ("step", "episode", "batch", "update", "task", "policy")
DEPTH = 3
MOST = 8
"""Most entries of one branch."""
VERSIONS_PAGE = 100
"""Rows of a page."""
NOTICES = 50
"""Number of newest notices shown."""
MOST_TASKS = 200
"""Most tasks shown."""
FAMILY_POINTS = 24
"""Most points of a family's curve, so that each has enough episodes."""


class ConsumersPage(msgspec.Struct, frozen=True, kw_only=True):
    """The page's values; always current, whatever position is asked for."""

    consumers: list[ConsumerRow]


def consumers(ask: PageQuery) -> ConsumersPage:
    """The roles, work queues and attached consumers. Raises BrokerUnreachable."""
    # a question is answered in a thread of its own, which has no event loop
    return ConsumersPage(consumers=asyncio.run(list_consumers(ask.handle)))


class AlertsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the alerts page."""

    alerts: AlertReport
    past: bool
    """Whether the page answers for a past position."""


def alerts(ask: PageQuery) -> AlertsPage:
    """Raised alerts and their rules. Raises StoreUnavailable."""
    past = ask.word("as_of") is not None
    return AlertsPage(alerts=alert_report(ask.handle, as_of=ask.position if past else None), past=past)


class EpisodesPage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the page of episodes."""

    episodes: list[EpisodeRow]
    filters: dict[str, str]
    """The chosen filters."""
    facets: dict[str, list[FacetValue]]
    """Values to filter by, with the number of episodes that have each and match all other filters."""
    columns: list[str]
    """Columns that are shown after the episode's name, in order."""
    judge: str
    """Judge whose verdicts are shown: the chosen one, or the one that is trained on."""
    text: str
    """Text that the episodes must have; empty: any."""
    found: dict[str, Mention]
    """Where each episode shown has the text."""
    index: PageIndexStatus | None
    """The index of the run's page texts; None: there is none, and pages are not searched."""
    indexing: IndexBuild
    waiting: int
    """Episodes that are requested and not shown, since nothing has happened in them; 0 where they are shown."""
    before: int | None
    """Parameter of the next page; None: there is none."""
    look_first: list[FailedEpisode]
    """The newest failed online episodes, those with a success in their group first; empty where filters are chosen."""


def episode_table(ask: PageQuery) -> EpisodesPage:
    """The latest episodes that match; requested ones only where a state, group or task is chosen."""
    chosen = {name: word for name in FILTERS if (word := ask.word(name))}
    folds = not chosen.keys() & {"state", "group", "task"}
    versions = ask.span("policy")
    environment, _, family = chosen.get("family", "").rpartition("/")
    text = ask.word("text")
    pages = PageIndex(ask.run.folder)
    places = None if text is None else episodes_with_text(ask.connection, pages, text, as_of=ask.position)
    narrow = Narrowing(
        task=ask.word("task"),
        group=ask.word("group"),
        version=versions and versions[0],
        last_version=versions and versions[1],
        among=places,
    )
    found = list_episodes(
        ask.connection,
        as_of=ask.position,
        state=ask.word("state"),
        environment=environment or ask.word("environment"),
        family=family or None,
        origin=ask.word("origin"),
        outcome=ask.word("outcome"),
        judge=ask.word("judge"),
        begun=folds,
        narrow=narrow,
        before=ask.number("before"),
        limit=PAGE + 1,
    )
    judge = ask.word("judge") or training_judge(ask.connection, as_of=ask.position)
    kinds = {name: word for name, word in chosen.items() if name in FACETS}
    if environment:
        kinds.pop("environment", None)  # the family names its own
    return EpisodesPage(
        episodes=found[:PAGE],
        filters=chosen,
        facets=facets(
            count_episodes(ask.connection, as_of=ask.position, narrow=narrow), kinds, judge=judge, begun=folds
        ),
        columns=_columns(ask),
        judge=judge,
        text=text or "",
        found={} if places is None else {row.episode: places[row.episode] for row in found[:PAGE]},
        index=pages.status(),
        indexing=IDLE if ask.runs is None else ask.runs.indexing.state(ask.run.name),
        waiting=count_requested(ask.connection, as_of=ask.position) if folds and not chosen else 0,
        before=found[PAGE - 1].requested_position if len(found) > PAGE else None,
        look_first=[]
        if ask.query.keys() - {"as_of", "columns"}
        else failed_episodes(ask, None, ONLINE, None),
    )


def _columns(ask: PageQuery) -> list[str]:
    """The chosen columns, `columns=reward,steps` or one parameter for each. Raises SettingsError for an unknown one."""
    chosen = {name for word in ask.words("columns") for name in word.split(",") if name}
    for name in sorted(chosen - COLUMNS.keys()):
        raise SettingsError(f"the list of episodes has no column {name[:40]!r}; {advice(name, COLUMNS)}")
    return [name for name, is_usual in COLUMNS.items() if (name in chosen if chosen else is_usual)]


class LineagePage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the lineage page."""

    lineage: Lineage


def lineage_of(ask: PageQuery) -> LineagePage:
    """The tree around the thing that the address names. Raises NotInReadModel, SettingsError for an unknown kind."""
    kind, name = ask.parts["kind"], ask.parts["name"]
    if kind not in KINDS:
        raise SettingsError(f"there is no lineage of a {kind!r}; {advice(kind, KINDS)}")
    number = name.rpartition("/")[2]
    if number.isdigit() and whole_number(number) is None:
        raise NotInReadModel(f"there is no {kind} {name[:40]!r}")
    return LineagePage(
        lineage=lineage(ask.connection, kind, name, as_of=ask.position, depth=DEPTH, limit=MOST)
    )


class PoliciesPage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the page of policy versions."""

    policies: list[PolicyRow]
    """Policy versions, newest first."""
    before: int | None
    """Parameter of the next page; None: there is none."""


def policies(ask: PageQuery) -> PoliciesPage:
    """The newest versions, and who samples from them."""
    found = list_policies(
        ask.connection, as_of=ask.position, before=ask.number("before"), limit=VERSIONS_PAGE + 1
    )
    return PoliciesPage(
        policies=found[:VERSIONS_PAGE],
        before=found[VERSIONS_PAGE - 1].version if len(found) > VERSIONS_PAGE else None,
    )


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One notice."""

    position: int
    type: str
    text: str | None
    producer: str | None


class OwnSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that differs from the recipe's; both as JSON."""

    key: str
    recipe: str
    here: str


class ForkSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of a fork that differs from its parent's; both as JSON."""

    key: str
    parent: str
    here: str


class SettingsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the settings page."""

    recipe: str | None
    own: list[OwnSetting]
    """Settings that differ from the recipe's."""
    parent: str | None
    """Run that this one was forked from; None: it is no fork."""
    of_fork: list[ForkSetting]
    """Settings that differ from the parent's."""
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
    newest = (
        select(notices.c.position, notices.c.type, notices.c.text, notices.c.producer)
        .where(holding(notices, ask.position))
        .order_by(notices.c.position.desc())
        .limit(NOTICES)
    )
    return SettingsPage(
        recipe=row["recipe"],
        own=_own(row["recipe"] or "", resolved),
        parent=row["parent"],
        of_fork=_of_fork(ask, row["parent"], row["settings"]),
        settings={section: _shown(values) for section, values in resolved.items()},
        fingerprint=_shown(json.loads(row["fingerprint"] or "{}")),
        packages=_shown(json.loads(row["packages"] or "{}")),
        changes=recipe_changes(ask.connection, as_of=ask.position),
        notices=[Notice(**one) for one in ask.connection.execute(newest).mappings()],
    )


def _of_fork(ask: PageQuery, parent: str | None, recorded: str | None) -> list[ForkSetting]:
    """What a fork sets otherwise than its parent, whose first event is in the fork's log."""
    if parent is None:
        return []
    of_parent = select(runs.c.settings).where(holding(runs, ask.position), runs.c.run == parent)
    theirs, here = flat_settings(ask.connection.scalar(of_parent)), flat_settings(recorded)
    return [
        ForkSetting(key=key, parent=json.dumps(theirs.get(key)), here=json.dumps(here.get(key)))
        for key in sorted({*theirs, *here})
        if theirs.get(key) != here.get(key)
    ]


def _own(recipe: str, recorded: dict[str, Any]) -> list[OwnSetting]:
    """What the run sets otherwise than its recipe; nothing if this installation does not have the recipe."""
    try:
        layer = Layer(source=recipe, values=flatten(load_recipe(recipe), recipe))
        given = flatten_settings(merge([layer], recipe=recipe).settings)
        here = flatten_settings(decode_settings(recorded))
    except (HindcastError, ValueError):  # of another installation, or of a version that no longer reads
        return []
    return [
        OwnSetting(key=key, recipe=json.dumps(given.get(key)), here=json.dumps(value))
        for key, value in here.items()
        if value != given.get(key)
    ]


def _shown(values: dict[str, object]) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in values.items()}


class CurriculumPage(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the curriculum page."""

    phases: list[PhaseRow]
    families: dict[str, list[CurvePoint]]
    """Success of each family that matches by policy version, neighboring versions pooled."""
    tasks: list[TaskRow]
    """Tasks, most attempted first."""
    filters: dict[str, str]


def curriculum(ask: PageQuery) -> CurriculumPage:
    """Phases, and the families and tasks that match."""
    names = ("environment", "family", "state", "phase")
    return CurriculumPage(
        phases=list_phases(ask.connection, as_of=ask.position),
        families={
            name: points
            for name, points in family_curves(ask, most=FAMILY_POINTS).items()
            if ask.word("environment") in (None, name.rpartition("/")[0])
            and ask.word("family") in (None, name.rpartition("/")[2])
        },
        tasks=list_tasks(
            ask.connection,
            as_of=ask.position,
            environment=ask.word("environment"),
            family=ask.word("family"),
            state=ask.word("state"),
            phase=ask.number("phase"),
            limit=MOST_TASKS,
        ),
        filters={name: word for name in names if (word := ask.word(name))},
    )
