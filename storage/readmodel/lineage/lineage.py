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
    asked = LineageQuery(connection, position=position, judge=judge, limit=limit)
    ref = find(asked, kind, name)
    standing = read_cursor(connection)
    assert standing is not None, "something was found in it"
    root = describe(asked, [ref])[ref]
    return Lineage(
        run=standing.run,
        position=position,
        kind=root.kind,
        id=root.id,
        backward=_walk(asked, ref, sources, depth) if backward else None,
        origins=origins(asked, ref) if backward else None,
        forward=_walk(asked, ref, effects, depth) if forward else None,
        reach=reach(asked, ref) if forward else None,
    )


def _walk(asked: LineageQuery, start: Ref, edges: Edges, depth: int) -> Node:
    """The tree below a thing. Each thing, and each share of it, is expanded once: versions would continue without end."""
    root = describe(asked, [start])[start]
    level: list[tuple[Ref, Ref | None, Node]] = [(start, None, root)]
    expanded: set[Ref] = set()
    for _ in range(depth):
        grown: list[tuple[Branch, Edge, Ref]] = []
        for ref, above, node in level:
            if ref in expanded:
                continue
            expanded.add(ref)
            node.expanded = True
            for edge in edges(asked, ref, above=above):
                branch = Branch(relation=edge.relation, kind=edge.kind, total=edge.total, counts=edge.counts)
                node.branches.append(branch)
                grown.append((branch, edge, ref))
        known = describe(asked, (found.ref for _, edge, _ in grown for found in edge.found))
        level = []
        for branch, edge, above in grown:
            for found in edge.found:
                node = _copy(known[found.ref.whole])
                node.share = found.share
                branch.nodes.append(node)
                level.append((found.ref, above, node))
    return root


def _copy(node: Node) -> Node:
    """A separate node: the same thing may be in several places, with another share in each."""
    return Node(kind=node.kind, id=node.id, position=node.position, facts=node.facts)


def origins(asked: LineageQuery, ref: Ref) -> Origins | None:
    """All training behind a thing; None if no policy weights are behind it."""
    update = _update_behind(asked, ref)
    if update is None:
        return None
    applied = (
        asked.holds(updates),
        updates.c.model == POLICY,
        updates.c.outcome == "applied",
        updates.c.update_number <= update,
    )
    made = asked.rows(
        select(func.count().label("updates"), func.count(updates.c.batch.distinct()).label("batches")).where(
            *applied
        )
    )[0]
    last = asked.number(select(func.max(updates.c.batch)).where(*applied))
    known = (asked.holds(weights), weights.c.model == POLICY)
    before = update - 1 if ref.kind == "update" else update
    version = asked.number(select(func.max(weights.c.version)).where(*known, weights.c.at_update <= before))
    learned = None if last is None else _learned(asked, applied, last=last)
    counted = {"episodes": 0, "tasks": 0}
    if learned is not None:
        tasks = func.count(planned_first.c.task.distinct())
        (row,) = asked.rows(select(func.count().label("episodes"), tasks.label("tasks")).where(learned))
        counted = dict(row)
    return Origins(
        policy=version or 0,
        updates=made["updates"],
        batches=made["batches"],
        **counted,
    )


def _update_behind(asked: LineageQuery, ref: Ref) -> int | None:
    """The last update in the weights that contributed to a thing; 0 for the base policy."""
    version: int | None = None
    if ref.kind == "update":
        (row,) = asked.rows(select(updates).where(updates.c.position == ref.key[0]))
        made = row["outcome"] == "applied"  # the next update has the number of a skipped one
        return row["update_number"] - (not made) if row["model"] == POLICY else None
    if ref.kind == "policy":
        version = ref.key[1] if ref.key[0] == POLICY else None
    elif ref.kind == "batch":
        version = asked.number(
            select(batches.c.version).where(asked.holds(batches), batches.c.batch == ref.key[0])
        )
    elif ref.kind in ("step", "episode"):
        column = steps.c.position if ref.kind == "step" else steps.c.episode
        version = asked.number(
            select(func.max(steps.c.version_high)).where(asked.holds(steps), column == ref.key[0])
        )
    if version is None or version == DEMONSTRATOR:
        return None
    return asked.number(
        select(weights.c.at_update).where(
            asked.holds(weights), weights.c.model == POLICY, weights.c.version == version
        )
    )


def _learned(
    asked: LineageQuery, applied: Sequence[ColumnElement[bool]], *, last: int
) -> ColumnElement[bool]:
    """Rows of `planned_first` of the episodes that the applied updates trained on.

    For complete batches the plan is enough. For the `last` one, which may be incomplete, and for those with a skipped
    mini-batch, only the samples of applied updates count. An episode first planned in such a batch also counts if a later
    complete batch trained on it.
    """
    skipped = (asked.holds(updates), updates.c.model == POLICY, updates.c.outcome == "skipped")
    broken = select(updates.c.batch).where(*skipped)
    in_part = or_(planned_first.c.batch == last, planned_first.c.batch.in_(broken))
    doubtful = select(planned_first.c.episode).where(planned_first.c.valid_from <= asked.position, in_part)
    again = (
        select(batch_episodes.c.episode)
        .join(batches, batches.c.batch == batch_episodes.c.batch)
        .where(
            asked.holds(batch_episodes),
            asked.holds(batches),
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
    parts = (
        select(batch_samples.c.episode)
        .join(updates, computed)
        .where(
            *applied,
            asked.holds(batch_samples),
            or_(batch_samples.c.batch == last, batch_samples.c.batch.in_(broken)),
            batch_samples.c.episode.in_(doubtful),
        )
    )
    # `+ 0`: use the index of tasks, in whose order equal ones are adjacent
    batch = planned_first.c.batch + 0
    whole = and_(batch < last, batch.not_in(broken))
    unsure = or_(batch == last, batch.in_(broken))
    return and_(
        planned_first.c.valid_from <= asked.position,
        or_(whole, and_(unsure, planned_first.c.episode.in_(again.union(parts)))),
    )


def reach(asked: LineageQuery, ref: Ref) -> Reach | None:
    """Everything that came from a thing through training; None if nothing was trained on it."""
    first_update = _first_update(asked, ref)
    if ref.kind == "policy":
        first_policy = ref.key[1] if ref.key[0] == POLICY else None
    elif first_update is not None:
        first_policy = first_version_with(asked, POLICY, first_update)
    if first_update is None and (ref.kind != "policy" or first_policy is None):
        return None
    newest = asked.number(
        select(func.max(weights.c.version)).where(asked.holds(weights), weights.c.model == POLICY)
    )
    outcomes: dict[str, int] = {}
    if first_policy is not None:
        outcomes = _sampled_since(asked, first_policy)
    return Reach(
        first_update=first_update,
        first_policy=first_policy,
        newest_policy=newest if first_policy is not None else None,
        episodes=sum(outcomes.values()),
        outcomes=outcomes,
    )


def _sampled_since(asked: LineageQuery, version: int) -> dict[str, int]:
    """Episodes with a token from a version or a later one, by outcome.

    For ended episodes, the only judged ones, the row has the newest version; for the others the steps have it.
    """
    said = (
        select(judged.c.outcome, func.count())
        .where(judged.c.judge == asked.judge, judged.c.valid_from <= asked.position)
        .where(judged.c.version_high >= version)
        .group_by(judged.c.outcome)
    )
    outcomes: dict[str, int] = dict(asked.connection.execute(said).all())
    ended = select(func.count()).where(
        asked.holds(episodes), episodes.c.state == "ended", episodes.c.version_high >= version
    )
    under_way = select(episodes.c.episode).where(
        # `+ 0`: use the index by `valid_to`, which has the state, too
        episodes.c.valid_from + 0 <= asked.position,
        episodes.c.valid_to > asked.position,
        episodes.c.state.in_(("started", "abandoned", "cancelled")),
    )
    begun = select(func.count(steps.c.episode.distinct())).where(
        asked.holds(steps), steps.c.episode.in_(under_way), steps.c.version_high >= version
    )
    unjudged = (asked.number(ended) or 0) - sum(outcomes.values()) + (asked.number(begun) or 0)
    if unjudged:
        outcomes[UNJUDGED] = unjudged
    return {one: outcomes[one] for one in (*OUTCOMES, UNJUDGED) if one in outcomes}


def _first_update(asked: LineageQuery, ref: Ref) -> int | None:
    """The first update of the policy computed from a thing."""
    applied = (asked.holds(updates), updates.c.model == POLICY, updates.c.outcome == "applied")
    number = select(func.min(updates.c.update_number)).where(*applied)
    if ref.kind == "update":
        return asked.number(number.where(updates.c.position == ref.key[0]))
    if ref.kind == "batch":
        return asked.number(number.where(updates.c.batch == ref.key[0]))
    used = (
        select(func.min(update_samples.c.update_number))
        .select_from(batch_samples)
        .join(update_samples, SAME_SAMPLE)
        .where(asked.holds(batch_samples), asked.holds(update_samples), update_samples.c.model == POLICY)
    )
    if ref.kind == "step":
        return asked.number(used.where(batch_samples.c.step_position == ref.key[0]))
    if ref.kind not in ("episode", "task"):
        return None
    own = select(episodes.c.episode).where(asked.holds(episodes), episodes.c[ref.kind] == ref.key[0])
    planned = (
        select(batch_episodes.c.batch)
        .where(
            asked.holds(batch_episodes),
            batch_episodes.c.episode.in_(own),
            batch_episodes.c.epoch.is_not(None),
        )
        .distinct()
        .order_by(batch_episodes.c.batch)
    )
    for row in asked.rows(planned):  # in the order of training, so nearly always the first one decides
        mine = used.where(batch_samples.c.batch == row["batch"], batch_samples.c.episode.in_(own))
        found = asked.number(mine)
        if found is not None:
            return found
    return None
