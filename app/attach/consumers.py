"""Lists every consumer of a run with its position and lag: the roles and attached consumers.

Sources of the positions:
- `projector`: the read model, which stores it with its rows;
- `learner`, `curriculum`, `actor`: the position that each process reports as read, a few hundred events ahead of what it
  has applied; the learner also records its position in each plan;
- `episodes`, `verdicts`, `relabels`: the work queues of actors, judge and relabeler; all work up to the position is done;
- attached consumers: their own store.

The lag in time is the age of the first event that the consumer has not applied. While the system is down, it is measured up
to the last event, because otherwise it would grow in a stopped run.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec
import psutil
from sqlalchemy import func, select

from hindcast.app.attach.attachment import AttachmentStatus, consumers_folder
from hindcast.app.attach.store import ConsumerPosition, ConsumerStore, this_host
from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.processes import ProcessState, list_processes, process_began, read_json
from hindcast.core.errors import HindcastError
from hindcast.core.structs import convert
from hindcast.events.codec import decode_envelope
from hindcast.events.jetstream.accounts import QUEUES
from hindcast.events.jetstream.consumers import BrokerConsumer
from hindcast.events.log.port import EventLog
from hindcast.storage.readmodel.database import ReadModelUnavailable
from hindcast.storage.readmodel.fold import read_cursor
from hindcast.storage.readmodel.tables import batches, notices

STALLED_S = 30.0
"""Time on one event after which a consumer counts as stalled."""
TAILS = ("learner", "curriculum", "actor")

State = Literal["running", "stopped", "stalled", "failed", "starting", "restarting", "unknown"]


class ConsumerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer."""

    name: str
    kind: Literal["ours", "queue", "attached"]
    state: State
    detail: str = ""
    """Reason of the state, such as the last error."""
    position: int | None = None
    lag_s: float | None = None
    """Age of the first event not applied; 0 if there is none."""
    lag_events: int | None = None
    in_work: int = 0
    """For a queue: messages delivered and not acknowledged."""
    dead_letters: int = 0
    target: str = ""


class Lag:
    """Computes how far positions are behind the end of the log."""

    def __init__(self, log: EventLog, last: int, *, now_ns: int | None) -> None:
        """`now_ns` None: use the time of the last event."""
        self.last = last
        self._log = log
        self._now_ns = now_ns
        self._known: dict[int, int] = {}

    async def of(self, position: int | None) -> tuple[float | None, int | None]:
        """Seconds and events for a consumer that has applied everything up to `position`."""
        if position is None:
            return None, None
        if position >= self.last:
            return 0.0, 0
        return await self.age_s(position + 1), self.last - position

    async def age_s(self, position: int) -> float:
        """Age of the event at a position, by its producer's clock."""
        now_ns = self._now_ns or await self._recorded_ns(self.last)
        return max(0.0, (now_ns - await self._recorded_ns(position)) / 1e9)

    async def _recorded_ns(self, position: int) -> int:
        if position not in self._known:
            stored = await self._log.read(after=position - 1, limit=1)
            self._known[position] = decode_envelope(stored[0]).occurred_ns if stored else 0
        return self._known[position]


class _ReadModelFigures(msgspec.Struct):
    """Consumers' figures from the read model."""

    position: int | None = None
    planned_as_of: int | None = None
    dead_letters: Counter[str] = msgspec.field(default_factory=Counter)


async def list_consumers(handle: RunHandle, *, stores: Sequence[str] = ()) -> list[ConsumerRow]:
    """List all consumers of this run's log. `stores`: databases with positions of consumers on other machines."""
    processes = list_processes(handle.home / "processes")
    up = any(entry.name.startswith("bus") and entry.alive for entry in processes)
    async with handle.connect_log("reader") as log:
        identity = await log.identity()
        lag = Lag(log, identity.last, now_ns=time.time_ns() if up else None)
        figures = await asyncio.to_thread(_read_figures, handle)
        rows = [await _projector(figures, lag, processes)]
        served = await log.served()
        rows += [await _tail(role, served, figures, lag, processes) for role in TAILS]
        rows += [await _queue(queue, figures, lag, processes) for queue in served if queue.name in QUEUES]
        rows += await _attached(handle, lag, stores)
    return rows


async def _projector(figures: _ReadModelFigures, lag: Lag, processes: Sequence[ProcessState]) -> ConsumerRow:
    state, detail = _state_of_role("projector", processes)
    lag_s, lag_events = await lag.of(figures.position)
    return ConsumerRow(
        name="projector",
        kind="ours",
        state=state,
        detail=detail,
        position=figures.position,
        lag_s=lag_s,
        lag_events=lag_events,
        dead_letters=figures.dead_letters["projector"],
    )


async def _tail(
    role: str,
    served: Sequence[BrokerConsumer],
    figures: _ReadModelFigures,
    lag: Lag,
    processes: Sequence[ProcessState],
) -> ConsumerRow:
    state, detail = _state_of_role(role, processes)
    known = [reader.handed for reader in served if reader.role == role and state != "stopped"]
    if role == "learner" and figures.planned_as_of is not None:
        known.append(figures.planned_as_of)
    position = max(known, default=None)
    lag_s, lag_events = await lag.of(position)
    return ConsumerRow(
        name=role,
        kind="ours",
        state=state,
        detail=detail,
        position=position,
        lag_s=lag_s,
        lag_events=lag_events,
        dead_letters=figures.dead_letters[role],
    )


async def _queue(
    queue: BrokerConsumer, figures: _ReadModelFigures, lag: Lag, processes: Sequence[ProcessState]
) -> ConsumerRow:
    state, detail = _state_of_role(QUEUES[queue.name].role, processes)
    return ConsumerRow(
        name=queue.name,
        kind="queue",
        state=state,
        detail=detail,
        position=lag.last if queue.oldest is None else queue.oldest - 1,
        lag_s=0.0 if queue.oldest is None else await lag.age_s(queue.oldest),
        lag_events=queue.waiting + queue.in_work,
        in_work=queue.in_work,
        dead_letters=figures.dead_letters[queue.name],
    )


async def _attached(handle: RunHandle, lag: Lag, stores: Sequence[str]) -> list[ConsumerRow]:
    """Consumers of this home, from their status files and stores, then those of further stores."""
    rows: dict[str, ConsumerRow] = {}
    for path in sorted(consumers_folder(handle.folder).glob("*.json")):
        content = read_json(path)
        if content is None:
            continue
        word = convert(content, AttachmentStatus)
        standing, letters = await asyncio.to_thread(_standing, word.store, handle.name, word.name)
        state, detail = state_of(word)
        rows[word.name] = await _attached_row(word.name, word.target, state, detail, standing, letters, lag)
    for url in stores:
        for standing in await asyncio.to_thread(_standings, url, handle.name):
            if standing.name not in rows:
                letters = await asyncio.to_thread(_letters, url, handle.name, standing.name)
                detail = f"on {standing.host}"
                rows[standing.name] = await _attached_row(
                    standing.name, standing.target, "unknown", detail, standing, letters, lag
                )
    return list(rows.values())


async def _attached_row(
    name: str,
    target: str,
    state: State,
    detail: str,
    standing: ConsumerPosition | None,
    letters: int,
    lag: Lag,
) -> ConsumerRow:
    position = standing.position if standing else None
    lag_s, lag_events = await lag.of(position)
    return ConsumerRow(
        name=name,
        kind="attached",
        state=state,
        detail=detail,
        position=position,
        lag_s=lag_s,
        lag_events=lag_events,
        dead_letters=letters,
        target=target,
    )


def state_of(word: AttachmentStatus) -> tuple[State, str]:
    """State of an attached consumer, from its last status and its process."""
    if word.state != "running":
        return word.state, word.detail
    if word.host != this_host():
        return "unknown", f"on {word.host}"
    try:
        status = psutil.Process(word.pid).status()
        alive = not word.began or process_began(word.pid) == word.began
    except psutil.Error:
        alive, status = False, ""
    if not alive or status == psutil.STATUS_ZOMBIE:
        return (
            "failed",
            f"its process {word.pid} ended without a report: it was killed, or the machine restarted",
        )
    if status == psutil.STATUS_STOPPED:
        return "stalled", f"its process {word.pid} is suspended"
    if word.working_on is not None and (since := time.time() - word.working_since) > STALLED_S:
        return "stalled", f"at position {word.working_on} for {since:.0f} s"
    return "running", word.detail


def _state_of_role(role: str, processes: Sequence[ProcessState]) -> tuple[State, str]:
    """The worst state among a role's processes."""
    mine = [entry for entry in processes if entry.name.split(".")[0] == role]
    if not any(entry.alive for entry in mine):
        return "stopped", ""
    for entry in mine:
        if not entry.alive or entry.state == "restarting":
            return "restarting", f"{entry.name}: {entry.restarts} restarts"
        if _suspended(entry.pid):
            return "stalled", f"{entry.name}: its process {entry.pid} is suspended"
        if entry.state == "starting":
            return "starting", entry.name
    return "running", ""


def _suspended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def _read_figures(handle: RunHandle) -> _ReadModelFigures:
    model = handle.read_model()
    try:
        with model.reading() as connection:
            cursor = read_cursor(connection)
            about = select(notices.c.about, func.count()).where(notices.c.type == "event.dead_lettered")
            return _ReadModelFigures(
                position=cursor.position if cursor else None,
                planned_as_of=connection.scalar(select(func.max(batches.c.as_of))),
                dead_letters=Counter(dict(connection.execute(about.group_by(notices.c.about)).all())),
            )
    except ReadModelUnavailable:
        return _ReadModelFigures()
    finally:
        model.close()


def _standing(url: str, run: str, name: str) -> tuple[ConsumerPosition | None, int]:
    """Position and number of dead letters in a consumer's store; None and 0 if it does not answer, as without its password."""
    try:
        found = next((one for one in _standings(url, run) if one.name == name), None)
        return found, _letters(url, run, name) if found else 0
    except HindcastError:
        return None, 0


def _standings(url: str, run: str) -> list[ConsumerPosition]:
    store = ConsumerStore(url)
    try:
        return store.standings(run)
    finally:
        store.close()


def _letters(url: str, run: str, name: str) -> int:
    store = ConsumerStore(url)
    try:
        return store.dead_letters(run, name, limit=0)[0]
    finally:
        store.close()
