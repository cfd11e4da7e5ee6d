"""A lineage query as its parts share it (connection, position, limits), and references to things."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, RowMapping, Select, Subquery, Table, func, select

from hindcast.storage.readmodel.lineage.results import Kind
from hindcast.storage.readmodel.query_parts import OUTCOMES, first_verdicts, holding

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
    def whole(self) -> "Ref":
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
    found: Sequence[LineageEntry]
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
        found: int | None = self.connection.scalar(statement)
        return found

    def first_rows(self, statement: Select[Any]) -> Sequence[RowMapping]:
        """Rows up to the limit of a branch."""
        return self.rows(statement.limit(self.limit))

    def said(self) -> Subquery:
        """The training judge's first verdict on each episode."""
        return first_verdicts(self.position, self.judge)

    def outcomes(self, among: Select[Any]) -> dict[str, int]:
        """Numbers of the episodes that a statement selects, by outcome."""
        said = self.said()
        listed = among.subquery()
        outcome = func.coalesce(said.c.outcome, UNJUDGED)
        statement = (
            select(outcome, func.count())
            .select_from(listed.outerjoin(said, said.c.episode == listed.c.episode))
            .group_by(outcome)
        )
        counted: dict[str, int] = dict(self.connection.execute(statement).all())
        return {one: counted[one] for one in (*OUTCOMES, UNJUDGED) if one in counted}

    def show(self, found: Iterable[LineageEntry]) -> list[LineageEntry]:
        """Entries up to the limit of a branch."""
        return list(found)[: self.limit]

    def edge(self, relation: str, found: Sequence[LineageEntry]) -> list[Edge]:
        """A branch of known entries; no branch if there are none."""
        if not found:
            return []
        shown = self.show(found)
        return [Edge(relation=relation, kind=found[0].ref.kind, found=shown, total=len(found))]

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
        found = [LineageEntry(Ref("episode", (row["episode"],)), {n: row[n] for n in share}) for row in rows]
        return [Edge(relation=relation, kind="episode", found=found, total=total, counts=counts)]


def in_parts(keys: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """Split keys into lists that fit into a statement."""
    return (keys[start : start + KEYS_PER_SELECT] for start in range(0, len(keys), KEYS_PER_SELECT))
