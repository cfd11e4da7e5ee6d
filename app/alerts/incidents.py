"""The incidents of a run in the store of whoever watches it: each noted once, shown once, and sent once.

What was shown on the terminal is marked apart from what is told for good: a webhook may refuse a message for hours, and
the watcher be started again meanwhile. Both are marked afterwards. A process that is killed in between tells it again,
under the same id: who receives it can tell that it is the same.
"""

from collections.abc import Iterable

import msgspec
from sqlalchemy import BigInteger, Boolean, Column, MetaData, Table, Text, insert, select, update

from hindcast.app.alerts.rules import Incident
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
"""`told`, `over_told`: whether its beginning and its end were."""
shown = Table(
    "hindcast_incidents_shown",
    metadata,
    Column("run", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("over", Boolean, primary_key=True),
)
"""Which beginnings and ends the terminal has shown, whoever else is still to be told."""

passed_over = Table(
    "hindcast_incidents_passed_over",
    metadata,
    Column("run", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
)
"""Up to where beginnings and ends of incidents are noted, but told to nobody."""


class AlertMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What is told about an incident."""

    run: str
    id: str
    kind: str
    position: int
    over: bool
    """Whether it is about its end."""
    text: str

    @property
    def line(self) -> str:
        """As terminals show it."""
        return f"{'over' if self.over else 'ALERT'} · {self.text} (run {self.run}, {self.id})"


class Incidents:
    """Of one run. Blocking."""

    def __init__(self, store: ConsumerStore, run: str) -> None:
        self._store = store
        self._run = run

    def prepare(self) -> None:
        """Make the table where there is none."""
        self._store.prepare()
        with self._store.asking() as db:
            metadata.create_all(db)

    def has_passed_over(self) -> bool:
        """Whether it is known up to where nobody is told anything."""
        with self._store.asking() as db:
            mine = passed_over.c.run == self._run
            return db.execute(select(passed_over.c.position).where(mine)).first() is not None

    def pass_over(self, until: int) -> None:
        """Tell nobody of what began, or ended, by this position: it was past before anybody watched. Said once."""
        with self._store.asking() as db:
            db.execute(insert(passed_over).values(run=self._run, position=until))

    def note(self, found: Iterable[Incident], *, folded: bool = False) -> None:
        """Take in incidents as they stand; what is noted already changes only by its end.

        `folded`: from the log, so that their positions say whether they are past.
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
        """Those of a kind that are not over."""
        mine = (incidents.c.run == self._run, incidents.c.kind == kind, incidents.c.over == "")
        with self._store.asking() as db:
            rows = db.execute(select(*(incidents.c[name] for name in NOTED)).where(*mine)).mappings()
            return [Incident(**row) for row in rows]

    def untold(self) -> list[AlertMessage]:
        """What nobody was told yet, in the order of the log; of an incident its beginning first."""
        with self._store.asking() as db:
            rows = db.execute(
                select(incidents)
                .where(incidents.c.run == self._run)
                .order_by(incidents.c.position, incidents.c.id)
            ).all()
        found = []
        for row in rows:
            if not row.told:
                found.append(_message(row.run, row.id, row.kind, row.position, row.text, over=False))
            if row.over and not row.over_told:
                found.append(_message(row.run, row.id, row.kind, row.position, row.over, over=True))
        return found

    def unshown(self) -> list[AlertMessage]:
        """Of what is untold, what the terminal has not shown either; in the same order."""
        mine = select(shown.c.id, shown.c.over).where(shown.c.run == self._run)
        with self._store.asking() as db:
            known = {(row.id, row.over) for row in db.execute(mine)}
        return [one for one in self.untold() if (one.id, one.over) not in known]

    def mark_shown(self, message: AlertMessage) -> None:
        """The terminal has shown it."""
        with self._store.asking() as db:
            db.execute(insert(shown).values(run=self._run, id=message.id, over=message.over))

    def mark(self, message: AlertMessage) -> None:
        """It was told."""
        mine = (incidents.c.run == self._run, incidents.c.id == message.id)
        told = {"over_told": True} if message.over else {"told": True}
        with self._store.asking() as db:
            db.execute(update(incidents).where(*mine).values(**told))


def _message(run: str, name: str, kind: str, position: int, text: str, *, over: bool) -> AlertMessage:
    return AlertMessage(run=run, id=name, kind=kind, position=position, over=over, text=text)
