"""What a person says to a run: one fact, appended in a role that may, and shown at once where no projector is at work."""

from app.going_on import works_on
from app.runs import RunHandle
from events.envelope import Fact
from events.log import EventLog
from events.publisher import Publisher
from storage.readmodel.projector import run_projector

ROLE = "control"
PRODUCER = "control.1"


async def append_fact(run: RunHandle, fact: Fact, *, entity: str) -> int:
    """Append it and bring the read model up to it; returns its position.

    Raises:
        BrokerUnreachable, LogFull: it could not be appended.

    """
    async with run.connect_log(ROLE) as log:
        async with Publisher(
            log, producer=PRODUCER, code_rev=run.code_rev, settings=run.settings.log
        ) as publisher:
            position = await publisher.decide(fact, entity=entity, correlation=entity)
        await show_at_once(run, log)
    return position


async def show_at_once(run: RunHandle, log: EventLog) -> None:
    """Fold what was appended into the read model, unless the run's own projector is at work and does so."""
    if not works_on(run, "projector"):
        until = (await log.identity()).last
        await run_projector(log, run.database_url, run.settings.storage, until=until)
