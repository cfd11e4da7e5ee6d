"""Describes things as nodes: position in the log and facts. Looks up many of one kind at once."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import RowMapping, and_, func, select, tuple_

from hindcast.storage.readmodel.lineage.query import POLICY, LineageQuery, Ref, in_parts
from hindcast.storage.readmodel.lineage.results import Node
from hindcast.storage.readmodel.query_parts import holding, of_this_run
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

Described = Mapping[Ref, Node]


def describe(asked: LineageQuery, refs: Iterable[Ref]) -> dict[Ref, Node]:
    """A node for each, without branches. A thing that is only named, but not recorded itself, has no position."""
    by_kind: dict[str, dict[Ref, None]] = {}
    for ref in refs:
        by_kind.setdefault(ref.kind, {})[ref.whole] = None
    found: dict[Ref, Node] = {}
    for kind, wanted in by_kind.items():
        for part in in_parts(list(wanted)):
            found.update(DESCRIBERS[kind](asked, part))
            for ref in part:
                found.setdefault(ref, Node(kind=ref.kind, id=name_of(*ref.key)))
    return found


def name_of(*key: Any) -> str:
    """An id as commands accept it; the policy's name is left out."""
    return "/".join(str(part) for part in key if part != POLICY)


def _facts(row: RowMapping, *names: str) -> dict[str, Any]:
    """Columns of a row that are not empty."""
    return {name: row[name] for name in names if row[name] is not None and row[name] != ""}


def _steps(asked: LineageQuery, refs: Sequence[Ref]) -> Described:
    rows = asked.rows(select(steps).where(steps.c.position.in_([ref.key[0] for ref in refs])))
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
            ),
        )
        for row in rows
    }


def _pages(asked: LineageQuery, refs: Sequence[Ref]) -> Described:
    """Digest of each page, its blob if the content was kept, whether that was released, and its screenshot."""
    shown = and_(screenshots.c.position == steps.c.position, screenshots.c.shows == "before")
    rows = asked.rows(
        select(steps, screenshots.c.sha256.label("screenshot"))
        .outerjoin(screenshots, shown)
        .where(steps.c.position.in_([ref.key[0] for ref in refs]))
    )
    released = _released(asked, [row["observation_blob"] for row in rows])
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


def _released(asked: LineageQuery, digests: Sequence[str | None]) -> dict[str, int]:
    """Released blobs with the position of the release."""
    told = select(notices.c.about, func.min(notices.c.position)).where(
        asked.holds(notices), notices.c.type == "blob.released", notices.c.about.in_(digests)
    )
    return dict(asked.connection.execute(told.group_by(notices.c.about)).all())


def _let_go(released: Mapping[str, int], digest: str | None) -> dict[str, int]:
    """The release of a blob as a fact, if there is one."""
    return {"released": released[digest]} if digest is not None and digest in released else {}


def _episodes(asked: LineageQuery, refs: Sequence[Ref]) -> Described:
    ids = [ref.key[0] for ref in refs]
    said = asked.said()
    statement = (
        select(episodes, said.c.outcome, said.c.reward)
        .outerjoin(said, said.c.episode == episodes.c.episode)
        .where(asked.holds(episodes), episodes.c.episode.in_(ids))
    )
    names = ("task", "environment", "family", "origin", "state", "reason", "outcome", "reward", "steps")
    return {
        Ref("episode", (row["episode"],)): Node(
            kind="episode",
            id=row["episode"],
            position=row["requested_position"],
            facts=_facts(row, *names, "group_id", "version_low", "version_high", "actor", "swept"),
        )
        for row in asked.rows(statement)
    }


def _tasks(asked: LineageQuery, refs: Sequence[Ref]) -> Described:
    ids = [ref.key[0] for ref in refs]
    first = (
        select(tasks.c.task, func.min(tasks.c.valid_from)).where(tasks.c.task.in_(ids)).group_by(tasks.c.task)
    )
    named = dict(asked.connection.execute(first).all())
    rows = asked.rows(select(tasks).where(asked.holds(tasks), tasks.c.task.in_(ids)))
    names = ("environment", "family", "seed", "instruction", "source", "state", "reason", "phase", "value")
    made = ("generator", "change", "checked")
    return {
        Ref("task", (row["task"],)): Node(
            kind="task", id=row["task"], position=named[row["task"]], facts=_facts(row, *names, *made)
        )
        for row in rows
    }


def _verdicts(asked: LineageQuery, refs: Sequence[Ref]) -> Described:
    rows = asked.rows(select(verdicts).where(verdicts.c.position.in_([ref.key[0] for ref in refs])))
    names = ("outcome", "reward", "judge", "judge_version", "prompt_digest", "reason", "code_rev")
    return {
        Ref("verdict", (row["position"],)): Node(
            kind="verdict",
            id=f"{row['episode']}/{row['judge']}",
            position=row["position"],
            facts={**_facts(row, *names), "trained_on": row["judge"] == asked.judge},
        )
        for row in rows
    }


def _batches(asked: LineageQuery, refs: Sequence[Ref]) -> Described:
    numbers = [ref.key[0] for ref in refs]
    rows = asked.rows(select(batches).where(asked.holds(batches), batches.c.batch.in_(numbers)))
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


def _updates(asked: LineageQuery, refs: Sequence[Ref]) -> Described:
    rows = asked.rows(select(updates).where(updates.c.position.in_([ref.key[0] for ref in refs])))
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


def _policies(asked: LineageQuery, refs: Sequence[Ref]) -> Described:
    wanted = tuple_(weights.c.model, weights.c.version).in_([ref.key for ref in refs])
    rows = asked.rows(select(weights).where(asked.holds(weights), wanted))
    released = _released(asked, [row["sha256"] for row in rows])
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


def _settings(asked: LineageQuery, refs: Sequence[Ref]) -> Described:
    """Settings as of a position."""
    return {ref: _settings_at(asked, ref) for ref in refs}


def _settings_at(asked: LineageQuery, ref: Ref) -> Node:
    (position,) = ref.key
    (row,) = asked.rows(of_this_run(select(runs), position))
    changed = asked.connection.scalars(
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


def _demonstrators(_asked: LineageQuery, refs: Sequence[Ref]) -> Described:
    return {ref: Node(kind="demonstrator", id="demonstrator") for ref in refs}


def _adoptions(asked: LineageQuery, refs: Sequence[Ref]) -> Described:
    rows = asked.rows(select(adoptions).where(adoptions.c.position.in_([ref.key[0] for ref in refs])))
    return {
        Ref("adoption", (row["position"],)): Node(kind="adoption", id=row["actor"], position=row["position"])
        for row in rows
    }


def _checkpoints(asked: LineageQuery, refs: Sequence[Ref]) -> Described:
    rows = asked.rows(select(checkpoints).where(checkpoints.c.position.in_([ref.key[0] for ref in refs])))
    released = _released(asked, [row["sha256"] for row in rows])
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


def _notices(asked: LineageQuery, refs: Sequence[Ref]) -> Described:
    rows = asked.rows(select(notices).where(notices.c.position.in_([ref.key[0] for ref in refs])))
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
