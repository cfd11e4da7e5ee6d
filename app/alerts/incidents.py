"""Stores a run's incidents in the watcher's store: each is recorded once, shown once, and sent once.

"Shown on the terminal" and "delivered" are separate marks: a webhook may refuse a message for hours while the watcher is
started again. Both are set afterwards. A process that is killed in between repeats the message under the same id, by which
the receiver recognizes it.
"""

from collections.abc import Iterable, Mapping

import msgspec
from sqlalchemy import BigInteger, Boolean, Column, MetaData, Table, Text, insert, inspect, select, update

from hindcast.app.alerts.alert import Incident, Severity
from hindcast.app.attach.store import ConsumerStore

NOTED = ("id", "kind", "position", "text", "over")

metadata = MetaData()
incidents = Table(
    "hindcast_incidents",
    metadata,
    Column("run", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Column("over", Text, nullable=False),
    Column("told", Boolean, nullable=False),
    Column("over_told", Boolean, nullable=False),
)
"""The last two columns say whether an incident's beginning and end were delivered."""
shown = Table(
    "hindcast_incidents_shown",
    metadata,
    Column("run", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("over", Boolean, primary_key=True),
)
"""Beginnings and ends that the terminal has shown, whether or not they were delivered elsewhere."""

passed_over = Table(
    "hindcast_incidents_passed_over",
    metadata,
    Column("run", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
)
"""Position up to which beginnings and ends are recorded but not delivered."""


class AlertMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message about the beginning or end of an incident."""

    run: str
    id: str
    kind: str
    position: int
    over: bool
    """Whether the message is about the end."""
    text: str
    severity: Severity = "warning"

    @property
    def line(self) -> str:
        """The message as a terminal line."""
        return f"{'over' if self.over else 'ALERT'} · {self.text} (run {self.run}, {self.id})"


class Incidents:
    """Incidents of one run. Blocking."""

    def __init__(self, store: ConsumerStore, run: str, severities: Mapping[str, Severity] = {}) -> None:
        """`severities`: of incidents by their alert; those of other alerts are warnings."""
        self._store = store
        self._run = run
        self._severities = severities

    def prepare(self) -> None:
        """Create the table if it is missing."""
        self._store.prepare()
        with self._store.asking() as db:
            metadata.create_all(db)

    def has_passed_over(self) -> bool:
        """Whether a position is set up to which nothing is delivered."""
        with self._store.asking() as db:
            mine = passed_over.c.run == self._run
            return db.execute(select(passed_over.c.position).where(mine)).first() is not None

    def pass_over(self, until: int) -> None:
        """Deliver nothing that began or ended by this position, before the first watcher started. Only the first call counts."""
        with self._store.asking() as db:
            db.execute(insert(passed_over).values(run=self._run, position=until))

    def note(self, found: Iterable[Incident], *, folded: bool = False) -> None:
        """Record incidents in their current state; a recorded one changes only by its end.

        `folded`: they come from the log, so that their positions show whether they are past.
        """
        with self._store.asking() as db:
            mine = select(passed_over.c.position).where(passed_over.c.run == self._run)
            past = (db.execute(mine).scalar() or 0) if folded else 0
            known = dict(
                db.execute(select(incidents.c.id, incidents.c.over).where(incidents.c.run == self._run)).all()
            )
            for one in found:
                if one.id not in known:
                    values = {name: getattr(one, name) for name in NOTED}
                    told = {"told": one.position <= past, "over_told": 0 < one.over_at <= past}
                    db.execute(insert(incidents).values(run=self._run, **told, **values))
                elif one.over and not known[one.id]:
                    this = (incidents.c.run == self._run, incidents.c.id == one.id)
                    told = {"over_told": 0 < one.over_at <= past}
                    db.execute(update(incidents).where(*this).values(over=one.over, **told))

    def unfinished(self, kind: str) -> list[Incident]:
        """Recorded incidents of a kind that are not over."""
        mine = (incidents.c.run == self._run, incidents.c.kind == kind, incidents.c.over == "")
        with self._store.asking() as db:
            rows = db.execute(select(*(incidents.c[name] for name in NOTED)).where(*mine)).mappings()
            return [Incident(**row) for row in rows]

    def all(self) -> list[Incident]:
        """Every recorded incident, oldest first, without the positions of the ends; none if nothing was ever watched."""
        if self._store.file is not None and not self._store.file.exists():
            return []
        with self._store.asking() as db:
            if not inspect(db).has_table(incidents.name):
                return []
            rows = db.execute(
                select(*(incidents.c[name] for name in NOTED))
                .where(incidents.c.run == self._run)
                .order_by(incidents.c.position, incidents.c.id)
            ).mappings()
            return [Incident(**row) for row in rows]

    def untold(self) -> list[AlertMessage]:
        """Undelivered messages in the order of the log; an incident's beginning comes first."""
        with self._store.asking() as db:
            rows = db.execute(
                select(incidents)
                .where(incidents.c.run == self._run)
                .order_by(incidents.c.position, incidents.c.id)
            ).all()
        return [
            AlertMessage(
                run=row.run,
                id=row.id,
                kind=row.kind,
                position=row.position,
                over=over,
                text=text,
                severity=self._severities.get(row.kind, "warning"),
            )
            for row in rows
            for over, text, told in ((False, row.text, row.told), (True, row.over, row.over_told))
            if text and not told
        ]

    def unshown(self) -> list[AlertMessage]:
        """Undelivered messages that the terminal has not shown; in the same order."""
        mine = select(shown.c.id, shown.c.over).where(shown.c.run == self._run)
        with self._store.asking() as db:
            known = {(row.id, row.over) for row in db.execute(mine)}
        return [one for one in self.untold() if (one.id, one.over) not in known]

    def mark_shown(self, message: AlertMessage) -> None:
        """Record that the terminal has shown a message."""
        with self._store.asking() as db:
            db.execute(insert(shown).values(run=self._run, id=message.id, over=message.over))

    def mark(self, message: AlertMessage) -> None:
        """Record that a message was delivered."""
        mine = (incidents.c.run == self._run, incidents.c.id == message.id)
        told = {"over_told": True} if message.over else {"told": True}
        with self._store.asking() as db:
            db.execute(update(incidents).where(*mine).values(**told))
