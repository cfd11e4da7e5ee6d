"""What a person says to a run: one fact, appended in a role that may, and shown at once where no projector is at work."""

from hindcast.app.runs.folded_read_model import show_now
from hindcast.app.runs.runs import RunHandle
from hindcast.events.envelope import Fact
from hindcast.events.log.publisher import Publisher

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
        await show_now(run, log)
    return position
