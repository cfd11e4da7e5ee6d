"""Who reads the run's log, and how far each has come."""

import asyncio

import msgspec

from hindcast.app.attach.consumers import ConsumerRow, list_consumers
from hindcast.app.page.page_query import PageQuery


class ConsumersPage(msgspec.Struct, frozen=True, kw_only=True):
    """The page's answer; of this moment, whatever position is asked about."""

    consumers: list[ConsumerRow]


def consumers(ask: PageQuery) -> ConsumersPage:
    """Ours, the work queues, and attached ones. Raises BrokerUnreachable."""
    # a question is answered in a thread of its own, which has no event loop
    return ConsumersPage(consumers=asyncio.run(list_consumers(ask.run)))
