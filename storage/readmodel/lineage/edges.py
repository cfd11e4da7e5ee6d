"""Edges of the lineage graph. Backward, what a thing came from; forward, what came from it.

update -> batch -> settings, the policy version it began with
       -> episodes, as far as it trained on them -> steps -> page, the policy versions that sampled the tokens
                                                 -> task -> the tasks it was derived from
                                                 -> verdicts
policy -> the updates that made it, or the settings that gave it

task -> tasks derived from it
     -> episodes -> verdicts
                 -> batches that trained on them -> updates -> the policy version they were first published in
policy -> actors that adopted it
       -> episodes it sampled tokens of
       -> batches that began with it
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs
from sqlalchemy import ColumnElement, Select, and_, func, or_, select

from hindcast.core.rl.combined_state import ORM, RELABELER
from hindcast.storage.readmodel.lineage.graph import (
    DEMONSTRATOR,
    POLICY,
    Edge,
    Kind,
    LineageEntry,
    LineageQuery,
    Ref,
)
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
    verdicts,
    weights,
)

TRAINED_ON: dict[str, Kind] = {ORM: "verdict", RELABELER: "notice"}
"""By model: kind of the event that holds its prompt, if that is no step."""


SHARE = ("advantage", "weight", "ratio", "mask")
"""Columns of an update for each sample."""


def sources(query: LineageQuery, ref: Ref, *, above: Ref | None) -> list[Edge]:
    """Backward edges of a thing. `above`: the node that the tree reached it from; None: the queried thing itself."""
    finder = SOURCES.get(ref.kind)
    return finder(query, ref, above) if finder else []


def _of_step_sources(query: LineageQuery, ref: Ref, above: Ref | None) -> list[Edge]:
    (row,) = query.rows(select(steps).where(steps.c.position == ref.key[0]))
    edges = query.edge("saw", [LineageEntry(Ref("page", ref.key))])
    edges += query.edge(
        "sampled by",
        _samplers(query, ref.key[0], row["version_low"], row["version_high"], row["answer_tokens"]),
    )
    if above is None or above.kind != "episode":
        edges += query.edge("step of", [LineageEntry(Ref("episode", (row["episode"],)))])
    return edges


def _samplers(
    query: LineageQuery, position: int, low: int | None, high: int | None, tokens: int
) -> Sequence[LineageEntry]:
    """Versions that sampled tokens of a step, with their numbers of tokens, in the order of their first token."""
    if low is None:
        return []
    if low == high:
        return [LineageEntry(_policy(low), {"tokens": tokens})]
    stretches = (
        select(token_versions.c.version, func.sum(token_versions.c.tokens).label("tokens"))
        .where(query.holds(token_versions), token_versions.c.position == position)
        .group_by(token_versions.c.version)
        .order_by(func.min(token_versions.c.place))
    )
    return [
        LineageEntry(_policy(row["version"]), {"tokens": int(row["tokens"])}) for row in query.rows(stretches)
    ]


def _policy(version: int) -> Ref:
    return Ref("demonstrator", ()) if version == DEMONSTRATOR else Ref("policy", (POLICY, version))


def _of_episode_sources(query: LineageQuery, ref: Ref, above: Ref | None) -> list[Edge]:
    (episode,) = ref.key
    tasks_of = select(episodes.c.task).where(query.holds(episodes), episodes.c.episode == episode)
    task = query.connection.scalar(tasks_of)
    edges = query.edge("attempt at", [LineageEntry(Ref("task", (task,)))]) if task else []
    if above is not None:  # verdicts on the queried episode itself are forward edges
        edges += verdicts_edge(query, episode)
    return edges + _steps_edge(query, ref)


def verdicts_edge(query: LineageQuery, episode: str) -> list[Edge]:
    """The branch with all verdicts on an episode."""
    statement = select(verdicts.c.position).where(query.holds(verdicts), verdicts.c.episode == episode)
    entries = [
        LineageEntry(Ref("verdict", (row["position"],)))
        for row in query.rows(statement.order_by(verdicts.c.position))
    ]
    return query.edge("judged by", entries)


def _steps_edge(query: LineageQuery, ref: Ref) -> list[Edge]:
    """All steps of an episode; or, for one update's share, those it trained on, with its numbers for each."""
    (episode,) = ref.key
    if ref.share_of is None:
        statement = select(steps.c.position).where(query.holds(steps), steps.c.episode == episode)
        rows = query.rows(statement.order_by(steps.c.position))
        return query.edge("took", [LineageEntry(Ref("step", (row["position"],))) for row in rows])
    used = select(batch_samples.c.step_position, *(update_samples.c[name] for name in SHARE))
    rows = query.rows(
        used.select_from(batch_samples)
        .join(update_samples, SAME_SAMPLE)
        .where(
            update_samples.c.position == ref.share_of.key[0],
            query.holds(batch_samples),
            batch_samples.c.episode == episode,
        )
        .order_by(batch_samples.c.sample)
    )
    trained = select(updates.c.model).where(updates.c.position == ref.share_of.key[0])
    kind = TRAINED_ON.get(str(query.connection.scalar(trained)), "step")
    entries = [
        LineageEntry(Ref(kind, (row["step_position"],)), {name: row[name] for name in SHARE}) for row in rows
    ]
    return query.edge("with", entries)


def _of_task_sources(query: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    derived = select(task_parents.c.parent).where(
        query.holds(task_parents), task_parents.c.task == ref.key[0]
    )
    rows = query.rows(derived.distinct().order_by(task_parents.c.parent))
    return query.edge("derived from", [LineageEntry(Ref("task", (row["parent"],))) for row in rows])


def _of_batch_sources(query: LineageQuery, ref: Ref, above: Ref | None) -> list[Edge]:
    (batch,) = ref.key
    (row,) = query.rows(select(batches).where(query.holds(batches), batches.c.batch == batch))
    edges = query.edge("under", [LineageEntry(Ref("settings", (row["position"],)))])
    for relation, model, column in (
        ("began with", POLICY, "version"),
        ("compared with", POLICY, "reference_version"),
        ("clipped to", POLICY, "proximal_version"),
        ("valued by", "critic", "critic_version"),
    ):
        version = row[column]
        repeated = column == "proximal_version" and version == row["version"]
        elsewhere = column == "version" and row["model"] != POLICY  # the policy did not change meanwhile
        if version is not None and not repeated and not elsewhere:
            edges += query.edge(relation, [LineageEntry(Ref("policy", (model, version)))])
    hidden = above is not None and above.kind == "update"  # the update lists its own share of them
    planned = select(
        batch_episodes.c.episode,
        *(
            batch_episodes.c[name]
            for name in ("reward", "advantage", "samples", "replaces", "kept", "relabel")
        ),
    ).where(query.holds(batch_episodes), batch_episodes.c.batch == batch)
    ordered = planned.order_by(batch_episodes.c.place)
    share = ("reward", "advantage", "samples")
    first = batch_episodes.c.epoch == 0
    replayed = or_(batch_episodes.c.replaces.is_not(None), batch_episodes.c.kept.is_not(None))
    relabelled = batch_episodes.c.relabel.is_not(None)
    for relation, condition, statement in (
        ("trained on", and_(batch_episodes.c.trained, first, ~replayed, ~relabelled), share),
        ("trained on in hindsight", and_(relabelled, first), (*share, "relabel")),
        ("replayed", and_(replayed, first), (*share, "replaces", "kept")),
        ("rehearsed", and_(batch_episodes.c.rehearsed, first), share),
        ("used up", and_(~batch_episodes.c.trained, ~batch_episodes.c.rehearsed), ()),
    ):
        edges += query.episodes_edge(relation, ordered.where(condition), share=statement, hidden=hidden)
    return edges


def _of_update_sources(query: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    (position,) = ref.key
    (row,) = query.rows(select(updates).where(updates.c.position == position))
    planned = LineageEntry(Ref("batch", (row["batch"],)), {"minibatch": row["minibatch"]})
    edges = query.edge("planned in", [planned])
    used = (
        select(batch_samples.c.episode, *summed_shares())
        .select_from(batch_samples)
        .join(update_samples, SAME_SAMPLE)
        .where(update_samples.c.position == position, query.holds(batch_samples))
        .group_by(batch_samples.c.episode)
        .order_by(func.min(batch_samples.c.sample))
    )
    trained = select(batch_episodes.c.episode).where(
        query.holds(batch_episodes), batch_episodes.c.batch == row["batch"], batch_episodes.c.trained
    )
    for relation, condition in (
        ("trained on", batch_samples.c.episode.in_(trained)),
        ("rehearsed", batch_samples.c.episode.not_in(trained)),
    ):
        edges_of_relation = query.episodes_edge(relation, used.where(condition), share=("samples", *SHARE))
        edges += [shared_by(edge, ref) for edge in edges_of_relation]
    return edges


def summed_shares() -> list[ColumnElement[Any]]:
    """Numbers of an update over several samples: the sum of their weights, the means of the rest."""
    averages = (func.avg(update_samples.c[name]).label(name) for name in ("advantage", "ratio", "mask"))
    return [func.count().label("samples"), func.sum(update_samples.c.weight).label("weight"), *averages]


def shared_by(edge: Edge, ref: Ref) -> Edge:
    """The branch with each entry restricted to its part in `ref`."""
    entries = [structs.replace(entry, ref=structs.replace(entry.ref, share_of=ref)) for entry in edge.entries]
    return structs.replace(edge, entries=entries)


def _of_policy_sources(query: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    """The updates since the previous version; for the version that the run began with, the settings."""
    model, version = ref.key
    of_model = (query.holds(weights), weights.c.model == model)
    version_rows = query.rows(
        select(weights.c.at_update, weights.c.valid_from).where(*of_model, weights.c.version == version)
    )
    if not version_rows:
        return []
    previous_update = query.connection.scalar(
        select(weights.c.at_update)
        .where(*of_model, weights.c.version < version)
        .order_by(weights.c.version.desc())
        .limit(1)
    )
    if previous_update is None and model == POLICY:  # others had no version before their first update
        return query.edge("given by", [LineageEntry(Ref("settings", (version_rows[0]["valid_from"],)))])
    statement = select(updates.c.position).where(
        query.holds(updates),
        updates.c.model == model,
        updates.c.outcome == "applied",
        updates.c.update_number > (previous_update or 0),
        updates.c.update_number <= version_rows[0]["at_update"],
    )
    rows = query.rows(statement.order_by(updates.c.update_number.desc()))
    return query.edge("made by", [LineageEntry(Ref("update", (row["position"],))) for row in rows])


SAME_SAMPLE = and_(
    update_samples.c.batch == batch_samples.c.batch,
    update_samples.c.minibatch == batch_samples.c.minibatch,
    update_samples.c.place == batch_samples.c.place,
)
"""Joins an update's numbers for a sample to the planned sample."""


SOURCES: dict[str, Callable[[LineageQuery, Ref, Ref | None], list[Edge]]] = {
    "step": _of_step_sources,
    "episode": _of_episode_sources,
    "task": _of_task_sources,
    "batch": _of_batch_sources,
    "update": _of_update_sources,
    "policy": _of_policy_sources,
}
"""Backward edges by kind; kinds not listed have none."""


def effects(query: LineageQuery, ref: Ref, *, above: Ref | None) -> list[Edge]:
    """Forward edges of a thing. `above`: the node that the tree reached it from; None: the queried thing itself."""
    finder = EFFECTS.get(ref.kind)
    return finder(query, ref, above) if finder else []


def _of_step_effects(query: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    """Updates that trained on it, and batches that plan to."""
    planned = (
        select(
            batch_samples.c.batch,
            batch_samples.c.minibatch,
            update_samples.c.position.label("updated"),
            *(update_samples.c[name] for name in SHARE),
        )
        .select_from(batch_samples)
        .outerjoin(update_samples, and_(SAME_SAMPLE, query.holds(update_samples)))
        .where(query.holds(batch_samples), batch_samples.c.step_position == ref.key[0])
        .order_by(batch_samples.c.position, batch_samples.c.sample, update_samples.c.position)
    )
    rows = query.rows(planned)
    share = ("batch", "minibatch")
    trained = [
        LineageEntry(Ref("update", (row["updated"],)), {name: row[name] for name in (*share, *SHARE)})
        for row in rows
        if row["updated"] is not None
    ]
    waiting = dict.fromkeys(row["batch"] for row in rows if row["updated"] is None)
    planned_in = [LineageEntry(Ref("batch", (batch,))) for batch in waiting]
    return query.edge("trained on by", trained) + query.edge("planned in", planned_in)


def _of_episode_effects(query: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    (episode,) = ref.key
    statement = select(notices.c.position).where(query.holds(notices), notices.c.about == episode)
    remarks = [
        LineageEntry(Ref("notice", (row["position"],)))
        for row in query.rows(statement.order_by(notices.c.position))
    ]
    edges = verdicts_edge(query, episode) + query.edge("remarked", remarks)
    batch_rows = query.rows(
        select(
            batch_episodes.c.batch,
            batch_episodes.c.trained,
            batch_episodes.c.rehearsed,
            func.count(batch_episodes.c.epoch).label("epochs"),
            func.max(batch_episodes.c.samples).label("samples"),
            func.max(batch_episodes.c.reward).label("reward"),
            func.max(batch_episodes.c.advantage).label("advantage"),
        )
        .where(query.holds(batch_episodes), batch_episodes.c.episode == episode)
        .group_by(batch_episodes.c.batch, batch_episodes.c.trained, batch_episodes.c.rehearsed)
        .order_by(batch_episodes.c.batch)
    )
    share = ("reward", "advantage", "samples", "epochs")
    for relation, trained, rehearsed in (
        ("trained on in", True, False),
        ("rehearsed in", False, True),
        ("used up in", False, False),
    ):
        entries = [
            LineageEntry(
                Ref("batch", (row["batch"],), share_of=ref.without_share),
                {name: row[name] for name in share} if trained or rehearsed else {},
            )
            for row in batch_rows
            if (row["trained"], row["rehearsed"]) == (trained, rehearsed)
        ]
        edges += query.edge(relation, entries)
    return edges


def _of_task_effects(query: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    (task,) = ref.key
    derived = select(task_parents.c.task).where(query.holds(task_parents), task_parents.c.parent == task)
    rows = query.rows(derived.group_by(task_parents.c.task).order_by(func.min(task_parents.c.position)))
    edges = query.edge("parent of", [LineageEntry(Ref("task", (row["task"],))) for row in rows])
    attempts = select(episodes.c.episode).where(query.holds(episodes), episodes.c.task == task)
    ordered = attempts.order_by(episodes.c.requested_position.nulls_last(), episodes.c.episode)
    return edges + query.episodes_edge("attempted by", ordered)


def _of_batch_effects(query: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    """Its updates; or, for one episode's share, the updates that trained on it, with sums over its samples."""
    (batch,) = ref.key
    if ref.share_of is None:
        computed = select(updates.c.position).where(query.holds(updates), updates.c.batch == batch)
        rows = query.rows(computed.order_by(updates.c.position))
        return query.edge("computed", [LineageEntry(Ref("update", (row["position"],))) for row in rows])
    rows = query.rows(
        select(update_samples.c.position, *summed_shares())
        .select_from(batch_samples)
        .join(update_samples, SAME_SAMPLE)
        .where(
            query.holds(batch_samples),
            query.holds(update_samples),
            batch_samples.c.batch == batch,
            batch_samples.c.episode == ref.share_of.key[0],
        )
        .group_by(update_samples.c.position)
        .order_by(update_samples.c.position)
    )
    share = ("samples", *SHARE)
    entries = [
        LineageEntry(Ref("update", (row["position"],)), {name: row[name] for name in share}) for row in rows
    ]
    return query.edge("computed", entries)


def _of_update_effects(query: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    (row,) = query.rows(select(updates).where(updates.c.position == ref.key[0]))
    if row["outcome"] != "applied":
        return []
    saved = (
        select(checkpoints.c.position)
        .where(query.holds(checkpoints), checkpoints.c.update_number == row["update_number"])
        .order_by(checkpoints.c.position)
    )
    checkpoint_rows = query.rows(saved) if row["model"] == POLICY else []
    version = first_version_with(query, row["model"], row["update_number"])
    published = [] if version is None else [LineageEntry(Ref("policy", (row["model"], version)))]
    return query.edge("first published in", published) + query.edge(
        "saved in",
        [LineageEntry(Ref("checkpoint", (saved_row["position"],))) for saved_row in checkpoint_rows],
    )


def first_version_with(query: LineageQuery, model: str, update: int) -> int | None:
    """The first version of a model that includes an update; None if it is not published yet."""
    return query.number(
        select(func.min(weights.c.version)).where(
            query.holds(weights), weights.c.model == model, weights.c.at_update >= update
        )
    )


def _of_policy_effects(query: LineageQuery, ref: Ref, _above: Ref | None) -> list[Edge]:
    model, version = ref.key
    if model != POLICY:
        return []
    statement = select(adoptions.c.position).where(query.holds(adoptions), adoptions.c.version == version)
    adopted = query.rows(statement.order_by(adoptions.c.position))
    begun_batches = select(batches.c.batch).where(query.holds(batches), batches.c.version == version)
    begun_rows = query.rows(begun_batches.order_by(batches.c.batch))
    edges = query.edge("adopted by", [LineageEntry(Ref("adoption", (row["position"],))) for row in adopted])
    edges += query.edge("started", [LineageEntry(Ref("batch", (row["batch"],))) for row in begun_rows])
    first = sampled_with(query, version).subquery()
    ordered = select(first.c.episode).order_by(first.c.position)
    return edges + query.episodes_edge("sampled", ordered)


def sampled_with(query: LineageQuery, version: int) -> Select[Any]:
    """Episodes with a token from a version, each with the position of the first such step."""
    unspliced = select(steps.c.episode, steps.c.position).where(
        query.holds(steps), steps.c.version_high == version, steps.c.version_low == version
    )
    spliced = select(token_versions.c.episode, token_versions.c.position).where(
        query.holds(token_versions), token_versions.c.version == version
    )
    both = unspliced.union_all(spliced).subquery()
    return select(both.c.episode, func.min(both.c.position).label("position")).group_by(both.c.episode)


EFFECTS: dict[str, Callable[[LineageQuery, Ref, Ref | None], list[Edge]]] = {
    "step": _of_step_effects,
    "episode": _of_episode_effects,
    "task": _of_task_effects,
    "batch": _of_batch_effects,
    "update": _of_update_effects,
    "policy": _of_policy_effects,
}
"""Forward edges by kind; kinds not listed have none."""
