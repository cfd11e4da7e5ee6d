"""What the first event of a run's own says: everything about the run that holds from its beginning on."""

from hindcast.core.errors import ForeignLog
from hindcast.core.ids import digest_hex
from hindcast.events.catalogue import RunForked, RunStarted
from hindcast.events.codec import decode
from hindcast.events.envelope import Stored
from hindcast.events.log.port import Ancestor, EventLog


def before_own(lineage: tuple[Ancestor, ...]) -> int:
    """Position after which a run's own events begin: those of its ancestors come before."""
    return lineage[-1].until if lineage else 0


NAME_DIGITS = 16


async def log_name(log: EventLog) -> str:
    """What a run's log is called where runs of several homes meet, such as on a policy server: the run's name, which is
    unique in one home only, and the digest of the first event of its own. A fork's differs from its parent's.

    Raises:
        ForeignLog: it has no such event.

    """
    stored = await log.read(after=before_own(log.lineage), limit=1)
    beginning_in(stored[0] if stored else None, run=log.run)
    return f"{log.run}.{digest_hex(stored[0].data)[:NAME_DIGITS]}"


async def beginning(log: EventLog) -> RunStarted:
    """See `beginning_in`."""
    stored = await log.read(after=before_own(log.lineage), limit=1)
    return beginning_in(stored[0] if stored else None, run=log.run)


def beginning_in(stored: Stored | None, *, run: str) -> RunStarted:
    """What `run.started` says, or of a fork `run.forked`; `stored` is the first event of its own.

    Raises:
        ForeignLog: it says something else.

    """
    recorded = None if stored is None else decode(stored, strict=True)
    fact = None if recorded is None else recorded.fact
    started = fact.start if isinstance(fact, RunForked) else fact
    if not isinstance(started, RunStarted):
        raise ForeignLog(
            f"the log of run {run} does not begin with run.started or run.forked: it is no log of a Hindcast run"
        )
    return started
