"""The lineage's graph: many things are one box, one thing is drawn once, and lines lead from left to right."""

import re
from xml.etree import ElementTree

from hindcast.app.page.lineage_graph import Graph, lineage_graph
from hindcast.storage.readmodel.lineage.graph import Branch, Lineage, Node


def branch(relation: str, *nodes: Node, total: int | None = None, **counts: int) -> Branch:
    return Branch(
        relation=relation,
        kind=nodes[0].kind,
        total=len(nodes) if total is None else total,
        counts=counts,
        nodes=list(nodes),
    )


def update(number: int) -> Node:
    policy = Node(kind="policy", id="1")
    return Node(kind="update", id=str(number), branches=[branch("first published in", policy)])


EPISODES = [Node(kind="episode", id=f"ep_{number}") for number in range(3)]
LINEAGE = Lineage(
    run="tale",
    position=9,
    kind="batch",
    id="4",
    backward=Node(
        kind="batch", id="4", branches=[branch("trained on", *EPISODES, total=30, success=20, failure=10)]
    ),
    origins=None,
    forward=Node(kind="batch", id="4", branches=[branch("computed", update(7), update(8))]),
    reach=None,
)


def test_many_things_in_one_relation_are_one_box_and_one_thing_is_one_box() -> None:
    graph = Graph(LINEAGE)
    assert [(box.column, box.relation, box.content.text) for box in graph.boxes] == [
        (0, "", "batch 4"),
        (-1, "trained on 30 episodes", "✓ 20 ✗ 10"),
        (1, "computed", "update 7"),
        (2, "first published in", "policy 1"),
        (1, "computed", "update 8"),
    ]
    (policy,) = [box for box in graph.boxes if box.column == 2]
    assert [parent.content.text for parent in policy.parents] == ["update 7", "update 8"]
    places = [(box.column, box.row) for box in graph.boxes]
    assert len(set(places)) == len(places), "no box covers another"


def test_the_graph_links_what_has_a_page_and_keeps_the_position() -> None:
    drawn = ElementTree.fromstring(str(lineage_graph(LINEAGE, base="/tale", as_of=9)))
    assert [link.attrib["href"] for link in drawn.iter("a")] == [
        f"/tale/lineage/{path}?as_of=9" for path in ("batch/4", "update/7", "policy/1", "update/8")
    ]
    for line in drawn.iter("path"):
        numbers = [float(number) for number in re.findall(r"[\d.]+", line.attrib["d"])]
        assert numbers[0] < numbers[-2]


def test_a_thing_without_origin_or_consequence_is_a_graph_of_its_own() -> None:
    alone = Node(kind="task", id="<t>")
    lineage = Lineage(
        run="tale", position=1, kind="task", id="<t>", backward=alone, origins=None, forward=None, reach=None
    )
    (text, *_) = [
        one.text
        for one in ElementTree.fromstring(str(lineage_graph(lineage, base="/r", as_of=None))).iter("text")
        if one.text
    ]
    assert text == "<t>"
