"""Refuses filters with unknown names: an empty list would look as if nothing had happened."""

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, select

from hindcast.core.text.nearest import advice
from hindcast.storage.readmodel.episode_filter import EpisodeFilter
from hindcast.storage.readmodel.query_parts import NotInReadModel, also_holding, holding, position_of
from hindcast.storage.readmodel.tables import episodes, notices, tasks, weights

NEAR = 3


def refuse_unknown(
    connection: Connection,
    wanted: EpisodeFilter,
    *,
    group: str | None = None,
    phase: int | None = None,
    as_of: int | None = None,
) -> None:
    """Check that each named thing exists as of that position, even if no episode matches all of them.

    A run without any task refuses no site or family: tasks may still arrive.

    Raises:
        NotInReadModel: names what does not exist, with near matches or the choices.
    """
    position = position_of(connection, as_of)
    where = f"as of position {position}"
    kinds = select(tasks.c.environment, tasks.c.family).where(
        holding(tasks, position), tasks.c.family.is_not(None)
    )
    known = connection.execute(kinds.distinct()).all() if wanted.environment or wanted.family else []
    if known and wanted.environment:
        _refuse("site", wanted.environment, {site for site, _ in known}, where)
    if known and wanted.family:
        of_site = {family for site, family in known if wanted.environment in (None, site)}
        _refuse("family", wanted.family, of_site, where)
    if wanted.task and not _any(connection, holding(tasks, position), tasks.c.task == wanted.task):
        begun = tasks.c.task.startswith(wanted.task, autoescape=True)
        near = connection.scalars(
            select(tasks.c.task).where(holding(tasks, position), begun).order_by(tasks.c.task).limit(NEAR)
        ).all()
        advice = f"it may be {' or '.join(near)}" if near else "run: hindcast task list"
        raise NotInReadModel(f"there is no task {wanted.task!r} {where}; {advice}")
    if group and not _any(connection, also_holding(episodes, position), episodes.c.group_id == group):
        raise NotInReadModel(f"there is no group {group!r} {where}; run: hindcast episode list")
    if wanted.policy is not None and wanted.policy >= 0:  # below: a demonstrator
        _refuse_version(connection, wanted.policy, position, where)
    if phase is not None:
        _refuse_phase(connection, phase, position, where)


def _any(connection: Connection, *where: ColumnElement[bool]) -> bool:
    return connection.execute(select(1).where(*where).limit(1)).first() is not None


def _refuse(what: str, name: str, known: Iterable[str], where: str) -> None:
    """Raise NotInReadModel unless the name is known."""
    names = sorted(known)
    if name in names:
        return
    raise NotInReadModel(f"no task of the run is of {what} {name!r} {where}; {advice(name, names)}")


def _refuse_version(connection: Connection, version: int, position: int, where: str) -> None:
    of_policies = (holding(weights, position), weights.c.model == "policy")
    if _any(connection, *of_policies, weights.c.version == version):
        return
    newest = select(weights.c.version).where(*of_policies).order_by(weights.c.version.desc()).limit(1)
    last = connection.scalar(newest)
    if last is not None:
        raise NotInReadModel(
            f"there is no policy version {version} {where}; the newest is {last}. Run: hindcast policy list"
        )


def _refuse_phase(connection: Connection, phase: int, position: int, where: str) -> None:
    made = (holding(tasks, position), tasks.c.phase == phase)
    began = select(notices.c.about).where(holding(notices, position), notices.c.type == "phase.started")
    known = set(connection.scalars(began))
    # a phase that has only begun has no task of its own yet
    if known and str(phase) not in known and not _any(connection, *made):
        raise NotInReadModel(
            f"there is no phase {phase} {where}; {len(known)} have begun. Run: hindcast curriculum show"
        )
