"""Work queues on JetStream: a durable pull consumer with explicit acknowledgement for each queue."""

import json
from collections.abc import Callable
from typing import Any, Self

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from hindcast.events.envelope import Stored
from hindcast.events.jetstream.api import (
    CALL_S,
    NANOSECONDS,
    TRACEPARENT,
    ApiError,
    StreamApi,
    delivery_numbers,
    status_of,
)
from hindcast.events.jetstream.connection import RequestTimeout
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.work_queue import ACK_WAIT_S, Delivery, RawDelivery, admit
from hindcast.events.subjects import family_wildcard

MAX_UNACKED = 10_000
CONSUMER_NOT_FOUND = 10014
GRACE_S = 2.0
"""How long after a pull's own time limit the broker's answer may arrive."""


class _Handle:
    """Acknowledgement of one JetStream delivery."""

    def __init__(self, api: StreamApi, reply: str) -> None:
        self._api = api
        self._reply = reply

    async def ack(self) -> None:
        """Acknowledge and wait for the broker. Without an answer the event is delivered again, which is then a no-op."""
        try:
            await self._api.connection.ask(self._reply, b"+ACK", timeout_s=CALL_S)
        except RequestTimeout:
            return

    async def in_progress(self) -> None:
        """Restart the broker's acknowledgement timeout."""
        await self._say(b"+WPI")

    async def retry(self, delay_s: float) -> None:
        """Ask for another delivery later."""
        await self._say(b"-NAK " + json.dumps({"delay": int(delay_s * NANOSECONDS)}).encode())

    async def _say(self, word: bytes) -> None:
        try:
            await self._api.connection.publish(self._reply, word)
        except NatsError:
            return


class JetStreamQueue:
    """A `WorkQueue` on a durable consumer."""

    def __init__(self, api: StreamApi, name: str, dead_letters: Publisher | None) -> None:
        """Use `open`."""
        self._api = api
        self._name = name
        self._dead_letters = dead_letters
        self._next = f"{api.prefix}.CONSUMER.MSG.NEXT.{api.stream}.{name}"
        self._patience: Callable[[], bool] | None = None

    @classmethod
    async def open(cls, api: StreamApi, name: str, *, dead_letters: Publisher | None) -> Self:
        """Open a queue that `admin` has made (`ensure_queue`).

        Raises:
            BrokerUnreachable: the broker is away, or has no such queue, for `log.append_timeout_s`.

        """
        queue = cls(api, name, dead_letters)
        await queue._wait_until_made()
        return queue

    async def _wait_until_made(self) -> None:
        patience = self._api.patience()
        while True:
            try:
                await self._api.once("CONSUMER.INFO", suffix=f".{self._name}")
                return
            except ApiError as error:
                if error.code != CONSUMER_NOT_FOUND:
                    raise
                await self._api.pause(patience, self._vanished())
            except RequestTimeout as error:
                await self._api.pause(patience, error)

    def _vanished(self) -> RequestTimeout:
        return RequestTimeout(
            f"there is no work queue {self._name}: hindcast start makes it, and again within log.queue_check_s"
        )

    async def fetch(self, limit: int, *, wait_s: float) -> list[Delivery]:
        """See `WorkQueue.fetch`. Raises BrokerUnreachable if the broker is away for `log.append_timeout_s`."""
        try:
            pulled = await self._pull(limit, None)
            if not pulled and (pulled := await self._pull(1, wait_s)) and limit > 1:
                pulled += await self._pull(limit - 1, None)
        except (RequestTimeout, NatsError) as error:
            self._patience = self._patience or self._api.patience()
            await self._api.pause(self._patience, RequestTimeout(str(error) or type(error).__name__))
            return []
        self._patience = None
        deliveries = [
            await admit(handed, queue=self._name, dead_letters=self._dead_letters) for handed in pulled
        ]
        return [delivery for delivery in deliveries if delivery is not None]

    async def _pull(self, limit: int, wait_s: float | None) -> list[RawDelivery]:
        """Pull once: what is available now, or the first events within `wait_s`."""
        connection = self._api.connection
        request: dict[str, Any] = {"batch": limit}
        if wait_s is None:
            request["no_wait"] = True
        else:
            request["expires"] = int(wait_s * NANOSECONDS)
        inbox = connection.new_inbox()
        subscription = await connection.subscribe(inbox)
        pulled: list[RawDelivery] = []
        try:
            async with connection.exchange((wait_s or 0.0) + GRACE_S):
                await connection.publish(self._next, json.dumps(request).encode(), reply=inbox)
                while len(pulled) < limit:
                    message = await _next_message(subscription)
                    status = status_of(message)
                    if status == "503":
                        raise self._vanished()
                    if status is not None:
                        break
                    numbers = delivery_numbers(message.reply)
                    headers = message.headers or {}
                    event_id, traceparent = headers.get("Nats-Msg-Id", ""), headers.get(TRACEPARENT, "")
                    stored = Stored(numbers.position, message.subject, message.data, event_id, traceparent)
                    pulled.append(RawDelivery(stored, numbers.tries, _Handle(self._api, message.reply)))
        except TimeoutError:
            if not pulled and not connection.is_connected:
                raise RequestTimeout("the connection to the broker is lost") from None
        finally:
            if not (connection.is_closed or connection.is_draining):
                await subscription.unsubscribe()
        return pulled


def queue_config(run: str, name: str, *, family: str) -> dict[str, Any]:
    """Build the configuration of a work queue's durable consumer."""
    return {
        "name": name,
        "durable_name": name,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": int(ACK_WAIT_S * NANOSECONDS),
        "max_deliver": -1,
        "max_ack_pending": MAX_UNACKED,
        "filter_subject": family_wildcard(run, family),
        "metadata": {"hindcast_run": run},
    }


OURS_ALONE = ("deliver_subject", "filter_subjects", "pause_until", "headers_only", "inactive_threshold")
"""Options that none of our work queues has, and that would stop or change its delivery."""


async def ensure_queue(api: StreamApi, run: str, name: str, *, family: str) -> str:
    """Make a work queue's consumer, or make it anew if it is wrong (role `admin`).

    Returns what was wrong: empty if nothing, `it was not there` if it is new. A new consumer delivers every event again,
    which is a no-op for events with a result.
    """
    config = queue_config(run, name, family=family)
    difference = await _difference(api, name, config)
    if difference and difference != NOT_THERE:
        await api.call("CONSUMER.DELETE", suffix=f".{name}")
    if difference:
        body = {"stream_name": api.stream, "config": config}
        await api.call("CONSUMER.CREATE", body, suffix=f".{name}.{config['filter_subject']}")
    return difference


NOT_THERE = "it was not there"


async def _difference(api: StreamApi, name: str, expected: dict[str, Any]) -> str:
    try:
        info = await api.call("CONSUMER.INFO", suffix=f".{name}")
    except ApiError as error:
        if error.code != CONSUMER_NOT_FOUND:
            raise
        return NOT_THERE
    actual = info["config"]
    for key, value in expected.items():
        actual_value = actual.get(key)
        if key == "metadata":
            value, actual_value = value["hindcast_run"], (actual_value or {}).get("hindcast_run")
        if actual_value != value:
            return f"its {key} was {actual_value!r}, not {value!r}"
    extra = next((key for key in OURS_ALONE if actual.get(key)), None)
    return f"it had a {extra}, {actual[extra]!r}" if extra else ""


async def _next_message(subscription: Subscription) -> Msg:
    async for message in subscription.messages:
        return message
    raise RequestTimeout("the connection was closed")
