"""Consumers of the run's log and their lag."""

import asyncio

import msgspec

from hindcast.app.attach.consumers import ConsumerRow, list_consumers
from hindcast.app.page.page_query import PageQuery


class ConsumersPage(msgspec.Struct, frozen=True, kw_only=True):
    """The page's values; always current, whatever position is asked for."""

    consumers: list[ConsumerRow]


def consumers(ask: PageQuery) -> ConsumersPage:
    """The roles, work queues and attached consumers. Raises BrokerUnreachable."""
    # a question is answered in a thread of its own, which has no event loop
    return ConsumersPage(consumers=asyncio.run(list_consumers(ask.run)))
