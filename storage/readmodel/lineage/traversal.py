"""Walks the lineage graph from one thing, level by level, so that a thing met twice is expanded where it is nearest."""

from collections.abc import Callable

from sqlalchemy import Connection

from hindcast.storage.readmodel.fold import read_cursor
from hindcast.storage.readmodel.lineage.effects import effects
from hindcast.storage.readmodel.lineage.names import find
from hindcast.storage.readmodel.lineage.nodes import describe
from hindcast.storage.readmodel.lineage.query import Edge, LineageQuery, Ref
from hindcast.storage.readmodel.lineage.reach import origins, reach
from hindcast.storage.readmodel.lineage.results import Branch, Lineage, Node
from hindcast.storage.readmodel.lineage.sources import sources
from hindcast.storage.readmodel.queries import training_judge
from hindcast.storage.readmodel.query_parts import position_of

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
