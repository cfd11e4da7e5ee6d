"""Resolves what a user types: ids as shown elsewhere, unique prefixes of them, positions.

Every error names what exists instead.
"""

from collections.abc import Callable

from sqlalchemy import Column, Table, func, select

from hindcast.core.errors import SettingsError
from hindcast.core.text.plain_values import read_count
from hindcast.storage.readmodel.lineage.query import POLICY, LineageQuery, Ref
from hindcast.storage.readmodel.query_parts import NotInReadModel
from hindcast.storage.readmodel.tables import batches, episodes, steps, tasks, updates, weights

LATEST = "latest"
NAMED = 5
"""Maximum number of ids that an error names."""


def find(asked: LineageQuery, kind: str, typed: str) -> Ref:
    """The thing of this kind that is meant.

    Raises:
        NotInReadModel: none exists as of the position, or several match.
        SettingsError: the text is not a name of this kind.
    """
    return FINDERS[kind](asked, typed.strip())


def _episode(asked: LineageQuery, typed: str) -> Ref:
    return Ref("episode", (_beginning(asked, episodes, episodes.c.episode, typed, "ep_"),))


def _task(asked: LineageQuery, typed: str) -> Ref:
    return Ref("task", (_beginning(asked, tasks, tasks.c.task, typed, "task_"),))


def _beginning(asked: LineageQuery, table: Table, column: Column[str], typed: str, prefix: str) -> str:
    """The single id with this prefix, typed with or without `ep_` or `task_`."""
    kind = column.name
    for beginning in (typed, f"{prefix}{typed}"):
        meant = select(column).where(
            asked.holds(table), column >= beginning, column < f"{beginning}\U0010ffff"
        )
        ids = [row[kind] for row in asked.rows(meant.order_by(column).limit(NAMED + 1))]
        if len(ids) == 1 or (ids and ids[0] == beginning):
            return str(ids[0])
        if ids:
            more = " …" if len(ids) > NAMED else ""
            raise NotInReadModel(
                f"{typed!r} begins the id of more than one {kind}: {', '.join(ids[:NAMED])}{more}. Type more of it"
            )
    raise NotInReadModel(
        f"there is no {kind} {typed!r} as of position {asked.position}. Run: hindcast {kind} list"
    )


def _step(asked: LineageQuery, typed: str) -> Ref:
    position = read_count(typed)
    if position is not None:
        found = asked.rows(select(steps.c.position).where(asked.holds(steps), steps.c.position == position))
        if not found:
            raise NotInReadModel(
                f"no step is at position {typed} as of position {asked.position}. Run: hindcast log show {typed}"
            )
        return Ref("step", (position,))
    episode_typed, slash, index = typed.rpartition("/")
    number = read_count(index)
    if not slash or number is None:
        raise SettingsError(
            f"{typed!r} is no step: EPISODE/INDEX is one, such as ep_9f2c41d07ab3/0, or a position"
        )
    (episode,) = _episode(asked, episode_typed).key
    taken = select(steps.c.position, steps.c.step).where(asked.holds(steps), steps.c.episode == episode)
    rows = asked.rows(taken.order_by(steps.c.position))
    for row in rows:
        if row["step"] == number:
            return Ref("step", (row["position"],))
    known = f"its steps are {rows[0]['step']} to {rows[-1]['step']}" if rows else "it has no step yet"
    raise NotInReadModel(f"episode {episode} has no step {index} as of position {asked.position}; {known}")


def _update(asked: LineageQuery, typed: str) -> Ref:
    model, number = _numbered(typed, "update")
    mine = (asked.holds(updates), updates.c.model == model)
    found = asked.rows(
        select(updates.c.position, updates.c.outcome)
        .where(*mine, updates.c.update_number == number)
        .order_by(updates.c.outcome, updates.c.position.desc())
    )
    if found:  # `applied` sorts first: the number of a skipped update is used again
        return Ref("update", (found[0]["position"],))
    last = asked.connection.scalar(select(func.max(updates.c.update_number)).where(*mine))
    raise NotInReadModel(
        f"there is no update {number} of {model} as of position {asked.position}; "
        + (f"the last is {last}" if last is not None else "there is none yet")
    )


def _batch(asked: LineageQuery, typed: str) -> Ref:
    number = read_count(typed)
    if number is None:
        raise SettingsError(f"{typed!r} is no batch: they are numbered 0, 1, 2 …")
    if asked.rows(select(batches.c.batch).where(asked.holds(batches), batches.c.batch == number)):
        return Ref("batch", (number,))
    last = asked.connection.scalar(select(func.max(batches.c.batch)).where(asked.holds(batches)))
    raise NotInReadModel(
        f"there is no batch {number} as of position {asked.position}; "
        + (f"the last is {last}" if last is not None else "none is planned yet")
    )


def _policy(asked: LineageQuery, typed: str) -> Ref:
    name, slash, version = typed.rpartition("/")
    model = name if slash else POLICY
    held = (asked.holds(weights), weights.c.model == model)
    last = asked.connection.scalar(select(func.max(weights.c.version)).where(*held))
    if version == LATEST and last is not None:
        return Ref("policy", (model, last))
    number = _numbered(typed, "policy version", besides=f" or `{LATEST}`")[1] if version != LATEST else -1
    if asked.rows(select(weights.c.version).where(*held, weights.c.version == number)):
        return Ref("policy", (model, number))
    raise NotInReadModel(
        f"there is no version {version} of {model} as of position {asked.position}; "
        + (f"the latest is {last}" if last is not None else "none is published yet")
        + ". Run: hindcast policy list"
    )


def _numbered(typed: str, what: str, *, besides: str = "") -> tuple[str, int]:
    """Model and number of `NUMBER` or `MODEL/NUMBER`."""
    model, slash, written = typed.rpartition("/")
    number = read_count(written)
    if number is None:
        raise SettingsError(
            f"{typed!r} is no {what}: it is a number{besides}, such as 12, or MODEL/NUMBER for another model than the policy"
        )
    return (model if slash else POLICY), number


FINDERS: dict[str, Callable[[LineageQuery, str], Ref]] = {
    "step": _step,
    "episode": _episode,
    "batch": _batch,
    "update": _update,
    "task": _task,
    "policy": _policy,
}
"""Resolvers by kind."""
