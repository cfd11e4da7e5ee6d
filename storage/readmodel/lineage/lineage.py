"""Lineage: what a step, episode, task, batch, update or policy version came from, and what came from it.

Walks the graph over the read model's tables from one thing, level by level, so that a thing met twice is expanded where it
is nearest. Contents are referenced: token ids by a step's position in the log, pages and weights by the digests of their
blobs. Beyond the tree's edges only counts are given: weights are one chain, in which a version includes every earlier
update. So an update leads to every later version and every episode with a token from them, and a version comes from every
update up to its own.
"""

from collections.abc import Callable, Sequence

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from hindcast.storage.readmodel.fold import read_cursor
from hindcast.storage.readmodel.lineage.edges import SAME_SAMPLE, effects, first_version_with, sources
from hindcast.storage.readmodel.lineage.graph import (
    DEMONSTRATOR,
    POLICY,
    UNJUDGED,
    Branch,
    Edge,
    Lineage,
    LineageQuery,
    Node,
    Origins,
    Reach,
    Ref,
)
from hindcast.storage.readmodel.lineage.nodes import describe, find
from hindcast.storage.readmodel.query_parts import OUTCOMES, position_of, training_judge
from hindcast.storage.readmodel.tables import (
    batch_episodes,
    batch_samples,
    batches,
    episodes,
    judged,
    planned_first,
    steps,
    update_samples,
    updates,
    weights,
)

DEPTH = 3


LIMIT = 3


Edges = Callable[..., list[Edge]]


def lineage(
    connection: Connection,
    kind: str,
    name: str,
    *,
    as_of: int | None = None,
    backward: bool = True,
    forward: bool = True,
    depth: int = DEPTH,
    limit: int | None = LIMIT,
) -> Lineage:
    """What a thing came from and what came from it.

    `kind`: step, episode, batch, update, task or policy; `name`: its id or a unique prefix of it, `EPISODE/INDEX` or
    a position of a step, a number. `depth`: levels below it; `limit`: most entries of one branch, None for all.

    Raises:
        NotInReadModel: no such thing at that position.
    """
    position = position_of(connection, as_of)
    judge = training_judge(connection, as_of=position)
    query = LineageQuery(connection, position=position, judge=judge, limit=limit)
    ref = find(query, kind, name)
    standing = read_cursor(connection)
    assert standing is not None, "something was found in it"
    root = describe(query, [ref])[ref]
    return Lineage(
        run=standing.run,
        position=position,
        kind=root.kind,
        id=root.id,
        backward=_walk(query, ref, sources, depth) if backward else None,
        origins=origins(query, ref) if backward else None,
        forward=_walk(query, ref, effects, depth) if forward else None,
        reach=reach(query, ref) if forward else None,
    )


def _walk(query: LineageQuery, start: Ref, edges: Edges, depth: int) -> Node:
    """The tree below a thing. Each thing, and each share of it, is expanded once: versions would continue without end."""
    root = describe(query, [start])[start]
    level: list[tuple[Ref, Ref | None, Node]] = [(start, None, root)]
    expanded: set[Ref] = set()
    for _ in range(depth):
        grown: list[tuple[Branch, Edge, Ref]] = []
        for ref, above, node in level:
            if ref in expanded:
                continue
            expanded.add(ref)
            node.expanded = True
            for edge in edges(query, ref, above=above):
                branch = Branch(relation=edge.relation, kind=edge.kind, total=edge.total, counts=edge.counts)
                node.branches.append(branch)
                grown.append((branch, edge, ref))
        nodes = describe(query, (entry.ref for _, edge, _ in grown for entry in edge.entries))
        level = []
        for branch, edge, above in grown:
            for entry in edge.entries:
                node = _copy(nodes[entry.ref.without_share])
                node.share = entry.share
                branch.nodes.append(node)
                level.append((entry.ref, above, node))
    return root


def _copy(node: Node) -> Node:
    """A separate node: the same thing may be in several places, with another share in each."""
    return Node(kind=node.kind, id=node.id, position=node.position, facts=node.facts)


def origins(query: LineageQuery, ref: Ref) -> Origins | None:
    """All training behind a thing; None if no policy weights are behind it."""
    update = _update_behind(query, ref)
    if update is None:
        return None
    applied = (
        query.holds(updates),
        updates.c.model == POLICY,
        updates.c.outcome == "applied",
        updates.c.update_number <= update,
    )
    update_counts = query.rows(
        select(func.count().label("updates"), func.count(updates.c.batch.distinct()).label("batches")).where(
            *applied
        )
    )[0]
    last = query.number(select(func.max(updates.c.batch)).where(*applied))
    policy_weights = (query.holds(weights), weights.c.model == POLICY)
    last_update = update - 1 if ref.kind == "update" else update
    version = query.number(
        select(func.max(weights.c.version)).where(*policy_weights, weights.c.at_update <= last_update)
    )
    learned = None if last is None else _learned(query, applied, last=last)
    counted = {"episodes": 0, "tasks": 0}
    if learned is not None:
        tasks = func.count(planned_first.c.task.distinct())
        (row,) = query.rows(select(func.count().label("episodes"), tasks.label("tasks")).where(learned))
        counted = dict(row)
    return Origins(
        policy=version or 0,
        updates=update_counts["updates"],
        batches=update_counts["batches"],
        **counted,
    )


def _update_behind(query: LineageQuery, ref: Ref) -> int | None:
    """The last update in the weights that contributed to a thing; 0 for the base policy."""
    version: int | None = None
    if ref.kind == "update":
        (row,) = query.rows(select(updates).where(updates.c.position == ref.key[0]))
        was_applied = row["outcome"] == "applied"  # the next update has the number of a skipped one
        return row["update_number"] - (not was_applied) if row["model"] == POLICY else None
    if ref.kind == "policy":
        version = ref.key[1] if ref.key[0] == POLICY else None
    elif ref.kind == "batch":
        version = query.number(
            select(batches.c.version).where(query.holds(batches), batches.c.batch == ref.key[0])
        )
    elif ref.kind in ("step", "episode"):
        column = steps.c.position if ref.kind == "step" else steps.c.episode
        version = query.number(
            select(func.max(steps.c.version_high)).where(query.holds(steps), column == ref.key[0])
        )
    if version is None or version == DEMONSTRATOR:
        return None
    return query.number(
        select(weights.c.at_update).where(
            query.holds(weights), weights.c.model == POLICY, weights.c.version == version
        )
    )


def _learned(
    query: LineageQuery, applied: Sequence[ColumnElement[bool]], *, last: int
) -> ColumnElement[bool]:
    """Rows of `planned_first` of the episodes that the applied updates trained on.

    For complete batches the plan is enough. For the `last` one, which may be incomplete, and for those with a skipped
    mini-batch, only the samples of applied updates count. An episode first planned in such a batch also counts if a later
    complete batch trained on it.
    """
    skipped = (query.holds(updates), updates.c.model == POLICY, updates.c.outcome == "skipped")
    broken = select(updates.c.batch).where(*skipped)
    in_part = or_(planned_first.c.batch == last, planned_first.c.batch.in_(broken))
    doubtful = select(planned_first.c.episode).where(planned_first.c.valid_from <= query.position, in_part)
    trained_later = (
        select(batch_episodes.c.episode)
        .join(batches, batches.c.batch == batch_episodes.c.batch)
        .where(
            query.holds(batch_episodes),
            query.holds(batches),
            batches.c.model == POLICY,
            batch_episodes.c.episode.in_(doubtful),
            batch_episodes.c.batch < last,
            batch_episodes.c.batch.not_in(broken),
            batch_episodes.c.epoch.is_not(None),
        )
    )
    computed = and_(
        updates.c.batch == batch_samples.c.batch, updates.c.minibatch == batch_samples.c.minibatch
    )
    partly_trained = (
        select(batch_samples.c.episode)
        .join(updates, computed)
        .where(
            *applied,
            query.holds(batch_samples),
            or_(batch_samples.c.batch == last, batch_samples.c.batch.in_(broken)),
            batch_samples.c.episode.in_(doubtful),
        )
    )
    # `+ 0`: use the index of tasks, in whose order equal ones are adjacent
    batch = planned_first.c.batch + 0
    in_complete_batch = and_(batch < last, batch.not_in(broken))
    unsure = or_(batch == last, batch.in_(broken))
    return and_(
        planned_first.c.valid_from <= query.position,
        or_(
            in_complete_batch, and_(unsure, planned_first.c.episode.in_(trained_later.union(partly_trained)))
        ),
    )


def reach(query: LineageQuery, ref: Ref) -> Reach | None:
    """Everything that came from a thing through training; None if nothing was trained on it."""
    first_update = _first_update(query, ref)
    if ref.kind == "policy":
        first_policy = ref.key[1] if ref.key[0] == POLICY else None
    elif first_update is not None:
        first_policy = first_version_with(query, POLICY, first_update)
    if first_update is None and (ref.kind != "policy" or first_policy is None):
        return None
    newest = query.number(
        select(func.max(weights.c.version)).where(query.holds(weights), weights.c.model == POLICY)
    )
    outcomes: dict[str, int] = {}
    if first_policy is not None:
        outcomes = _sampled_since(query, first_policy)
    return Reach(
        first_update=first_update,
        first_policy=first_policy,
        newest_policy=newest if first_policy is not None else None,
        episodes=sum(outcomes.values()),
        outcomes=outcomes,
    )


def _sampled_since(query: LineageQuery, version: int) -> dict[str, int]:
    """Episodes with a token from a version or a later one, by outcome.

    For ended episodes, the only judged ones, the row has the newest version; for the others the steps have it.
    """
    verdict_counts = (
        select(judged.c.outcome, func.count())
        .where(judged.c.judge == query.judge, judged.c.valid_from <= query.position)
        .where(judged.c.version_high >= version)
        .group_by(judged.c.outcome)
    )
    outcomes: dict[str, int] = dict(query.connection.execute(verdict_counts).all())
    ended_count = select(func.count()).where(
        query.holds(episodes), episodes.c.state == "ended", episodes.c.version_high >= version
    )
    under_way = select(episodes.c.episode).where(
        # `+ 0`: use the index by `valid_to`, which has the state, too
        episodes.c.valid_from + 0 <= query.position,
        episodes.c.valid_to > query.position,
        episodes.c.state.in_(("started", "abandoned", "cancelled")),
    )
    under_way_count = select(func.count(steps.c.episode.distinct())).where(
        query.holds(steps), steps.c.episode.in_(under_way), steps.c.version_high >= version
    )
    unjudged = (
        (query.number(ended_count) or 0) - sum(outcomes.values()) + (query.number(under_way_count) or 0)
    )
    if unjudged:
        outcomes[UNJUDGED] = unjudged
    return {outcome: outcomes[outcome] for outcome in (*OUTCOMES, UNJUDGED) if outcome in outcomes}


def _first_update(query: LineageQuery, ref: Ref) -> int | None:
    """The first update of the policy computed from a thing."""
    applied = (query.holds(updates), updates.c.model == POLICY, updates.c.outcome == "applied")
    number = select(func.min(updates.c.update_number)).where(*applied)
    if ref.kind == "update":
        return query.number(number.where(updates.c.position == ref.key[0]))
    if ref.kind == "batch":
        return query.number(number.where(updates.c.batch == ref.key[0]))
    used = (
        select(func.min(update_samples.c.update_number))
        .select_from(batch_samples)
        .join(update_samples, SAME_SAMPLE)
        .where(query.holds(batch_samples), query.holds(update_samples), update_samples.c.model == POLICY)
    )
    if ref.kind == "step":
        return query.number(used.where(batch_samples.c.step_position == ref.key[0]))
    if ref.kind not in ("episode", "task"):
        return None
    episode_ids = select(episodes.c.episode).where(query.holds(episodes), episodes.c[ref.kind] == ref.key[0])
    planned = (
        select(batch_episodes.c.batch)
        .where(
            query.holds(batch_episodes),
            batch_episodes.c.episode.in_(episode_ids),
            batch_episodes.c.epoch.is_not(None),
        )
        .distinct()
        .order_by(batch_episodes.c.batch)
    )
    for row in query.rows(planned):  # in the order of training, so nearly always the first one decides
        used_in_batch = used.where(
            batch_samples.c.batch == row["batch"], batch_samples.c.episode.in_(episode_ids)
        )
        first = query.number(used_in_batch)
        if first is not None:
            return first
    return None
