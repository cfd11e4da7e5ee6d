"""Identity of a run: its own first event, `run.started` or `run.forked`."""

from hindcast.core.errors import ForeignLog
from hindcast.core.ids import digest_hex
from hindcast.events.catalogue import RunForked, RunStarted
from hindcast.events.codec import decode
from hindcast.events.envelope import Stored
from hindcast.events.log.port import Ancestor, EventLog


def before_own(lineage: tuple[Ancestor, ...]) -> int:
    """Return the position after which a run's own events begin; its ancestors' events come before."""
    return lineage[-1].until if lineage else 0


NAME_DIGITS = 16


async def log_name(log: EventLog) -> str:
    """Make a name of a run's log that is unique across homes, for instance on a policy server.

    It is the run's name, which is unique only within a home, and the digest of its own first event. A fork's name differs
    from its parent's.

    Raises:
        ForeignLog: the log has no such event.

    """
    events = await log.read(after=before_own(log.lineage), limit=1)
    beginning_in(events[0] if events else None, run=log.run)
    return f"{log.run}.{digest_hex(events[0].data)[:NAME_DIGITS]}"


async def beginning(log: EventLog) -> RunStarted:
    """Read the run's `run.started`; see `beginning_in`."""
    events = await log.read(after=before_own(log.lineage), limit=1)
    return beginning_in(events[0] if events else None, run=log.run)


def beginning_in(stored: Stored | None, *, run: str) -> RunStarted:
    """Decode the run's `run.started`, or a fork's in `run.forked`; `stored` is the run's own first event.

    Raises:
        ForeignLog: it is another event, or missing.

    """
    recorded = None if stored is None else decode(stored, strict=True)
    fact = None if recorded is None else recorded.fact
    started = fact.start if isinstance(fact, RunForked) else fact
    if not isinstance(started, RunStarted):
        raise ForeignLog(
            f"the log of run {run} does not begin with run.started or run.forked: it is no log of a Hindcast run"
        )
    return started
