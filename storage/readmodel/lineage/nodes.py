"""Things of the lineage graph: found by what a user types, and described as nodes.

Users type ids as shown elsewhere, unique prefixes of them, or positions; every error names what exists instead. Nodes have
the position in the log and facts, and many of one kind are looked up at once.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Column, RowMapping, Table, and_, func, select, tuple_

from hindcast.core.errors import SettingsError
from hindcast.core.text.plain_values import read_count
from hindcast.storage.readmodel.lineage.graph import POLICY, LineageQuery, Node, Ref, in_parts
from hindcast.storage.readmodel.query_parts import NotInReadModel, holding, of_this_run
from hindcast.storage.readmodel.tables import (
    adoptions,
    batches,
    checkpoints,
    episodes,
    notices,
    runs,
    screenshots,
    steps,
    tasks,
    updates,
    verdicts,
    weights,
)

LATEST = "latest"


NAMED = 5
"""Maximum number of ids that an error names."""


def find(query: LineageQuery, kind: str, typed: str) -> Ref:
    """The thing of this kind that is meant.

    Raises:
        NotInReadModel: none exists as of the position, or several match.
        SettingsError: the text is not a name of this kind.
    """
    return FINDERS[kind](query, typed.strip())


def _find_episode(query: LineageQuery, typed: str) -> Ref:
    return Ref("episode", (_by_beginning(query, episodes, episodes.c.episode, typed, "ep_"),))


def _find_task(query: LineageQuery, typed: str) -> Ref:
    return Ref("task", (_by_beginning(query, tasks, tasks.c.task, typed, "task_"),))


def _by_beginning(query: LineageQuery, table: Table, column: Column[str], typed: str, prefix: str) -> str:
    """The single id with this prefix, typed with or without `ep_` or `task_`."""
    kind = column.name
    for beginning in (typed, f"{prefix}{typed}"):
        statement = select(column).where(
            query.holds(table), column >= beginning, column < f"{beginning}\U0010ffff"
        )
        ids = [row[kind] for row in query.rows(statement.order_by(column).limit(NAMED + 1))]
        if len(ids) == 1 or (ids and ids[0] == beginning):
            return str(ids[0])
        if ids:
            ellipsis = " …" if len(ids) > NAMED else ""
            raise NotInReadModel(
                f"{typed!r} begins the id of more than one {kind}: {', '.join(ids[:NAMED])}{ellipsis}. Type more of it"
            )
    raise NotInReadModel(
        f"there is no {kind} {typed!r} as of position {query.position}. Run: hindcast {kind} list"
    )


def _find_step(query: LineageQuery, typed: str) -> Ref:
    position = read_count(typed)
    if position is not None:
        step_rows = query.rows(
            select(steps.c.position).where(query.holds(steps), steps.c.position == position)
        )
        if not step_rows:
            raise NotInReadModel(
                f"no step is at position {typed} as of position {query.position}. Run: hindcast log show {typed}"
            )
        return Ref("step", (position,))
    episode_typed, slash, index = typed.rpartition("/")
    number = read_count(index)
    if not slash or number is None:
        raise SettingsError(
            f"{typed!r} is no step: EPISODE/INDEX is one, such as ep_9f2c41d07ab3/0, or a position"
        )
    (episode,) = _find_episode(query, episode_typed).key
    statement = select(steps.c.position, steps.c.step).where(query.holds(steps), steps.c.episode == episode)
    rows = query.rows(statement.order_by(steps.c.position))
    for row in rows:
        if row["step"] == number:
            return Ref("step", (row["position"],))
    steps_text = f"its steps are {rows[0]['step']} to {rows[-1]['step']}" if rows else "it has no step yet"
    raise NotInReadModel(
        f"episode {episode} has no step {index} as of position {query.position}; {steps_text}"
    )


def _find_update(query: LineageQuery, typed: str) -> Ref:
    model, number = _model_and_number(typed, "update")
    of_model = (query.holds(updates), updates.c.model == model)
    update_rows = query.rows(
        select(updates.c.position, updates.c.outcome)
        .where(*of_model, updates.c.update_number == number)
        .order_by(updates.c.outcome, updates.c.position.desc())
    )
    if update_rows:  # `applied` sorts first: the number of a skipped update is used again
        return Ref("update", (update_rows[0]["position"],))
    last = query.connection.scalar(select(func.max(updates.c.update_number)).where(*of_model))
    raise NotInReadModel(
        f"there is no update {number} of {model} as of position {query.position}; "
        + (f"the last is {last}" if last is not None else "there is none yet")
    )


def _find_batch(query: LineageQuery, typed: str) -> Ref:
    number = read_count(typed)
    if number is None:
        raise SettingsError(f"{typed!r} is no batch: they are numbered 0, 1, 2 …")
    if query.rows(select(batches.c.batch).where(query.holds(batches), batches.c.batch == number)):
        return Ref("batch", (number,))
    last = query.connection.scalar(select(func.max(batches.c.batch)).where(query.holds(batches)))
    raise NotInReadModel(
        f"there is no batch {number} as of position {query.position}; "
        + (f"the last is {last}" if last is not None else "none is planned yet")
    )


def _find_policy(query: LineageQuery, typed: str) -> Ref:
    name, slash, version = typed.rpartition("/")
    model = name if slash else POLICY
    of_model = (query.holds(weights), weights.c.model == model)
    last = query.connection.scalar(select(func.max(weights.c.version)).where(*of_model))
    if version == LATEST and last is not None:
        return Ref("policy", (model, last))
    number = (
        _model_and_number(typed, "policy version", besides=f" or `{LATEST}`")[1] if version != LATEST else -1
    )
    if query.rows(select(weights.c.version).where(*of_model, weights.c.version == number)):
        return Ref("policy", (model, number))
    raise NotInReadModel(
        f"there is no version {version} of {model} as of position {query.position}; "
        + (f"the latest is {last}" if last is not None else "none is published yet")
        + ". Run: hindcast policy list"
    )


def _model_and_number(typed: str, noun: str, *, besides: str = "") -> tuple[str, int]:
    """Model and number of `NUMBER` or `MODEL/NUMBER`."""
    model, slash, written = typed.rpartition("/")
    number = read_count(written)
    if number is None:
        raise SettingsError(
            f"{typed!r} is no {noun}: it is a number{besides}, such as 12, or MODEL/NUMBER for another model than the policy"
        )
    return (model if slash else POLICY), number


FINDERS: dict[str, Callable[[LineageQuery, str], Ref]] = {
    "step": _find_step,
    "episode": _find_episode,
    "batch": _find_batch,
    "update": _find_update,
    "task": _find_task,
    "policy": _find_policy,
}
"""Resolvers by kind."""


Described = Mapping[Ref, Node]


def describe(query: LineageQuery, refs: Iterable[Ref]) -> dict[Ref, Node]:
    """A node for each, without branches. A thing that is only named, but not recorded itself, has no position."""
    by_kind: dict[str, dict[Ref, None]] = {}
    for ref in refs:
        by_kind.setdefault(ref.kind, {})[ref.without_share] = None
    nodes: dict[Ref, Node] = {}
    for kind, refs_of_kind in by_kind.items():
        for chunk in in_parts(list(refs_of_kind)):
            nodes.update(DESCRIBERS[kind](query, chunk))
            for ref in chunk:
                nodes.setdefault(ref, Node(kind=ref.kind, id=name_of(*ref.key)))
    return nodes


def name_of(*key: Any) -> str:
    """An id as commands accept it; the policy's name is left out."""
    return "/".join(str(item) for item in key if item != POLICY)


def _facts(row: RowMapping, *names: str) -> dict[str, Any]:
    """Columns of a row that are not empty."""
    return {name: row[name] for name in names if row[name] is not None and row[name] != ""}


def _steps(query: LineageQuery, refs: Sequence[Ref]) -> Described:
    rows = query.rows(select(steps).where(steps.c.position.in_([ref.key[0] for ref in refs])))
    names = ("action", "element", "argument", "result", "url", "observation_digest", "version_low")
    return {
        Ref("step", (row["position"],)): Node(
            kind="step",
            id=f"{row['episode']}/{row['step']}",
            position=row["position"],
            facts=_facts(
                row,
                *names,
                "version_high",
                "prompt_tokens",
                "answer_tokens",
                "temperature",
                "code_rev",
                "scaffold_state",
                "scaffold_chosen",
            )
            | ({"context": row["context"]} if row["context"] else {}),
        )
        for row in rows
    }


def _pages(query: LineageQuery, refs: Sequence[Ref]) -> Described:
    """Digest of each page, its blob if the content was kept, whether that was released, and its screenshot."""
    is_shown = and_(screenshots.c.position == steps.c.position, screenshots.c.shows == "before")
    rows = query.rows(
        select(steps, screenshots.c.sha256.label("screenshot"))
        .outerjoin(screenshots, is_shown)
        .where(steps.c.position.in_([ref.key[0] for ref in refs]))
    )
    released = _released(query, [row["observation_blob"] for row in rows])
    return {
        Ref("page", (row["position"],)): Node(
            kind="page",
            id=row["observation_digest"],
            position=row["position"],
            facts={
                **_facts(row, "url", "screenshot"),
                "blob": row["observation_blob"],
                **_let_go(released, row["observation_blob"]),
            },
        )
        for row in rows
    }


def _released(query: LineageQuery, digests: Sequence[str | None]) -> dict[str, int]:
    """Released blobs with the position of the release."""
    statement = select(notices.c.about, func.min(notices.c.position)).where(
        query.holds(notices), notices.c.type == "blob.released", notices.c.about.in_(digests)
    )
    return dict(query.connection.execute(statement.group_by(notices.c.about)).all())


def _let_go(released: Mapping[str, int], digest: str | None) -> dict[str, int]:
    """The release of a blob as a fact, if there is one."""
    return {"released": released[digest]} if digest is not None and digest in released else {}


def _episodes(query: LineageQuery, refs: Sequence[Ref]) -> Described:
    ids = [ref.key[0] for ref in refs]
    verdict = query.training_verdicts()
    statement = (
        select(episodes, verdict.c.outcome, verdict.c.reward)
        .outerjoin(verdict, verdict.c.episode == episodes.c.episode)
        .where(query.holds(episodes), episodes.c.episode.in_(ids))
    )
    names = ("task", "environment", "family", "origin", "state", "reason", "outcome", "reward", "steps")
    return {
        Ref("episode", (row["episode"],)): Node(
            kind="episode",
            id=row["episode"],
            position=row["requested_position"],
            facts=_facts(row, *names, "group_id", "version_low", "version_high", "actor", "swept"),
        )
        for row in query.rows(statement)
    }


def _tasks(query: LineageQuery, refs: Sequence[Ref]) -> Described:
    ids = [ref.key[0] for ref in refs]
    first = (
        select(tasks.c.task, func.min(tasks.c.valid_from)).where(tasks.c.task.in_(ids)).group_by(tasks.c.task)
    )
    first_positions = dict(query.connection.execute(first).all())
    rows = query.rows(select(tasks).where(query.holds(tasks), tasks.c.task.in_(ids)))
    names = ("environment", "family", "seed", "instruction", "source", "state", "reason", "phase", "value")
    generated_names = ("generator", "change", "checked")
    return {
        Ref("task", (row["task"],)): Node(
            kind="task",
            id=row["task"],
            position=first_positions[row["task"]],
            facts=_facts(row, *names, *generated_names),
        )
        for row in rows
    }


def _verdicts(query: LineageQuery, refs: Sequence[Ref]) -> Described:
    rows = query.rows(select(verdicts).where(verdicts.c.position.in_([ref.key[0] for ref in refs])))
    names = ("outcome", "reward", "judge", "judge_version", "prompt_digest", "reason", "code_rev")
    return {
        Ref("verdict", (row["position"],)): Node(
            kind="verdict",
            id=f"{row['episode']}/{row['judge']}",
            position=row["position"],
            facts={**_facts(row, *names), "trained_on": row["judge"] == query.judge},
        )
        for row in rows
    }


def _batches(query: LineageQuery, refs: Sequence[Ref]) -> Described:
    numbers = [ref.key[0] for ref in refs]
    rows = query.rows(select(batches).where(query.holds(batches), batches.c.batch.in_(numbers)))
    names = ("algorithm", "as_of", "episodes", "rehearsed", "consumed", "samples", "minibatches", "version")
    return {
        Ref("batch", (row["batch"],)): Node(
            kind="batch",
            id=str(row["batch"]),
            position=row["position"],
            facts=_facts(row, *names, "seed", "log_digest", "config_digest", "code_rev"),
        )
        for row in rows
    }


def _updates(query: LineageQuery, refs: Sequence[Ref]) -> Described:
    rows = query.rows(select(updates).where(updates.c.position.in_([ref.key[0] for ref in refs])))
    names = ("outcome", "reason", "batch", "minibatch", "samples", "before", "after", "inputs", "code_rev")
    return {
        Ref("update", (row["position"],)): Node(
            kind="update",
            id=name_of(row["model"], row["update_number"]),
            position=row["position"],
            facts={
                **_facts(row, *names),
                **({"metrics": json.loads(row["metrics"])} if row["metrics"] else {}),
            },
        )
        for row in rows
    }


def _policies(query: LineageQuery, refs: Sequence[Ref]) -> Described:
    is_wanted = tuple_(weights.c.model, weights.c.version).in_([ref.key for ref in refs])
    rows = query.rows(select(weights).where(query.holds(weights), is_wanted))
    released = _released(query, [row["sha256"] for row in rows])
    return {
        Ref("policy", (row["model"], row["version"])): Node(
            kind="policy",
            id=name_of(row["model"], row["version"]),
            position=row["valid_from"],
            facts={
                **_facts(row, "at_update", "sha256", "size_bytes"),
                **_let_go(released, row["sha256"]),
            },
        )
        for row in rows
    }


def _settings(query: LineageQuery, refs: Sequence[Ref]) -> Described:
    """Settings as of a position."""
    return {ref: _settings_at(query, ref) for ref in refs}


def _settings_at(query: LineageQuery, ref: Ref) -> Node:
    (position,) = ref.key
    (row,) = query.rows(of_this_run(select(runs), position))
    changed = query.connection.scalars(
        select(notices.c.position)
        .where(holding(notices, position), notices.c.type == "recipe.changed")
        .order_by(notices.c.position)
    )
    texts = {name: json.loads(row[name]) for name in ("behaviour", "packages", "fingerprint") if row[name]}
    names = ("recipe", "run_seed", "base_policy_name", "base_policy", "parent", "forked_at")
    return Node(
        kind="settings",
        id=row["run"],
        position=row["started_position"],
        facts={**_facts(row, *names), **texts, "changed_at": list(changed)},
    )


def _demonstrators(_query: LineageQuery, refs: Sequence[Ref]) -> Described:
    return {ref: Node(kind="demonstrator", id="demonstrator") for ref in refs}


def _adoptions(query: LineageQuery, refs: Sequence[Ref]) -> Described:
    rows = query.rows(select(adoptions).where(adoptions.c.position.in_([ref.key[0] for ref in refs])))
    return {
        Ref("adoption", (row["position"],)): Node(kind="adoption", id=row["actor"], position=row["position"])
        for row in rows
    }


def _checkpoints(query: LineageQuery, refs: Sequence[Ref]) -> Described:
    rows = query.rows(select(checkpoints).where(checkpoints.c.position.in_([ref.key[0] for ref in refs])))
    released = _released(query, [row["sha256"] for row in rows])
    return {
        Ref("checkpoint", (row["position"],)): Node(
            kind="checkpoint",
            id=str(row["update_number"]),
            position=row["position"],
            facts={
                **_facts(row, "sha256", "size_bytes", "state"),
                **_let_go(released, row["sha256"]),
            },
        )
        for row in rows
    }


def _notices(query: LineageQuery, refs: Sequence[Ref]) -> Described:
    rows = query.rows(select(notices).where(notices.c.position.in_([ref.key[0] for ref in refs])))
    return {
        Ref("notice", (row["position"],)): Node(
            kind="notice", id=row["type"], position=row["position"], facts=_facts(row, "text")
        )
        for row in rows
    }


DESCRIBERS: dict[str, Callable[[LineageQuery, Sequence[Ref]], Described]] = {
    "step": _steps,
    "page": _pages,
    "episode": _episodes,
    "task": _tasks,
    "verdict": _verdicts,
    "batch": _batches,
    "update": _updates,
    "policy": _policies,
    "settings": _settings,
    "demonstrator": _demonstrators,
    "adoption": _adoptions,
    "checkpoint": _checkpoints,
    "notice": _notices,
}
"""Describers by kind."""
