"""The lineage graph: references to things, a query as its parts share it, and results.

Results are trees whose branches count all of their entries and show the first ones.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from sqlalchemy import ColumnElement, Connection, RowMapping, Select, Subquery, Table, func, select

from hindcast.storage.readmodel.query_parts import OUTCOMES, first_verdicts, holding

Kind = Literal[
    "step",
    "episode",
    "task",
    "verdict",
    "batch",
    "update",
    "policy",
    "page",
    "settings",
    "demonstrator",
    "adoption",
    "checkpoint",
    "notice",
]


class Branch(msgspec.Struct, kw_only=True):
    """Everything in one relation to the node above."""

    relation: str
    """Read from the node above: `sampled by`, `trained on`, `judged by` …"""
    kind: Kind
    """Kind of all its entries."""
    total: int
    """Number of entries; `nodes` may show fewer."""
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    """All entries by outcome, if they have one: success, failure, undecided, and unjudged without a verdict."""
    nodes: list["Node"] = msgspec.field(default_factory=list)


class Node(msgspec.Struct, kw_only=True):
    """One thing in a lineage tree, such as an episode or an update."""

    kind: Kind
    id: str
    """As commands accept it: an episode's id, `EPISODE/INDEX`, a number; `MODEL/NUMBER` of models other than the policy."""
    position: int | None = None
    """Position in the log. None: it was only named so far, or is no event."""
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    """Facts about it."""
    share: dict[str, Any] = msgspec.field(default_factory=dict)
    """Its part in the node above: tokens, weight, ratio, mask, advantage …"""
    branches: list[Branch] = msgspec.field(default_factory=list)
    expanded: bool = False
    """Whether `branches` is filled; False at the requested depth, and if the tree expands it elsewhere."""


class Origins(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the weights behind the node were trained on, down to the base policy."""

    policy: int
    """The newest version that contributed to it; of an update, the version before it."""
    updates: int
    """Optimizer steps that made that version; of an update, those up to itself."""
    batches: int
    episodes: int
    """Distinct episodes trained on or rehearsed in those batches."""
    tasks: int
    """Distinct tasks of those episodes."""


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """What came from the node through training."""

    first_update: int | None
    """The first update computed from it; None for a policy version."""
    first_policy: int | None
    """The first version that includes that update; every later version descends from it. None: not published yet."""
    newest_policy: int | None
    episodes: int
    """Episodes with at least one token sampled from those versions."""
    outcomes: dict[str, int]
    """Those episodes by the training judge's verdict."""


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """One thing, what it came from and what came from it."""

    run: str
    position: int
    """Position as of which everything here holds."""
    kind: Kind
    id: str
    backward: Node | None
    """None if it was not requested."""
    origins: Origins | None
    """None if no weights are behind it, or backward was not requested."""
    forward: Node | None
    reach: Reach | None
    """None if nothing was trained on it, or forward was not requested."""


POLICY = "policy"
"""The model that samples; others are named `MODEL/NUMBER`."""


DEMONSTRATOR = -1
"""Version of tokens that no policy sampled."""


UNJUDGED = "unjudged"


KEYS_PER_SELECT = 400
"""Keys looked up at once: databases limit the number of parameters of a statement."""


class Ref(msgspec.Struct, frozen=True):
    """Reference to a thing in the lineage graph, such as an episode or an update."""

    kind: Kind
    key: tuple[Any, ...]
    """Key of its rows: a position, an id, or model and number."""
    share_of: "Ref | None" = None
    """Restricts it to its part in another thing: an episode's samples in one update, a batch's of one episode."""

    @property
    def without_share(self) -> "Ref":
        """The thing without the restriction."""
        return Ref(self.kind, self.key)


class LineageEntry(msgspec.Struct, frozen=True):
    """One entry of a branch, before it is described."""

    ref: Ref
    share: dict[str, Any] = {}


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """A branch before its entries are described."""

    relation: str
    kind: Kind
    entries: Sequence[LineageEntry]
    total: int
    counts: dict[str, int] = {}


class LineageQuery:
    """A lineage query on one connection, as of one position."""

    def __init__(self, connection: Connection, *, position: int, judge: str, limit: int | None) -> None:
        """`limit`: most entries of one branch; None: all. `judge`: the one whose verdicts are trained on."""
        self.connection = connection
        self.position = position
        self.judge = judge
        self.limit = limit

    def holds(self, table: Table) -> ColumnElement[bool]:
        """The rows of a table that hold as of the position."""
        return holding(table, self.position)

    def rows(self, statement: Select[*tuple[Any, ...]]) -> Sequence[RowMapping]:
        """All rows of a statement."""
        return self.connection.execute(statement).mappings().all()

    def number(self, statement: Select[Any]) -> int | None:
        """The single number of a statement; None if there is none."""
        value: int | None = self.connection.scalar(statement)
        return value

    def first_rows(self, statement: Select[Any]) -> Sequence[RowMapping]:
        """Rows up to the limit of a branch."""
        return self.rows(statement.limit(self.limit))

    def training_verdicts(self) -> Subquery:
        """The training judge's first verdict on each episode."""
        return first_verdicts(self.position, self.judge)

    def outcomes(self, among: Select[Any]) -> dict[str, int]:
        """Numbers of the episodes that a statement selects, by outcome."""
        first = self.training_verdicts()
        selected = among.subquery()
        outcome = func.coalesce(first.c.outcome, UNJUDGED)
        statement = (
            select(outcome, func.count())
            .select_from(selected.outerjoin(first, first.c.episode == selected.c.episode))
            .group_by(outcome)
        )
        counted: dict[str, int] = dict(self.connection.execute(statement).all())
        return {name: counted[name] for name in (*OUTCOMES, UNJUDGED) if name in counted}

    def show(self, entries: Iterable[LineageEntry]) -> list[LineageEntry]:
        """Entries up to the limit of a branch."""
        return list(entries)[: self.limit]

    def edge(self, relation: str, entries: Sequence[LineageEntry]) -> list[Edge]:
        """A branch of known entries; no branch if there are none."""
        if not entries:
            return []
        visible = self.show(entries)
        return [Edge(relation=relation, kind=entries[0].ref.kind, entries=visible, total=len(entries))]

    def episodes_edge(
        self, relation: str, statement: Select[Any], *, share: Sequence[str] = (), hidden: bool = False
    ) -> list[Edge]:
        """A branch of episodes, one per row of a statement, in its order.

        `share`: columns that describe their part in it. `hidden`: count only.
        """
        among = statement.order_by(None).with_only_columns(statement.selected_columns.episode)
        counts = self.outcomes(among)
        total = sum(counts.values())
        if not total:
            return []
        rows = [] if hidden else self.first_rows(statement)
        entries = [
            LineageEntry(Ref("episode", (row["episode"],)), {n: row[n] for n in share}) for row in rows
        ]
        return [Edge(relation=relation, kind="episode", entries=entries, total=total, counts=counts)]


def in_parts(keys: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """Split keys into lists that fit into a statement."""
    return (keys[start : start + KEYS_PER_SELECT] for start in range(0, len(keys), KEYS_PER_SELECT))
