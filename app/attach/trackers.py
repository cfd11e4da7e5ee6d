"""What the bridges to experiment trackers share: each sends a run's curves, episodes and alerts to its `Tracker`.

    event ──> points_of; success of the last training episodes ──┐
          ──> rows of judged episodes, many at once ─────────────┼──> TrackerEntry ──> Tracker.add
          ──> the run's alerts, folded again ────────────────────┘

What a bridge remembers is in the consumer's store, in the transaction that holds its position. An event that comes again after
a crash is not sent again to a tracker that knows its own last position.
"""

import atexit
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    func,
    insert,
    select,
    update,
)

from hindcast.app.alerts.alert import Incident
from hindcast.app.alerts.rules import AlertFold, AlertState, open_alerts
from hindcast.app.attach.curves import Points, points_of
from hindcast.app.attach.store import first_digest_of
from hindcast.core.settings.changes import decode_settings
from hindcast.core.structs import decode_msgpack
from hindcast.events import catalogue as ev
from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.events.envelope import Recorded

ROWS_AT_ONCE = 100
"""Judged episodes that a tracker gets as one table."""
RECENT = 100
"""Training episodes in the curve `success`."""
SHOWN = (
    "episode",
    "task",
    "family",
    "origin",
    "policy_version",
    "steps",
    "ended",
    "duration_s",
    "outcome",
    "reward",
    "reason",
    "position",
)
"""Columns of the table of episodes."""


class TrackerEntry(NamedTuple):
    """What one event adds to a tracker."""

    position: int
    occurred_s: float
    """Time of the event: seconds since 1970."""
    charts: list[Points]
    episodes: list[dict[str, Any]]
    """Rows for the table of episodes; the keys are `SHOWN`."""
    incidents: list[Incident]
    """Incidents that begin at this event."""

    def row(self) -> dict[str, float]:
        """The values of all charts and their places on the axes, for trackers that keep rows."""
        row: dict[str, float] = {"position": self.position}
        for points in self.charts:
            row |= {points.axis: points.at, **points.values}
        return row


class Tracker(Protocol):
    """One run in an experiment tracker."""

    last_position: int
    """Position of the last event that the tracker had when it was opened; 0: none, or it cannot say."""
    close: Callable[[], object]
    """Writes what is buffered; called when the process ends."""

    def add(self, entry: TrackerEntry) -> None:
        """Record what an event adds."""


OpenTracker = Callable[[str, str, dict[str, Any]], Tracker]
"""Opens a run's tracker by the run's name, the id of its log, and its settings, which are empty if they are not known."""


class TrackerBridge:
    """Sends a run to an experiment tracker: curves, a table of episodes, and alerts."""

    def __init__(self, name: str, open_tracker: OpenTracker) -> None:
        """`name`: prefix of its tables."""
        self._open_tracker = open_tracker
        self._opened: dict[str, _TrackedRun] = {}
        """By id."""
        self._metadata = MetaData()
        self._runs = Table(
            f"{name}_runs",
            self._metadata,
            Column("run", Text, primary_key=True),
            Column("id", Text, nullable=False),
            Column("settings", LargeBinary),
            Column("alerts", LargeBinary),
        )
        self._episodes = Table(
            f"{name}_episodes",
            self._metadata,
            Column("run", Text, primary_key=True),
            Column("episode", Text, primary_key=True),
            *(Column(name, Text) for name in ("task", "family", "origin", "ended", "outcome", "reason")),
            *(Column(name, Integer) for name in ("policy_version", "steps")),
            *(Column(name, Float) for name in ("duration_s", "reward")),
            Column("position", BigInteger),
            Column("sent", Integer, nullable=False, default=0),
            Index(f"{name}_episodes_judged", "run", "origin", "position"),
            Index(f"{name}_episodes_unsent", "run", "sent", "position"),
        )

    def prepare(self, db: Connection) -> None:
        """Create the bridge's tables."""
        self._metadata.create_all(db)

    def __call__(self, event: Recorded, db: Connection) -> None:
        """Remember an event, and send what it adds."""
        run = self._run(event, db)
        charts = [points_of(event.fact), self._take_episode(event, run.judge, db)]
        entry = TrackerEntry(
            position=event.position,
            occurred_s=event.envelope.occurred_ns / 1e9,
            charts=[points for points in charts if points is not None],
            episodes=self._rows(event, db),
            incidents=self._incidents(event, run.alerts, db),
        )
        is_new = event.position > run.tracker.last_position
        if is_new and (entry.charts or entry.episodes or entry.incidents):
            run.tracker.add(entry)

    def _run(self, event: Recorded, db: Connection) -> "_TrackedRun":
        """The run, opened. Its id is its name with the digest of its log's first event."""
        name, fact = event.envelope.run, event.fact
        this = select(self._runs.c.id, self._runs.c.settings).where(self._runs.c.run == name)
        row = db.execute(this).first()
        if row is None:
            first = event.digest if event.position == 1 else first_digest_of(db, name)
            started = fact.start if isinstance(fact, ev.RunForked) else fact
            values = {
                "run": name,
                "id": f"{name}-{first.hex()[:12]}",
                "settings": msgspec.msgpack.encode(started.settings)
                if isinstance(started, ev.RunStarted)
                else None,
            }
            db.execute(insert(self._runs).values(values))
            row = db.execute(this).one()
        if row.id not in self._opened:
            settings = {} if row.settings is None else msgspec.msgpack.decode(row.settings)
            tracker = self._open_tracker(name, row.id, settings)
            atexit.register(tracker.close)
            self._opened[row.id] = _TrackedRun(tracker, settings)
        return self._opened[row.id]

    def _take_episode(self, event: Recorded, training_judge: str | None, db: Connection) -> Points | None:
        """Complete an episode's row; the first sure verdict on a training episode adds a point."""
        table, run = self._episodes, event.envelope.run
        values: dict[str, Any]
        match event.fact:
            case ev.EpisodeRequested(episode=episode, task=task, origin=origin):
                values = {"task": task.name, "family": task.full_family, "origin": origin}
                db.execute(insert(table).values(run=run, episode=episode, **values))
                return None
            case ev.EpisodeEnded(episode=episode) as end:
                values = {
                    "ended": end.reason,
                    "policy_version": end.policy_versions[1],
                    "steps": end.steps,
                    "duration_s": end.duration_ms / 1000,
                }
                db.execute(update(table).where(table.c.run == run, table.c.episode == episode).values(values))
                return None
            case ev.EpisodeJudged(episode=episode, judge=judge, judgment=judgment):
                if training_judge not in (None, judge.name):
                    return None
                values = {
                    "outcome": judgment.outcome,
                    "reward": judgment.reward if judgment.outcome != "undecided" else None,
                    "reason": judgment.reason,
                    "position": event.position,
                }
                mine = (table.c.run == run, table.c.episode == episode, table.c.position.is_(None))
                judged = db.execute(update(table).where(*mine).values(values)).rowcount
                if judged and judgment.outcome != "undecided":
                    return self._success(event, episode, db)
        return None

    def _success(self, event: Recorded, episode: str, db: Connection) -> Points | None:
        """Success over the last training episodes, if this is one."""
        table = self._episodes
        training = (table.c.run == event.envelope.run, table.c.origin == ONLINE)
        if db.scalar(select(table.c.episode).where(*training, table.c.episode == episode)) is None:
            return None
        outcomes = db.scalars(
            select(table.c.outcome)
            .where(*training, table.c.outcome.in_(("success", "failure")))
            .order_by(table.c.position.desc())
            .limit(RECENT)
        ).all()
        return Points("position", event.position, {"success": outcomes.count("success") / len(outcomes)})

    def _rows(self, event: Recorded, db: Connection) -> list[dict[str, Any]]:
        """Judged episodes that were not sent, if they are many or a stretch of the run ends here."""
        table = self._episodes
        unsent = (table.c.run == event.envelope.run, table.c.sent == 0, table.c.position.is_not(None))
        ends = isinstance(event.fact, ev.EvaluationFinished | ev.RunFinished)
        if not ends and not isinstance(event.fact, ev.EpisodeJudged):
            return []
        if not ends and (db.scalar(select(func.count()).where(*unsent)) or 0) < ROWS_AT_ONCE:
            return []
        columns = (table.c[name] for name in SHOWN)
        rows = db.execute(select(*columns).where(*unsent).order_by(table.c.position)).mappings().all()
        db.execute(update(table).where(*unsent).values(sent=1))
        return [dict(row) for row in rows]

    def _incidents(self, event: Recorded, alerts: AlertFold | None, db: Connection) -> list[Incident]:
        """Incidents that begin here."""
        if alerts is None:
            return []
        this = self._runs.c.run == event.envelope.run
        stored = db.scalar(select(self._runs.c.alerts).where(this))
        state = alerts.initial() if stored is None else decode_msgpack(stored, AlertState)
        before = {one.id for one in state.incidents}
        state = alerts.apply(state, event)
        db.execute(update(self._runs).where(this).values(alerts=msgspec.msgpack.encode(state)))
        return [one for one in state.incidents if one.id not in before]


class _TrackedRun:
    """A run whose tracker is open."""

    def __init__(self, tracker: Tracker, recorded: dict[str, Any]) -> None:
        """`recorded`: the settings of the run's first event; empty: the consumer began later, so there are no alerts."""
        self.tracker = tracker
        settings = decode_settings(recorded) if recorded else None
        self.judge = settings.judge.judges[0] if settings else None
        """The judge that training uses; None: not known, so any counts."""
        self.alerts: AlertFold | None = None
        if settings:
            telemetry = settings.telemetry
            self.alerts = AlertFold(open_alerts(telemetry.alerts, settings, telemetry.alert_options))
