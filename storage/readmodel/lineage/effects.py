"""Forward edges: what came from a thing.

task -> tasks derived from it
     -> episodes -> verdicts
                 -> batches that trained on them -> updates -> the policy version they were first published in
policy -> actors that adopted it
       -> episodes it sampled tokens of
       -> batches that began with it
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Select, and_, func, select

from hindcast.storage.readmodel.lineage.query import POLICY, Edge, LineageEntry, LineageQuery, Ref
from hindcast.storage.readmodel.lineage.sources import SAME_SAMPLE, SHARE, summed_shares, verdicts_edge
from hindcast.storage.readmodel.tables import (
    adoptions,
    batch_episodes,
    batch_samples,
    batches,
    checkpoints,
    episodes,
    notices,
    steps,
    task_parents,
    token_versions,
    update_samples,
    updates,
    weights,
)


def effects(asked: LineageQuery, ref: Ref, *, above: Ref | None) -> list[Edge]:
    """Forward edges of a thing. `above`: the node that the tree reached it from; None: the queried thing itself."""
    finder = EFFECTS.get(ref.kind)
    return finder(asked, ref, above) if finder else []


def _of_step(asked: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    """Updates that trained on it, and batches that plan to."""
    planned = (
        select(
            batch_samples.c.batch,
            batch_samples.c.minibatch,
            update_samples.c.position.label("updated"),
            *(update_samples.c[name] for name in SHARE),
        )
        .select_from(batch_samples)
        .outerjoin(update_samples, and_(SAME_SAMPLE, asked.holds(update_samples)))
        .where(asked.holds(batch_samples), batch_samples.c.step_position == ref.key[0])
        .order_by(batch_samples.c.position, batch_samples.c.sample, update_samples.c.position)
    )
    rows = asked.rows(planned)
    share = ("batch", "minibatch")
    trained = [
        LineageEntry(Ref("update", (row["updated"],)), {name: row[name] for name in (*share, *SHARE)})
        for row in rows
        if row["updated"] is not None
    ]
    waiting = dict.fromkeys(row["batch"] for row in rows if row["updated"] is None)
    found = [LineageEntry(Ref("batch", (batch,))) for batch in waiting]
    return asked.edge("trained on by", trained) + asked.edge("planned in", found)


def _of_episode(asked: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    (episode,) = ref.key
    told = select(notices.c.position).where(asked.holds(notices), notices.c.about == episode)
    remarks = [
        LineageEntry(Ref("notice", (row["position"],)))
        for row in asked.rows(told.order_by(notices.c.position))
    ]
    edges = verdicts_edge(asked, episode) + asked.edge("remarked", remarks)
    parts = asked.rows(
        select(
            batch_episodes.c.batch,
            batch_episodes.c.trained,
            batch_episodes.c.rehearsed,
            func.count(batch_episodes.c.epoch).label("epochs"),
            func.max(batch_episodes.c.samples).label("samples"),
            func.max(batch_episodes.c.reward).label("reward"),
            func.max(batch_episodes.c.advantage).label("advantage"),
        )
        .where(asked.holds(batch_episodes), batch_episodes.c.episode == episode)
        .group_by(batch_episodes.c.batch, batch_episodes.c.trained, batch_episodes.c.rehearsed)
        .order_by(batch_episodes.c.batch)
    )
    share = ("reward", "advantage", "samples", "epochs")
    for relation, trained, rehearsed in (
        ("trained on in", True, False),
        ("rehearsed in", False, True),
        ("used up in", False, False),
    ):
        found = [
            LineageEntry(
                Ref("batch", (row["batch"],), share_of=ref.whole),
                {name: row[name] for name in share} if trained or rehearsed else {},
            )
            for row in parts
            if (row["trained"], row["rehearsed"]) == (trained, rehearsed)
        ]
        edges += asked.edge(relation, found)
    return edges


def _of_task(asked: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    (task,) = ref.key
    derived = select(task_parents.c.task).where(asked.holds(task_parents), task_parents.c.parent == task)
    rows = asked.rows(derived.group_by(task_parents.c.task).order_by(func.min(task_parents.c.position)))
    edges = asked.edge("parent of", [LineageEntry(Ref("task", (row["task"],))) for row in rows])
    attempts = select(episodes.c.episode).where(asked.holds(episodes), episodes.c.task == task)
    ordered = attempts.order_by(episodes.c.requested_position.nulls_last(), episodes.c.episode)
    return edges + asked.episodes_edge("attempted by", ordered)


def _of_batch(asked: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    """Its updates; or, for one episode's share, the updates that trained on it, with sums over its samples."""
    (batch,) = ref.key
    if ref.share_of is None:
        computed = select(updates.c.position).where(asked.holds(updates), updates.c.batch == batch)
        rows = asked.rows(computed.order_by(updates.c.position))
        return asked.edge("computed", [LineageEntry(Ref("update", (row["position"],))) for row in rows])
    rows = asked.rows(
        select(update_samples.c.position, *summed_shares())
        .select_from(batch_samples)
        .join(update_samples, SAME_SAMPLE)
        .where(
            asked.holds(batch_samples),
            asked.holds(update_samples),
            batch_samples.c.batch == batch,
            batch_samples.c.episode == ref.share_of.key[0],
        )
        .group_by(update_samples.c.position)
        .order_by(update_samples.c.position)
    )
    share = ("samples", *SHARE)
    found = [
        LineageEntry(Ref("update", (row["position"],)), {name: row[name] for name in share}) for row in rows
    ]
    return asked.edge("computed", found)


def _of_update(asked: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    (row,) = asked.rows(select(updates).where(updates.c.position == ref.key[0]))
    if row["outcome"] != "applied":
        return []
    saved = (
        select(checkpoints.c.position)
        .where(asked.holds(checkpoints), checkpoints.c.update_number == row["update_number"])
        .order_by(checkpoints.c.position)
    )
    kept = asked.rows(saved) if row["model"] == POLICY else []
    version = first_version_with(asked, row["model"], row["update_number"])
    published = [] if version is None else [LineageEntry(Ref("policy", (row["model"], version)))]
    return asked.edge("first published in", published) + asked.edge(
        "saved in", [LineageEntry(Ref("checkpoint", (one["position"],))) for one in kept]
    )


def first_version_with(asked: LineageQuery, model: str, update: int) -> int | None:
    """The first version of a model that includes an update; None if it is not published yet."""
    return asked.number(
        select(func.min(weights.c.version)).where(
            asked.holds(weights), weights.c.model == model, weights.c.at_update >= update
        )
    )


def _of_policy(asked: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    model, version = ref.key
    if model != POLICY:
        return []
    taken = select(adoptions.c.position).where(asked.holds(adoptions), adoptions.c.version == version)
    adopted = asked.rows(taken.order_by(adoptions.c.position))
    begun = select(batches.c.batch).where(asked.holds(batches), batches.c.version == version)
    begun_rows = asked.rows(begun.order_by(batches.c.batch))
    edges = asked.edge("adopted by", [LineageEntry(Ref("adoption", (row["position"],))) for row in adopted])
    edges += asked.edge("started", [LineageEntry(Ref("batch", (row["batch"],))) for row in begun_rows])
    first = sampled_with(asked, version).subquery()
    ordered = select(first.c.episode).order_by(first.c.position)
    return edges + asked.episodes_edge("sampled", ordered)


def sampled_with(asked: LineageQuery, version: int) -> Select[Any]:
    """Episodes with a token from a version, each with the position of the first such step."""
    whole = select(steps.c.episode, steps.c.position).where(
        asked.holds(steps), steps.c.version_high == version, steps.c.version_low == version
    )
    spliced = select(token_versions.c.episode, token_versions.c.position).where(
        asked.holds(token_versions), token_versions.c.version == version
    )
    both = whole.union_all(spliced).subquery()
    return select(both.c.episode, func.min(both.c.position).label("position")).group_by(both.c.episode)


EFFECTS: dict[str, Callable[[LineageQuery, Ref, Ref | None], list[Edge]]] = {
    "step": _of_step,
    "episode": _of_episode,
    "task": _of_task,
    "batch": _of_batch,
    "update": _of_update,
    "policy": _of_policy,
}
"""Forward edges by kind; kinds not listed have none."""
