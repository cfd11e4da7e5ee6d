"""Append a person's fact to a run, and show it at once in the read model if no projector is running."""

from hindcast.app.runs.folded_read_model import show_now
from hindcast.app.runs.runs import RunHandle
from hindcast.events.envelope import Fact
from hindcast.events.log.publisher import Publisher

ROLE = "control"
PRODUCER = "control.1"


async def append_fact(run: RunHandle, fact: Fact, *, entity: str) -> int:
    """Append a fact as role `control` and bring the read model up to date; returns the fact's position.

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
