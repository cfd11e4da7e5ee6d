"""Hostile roles: whatever a role asks of the broker, nothing is stored, nothing is taken, and no consumer changes.

Every role tries every request of JetStream's API, under every prefix, with reply subjects that point into the logs of two
runs, with bodies that name another consumer than the subject, and with push consumers that deliver into a log. Left out is
what a role is there for: `admin` makes streams and queues, `archiver` purges, `repairer` deletes a stream, and a worker
takes work from its own queue.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from conftest import Connect, LiveBroker

from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import RunFinished
from hindcast.events.jetstream.accounts import FOLLOWERS, LOG_ACCOUNT, PUBLISHES, QUEUES, inbox_prefix
from hindcast.events.jetstream.api import StreamApi
from hindcast.events.jetstream.broker import LEAF_ROLES, config_text, secret_path, users
from hindcast.events.jetstream.connection import Connection, connect
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.jetstream.stream_queue import queue_config
from hindcast.events.log.publisher import Publisher
from servers.nats_servers import Server, hub_and_leaf, serving

pytestmark = pytest.mark.broker

SETTINGS = LogSettings(max_bytes=16 * 1024 * 1024, append_timeout_s=10)
RUNS = ("a", "b")
EVENTS = 5
PREFIXES = ("$JS.API", "$JS.log.API", "$JS.hub.API", "$JS.leaf.API")
STREAM_VERBS = (
    "CREATE",
    "UPDATE",
    "DELETE",
    "PURGE",
    "INFO",
    "MSG.GET",
    "MSG.DELETE",
    "SNAPSHOT",
    "RESTORE",
    "LEADER.STEPDOWN",
    "PEER.REMOVE",
)
CONSUMER_VERBS = (
    "INFO",
    "DELETE",
    "MSG.NEXT",
    "PAUSE",
    "RESET",
    "UNPIN",
    "LEADER.STEPDOWN",
    "DURABLE.CREATE",
)
ACKNOWLEDGEMENTS = (b"+ACK", b"+NXT", b'+NXT {"batch":3,"no_wait":true}', b"-NAK", b"+TERM", b"+WPI")
POWERS = {"admin": ("STREAM.CREATE", "STREAM.UPDATE", "CONSUMER."), "archiver": ("STREAM.PURGE",)} | {
    "repairer": ("STREAM.DELETE",)
}
Message = tuple[str, bytes]


def consumers() -> list[tuple[str, dict[str, Any]]]:
    """Names that a consumer is created under, with the consumer that the body asks for."""
    found: list[tuple[str, dict[str, Any]]] = []
    for subject_name in (*QUEUES, "evil", "tail-reader-1"):
        for body_name in (*QUEUES, "evil"):
            pull = queue_config("a", body_name, family="run")
            push = {key: value for key, value in pull.items() if key != "max_ack_pending"}
            push |= {"deliver_subject": "run.b.verdict.evil", "ack_policy": "none"}
            found += [(subject_name, pull), (subject_name, push)]
            push = {**push, "deliver_subject": "run.a.verdict.evil"}
            found.append((subject_name, {key: push[key] for key in push if key != "durable_name"}))
    return found


def requests(role: str) -> Iterator[Message]:
    """Everything that a role could ask."""
    for prefix in PREFIXES:
        yield from (
            (f"{prefix}.{verb}", b"{}") for verb in ("INFO", "STREAM.NAMES", "STREAM.LIST", "SERVER.REMOVE")
        )
        for run in RUNS:
            stream = f"RUN_{run}"
            config = {
                "name": stream,
                "subjects": [f"run.{run}.>"],
                "republish": {"src": ">", "dest": "run.b.x"},
            }
            for verb in STREAM_VERBS:
                body = {**config, "seq": 1, "last_by_subj": f"run.{run}.run.>"}
                yield f"{prefix}.STREAM.{verb}.{stream}", json.dumps(body).encode()
            yield f"{prefix}.DIRECT.GET.{stream}", b'{"seq":1,"batch":3}'
            yield f"{prefix}.DIRECT.GET.{stream}", b'{"seq":1}'
            yield f"{prefix}.DIRECT.GET.{stream}.run.{run}.run.x", b""
            yield from ((f"{prefix}.CONSUMER.{verb}.{stream}", b"{}") for verb in ("LIST", "NAMES"))
            for name in (*QUEUES, "evil"):
                for verb in CONSUMER_VERBS:
                    if verb == "MSG.NEXT" and name in QUEUES and QUEUES[name].role == role:
                        continue
                    body = b'{"batch":3,"no_wait":true,"pause_until":"2090-01-01T00:00:00Z"}'
                    yield f"{prefix}.CONSUMER.{verb}.{stream}.{name}", body
            for name, consumer in consumers():
                body = json.dumps({"stream_name": stream, "config": consumer}).encode()
                for suffix in ("", f".{name}", f".{name}.run.{run}.>", f".{name}.run.{run}.run.>"):
                    yield f"{prefix}.CONSUMER.CREATE.{stream}{suffix}", body
                yield f"{prefix}.CONSUMER.DURABLE.CREATE.{stream}.{name}", body
    for run in RUNS:
        for name, queue in QUEUES.items():
            if queue.role != role:
                for word in ACKNOWLEDGEMENTS:
                    yield f"$JS.ACK.RUN_{run}.{name}.1.1.1.1.0", word
                    yield f"$JS.ACK.hub.hash.RUN_{run}.{name}.1.1.1.1.0.x", word
        families = {family for families in PUBLISHES.values() for family in families}
        yield from ((f"run.{run}.{family}.evil", b"x") for family in families - set(PUBLISHES[role]))
    yield from ((f"reading.a.{other}.evil", b"9") for other in FOLLOWERS if other != role)
    yield from (("READING", b"9"), ("_INBOX_judge.x", b"x"), ("_R_.x", b"x"))


def replies(role: str) -> list[str]:
    """Where the answers are to go: into both logs, under families of others and of the role, and back into the API."""
    own = PUBLISHES[role][:1]
    return [
        *(f"run.{run}.{family}.evil" for run in RUNS for family in ("verdict", "run", *own)),
        "$JS.log.API.CONSUMER.MSG.NEXT.RUN_a.verdicts",
        "$JS.API.CONSUMER.MSG.NEXT.RUN_a.episodes",
        "$JS.ACK.RUN_a.verdicts.1.1.1.1.0",
    ]


class Target:
    """A broker with the logs of two runs and their queues, as its administrator sees it."""

    def __init__(self, admin: Connection) -> None:
        self._admin = admin

    async def fill(self) -> None:
        for run in RUNS:
            log = await JetStreamLog.create_or_open(self._admin, run, SETTINGS)
            await log.make_positions()
            for name in QUEUES:
                await log.ensure_queue(name, family="run")
            async with Publisher(log, producer="opening.1", code_rev="t", settings=SETTINGS) as publisher:
                for number in range(EVENTS):
                    fact = RunFinished(reason=f"number {number}", updates=0, episodes=0)
                    await publisher.publish(fact, entity=run)

    async def state(self) -> dict[str, Any]:
        """What is stored, which consumers there are, and what each has handed out."""
        found: dict[str, Any] = {}
        names = await StreamApi(self._admin, "", bound_s=5).call("STREAM.NAMES")
        found["streams"] = names["streams"]
        for run in RUNS:
            api = StreamApi(self._admin, f"RUN_{run}", bound_s=5)
            info = await api.call("STREAM.INFO")
            found[run] = (info["config"], info["state"]["first_seq"], info["state"]["last_seq"])
            listed = await api.call("CONSUMER.LIST")
            found[f"consumers of {run}"] = [
                (
                    one["config"],
                    one["delivered"]["stream_seq"],
                    one["num_ack_pending"],
                    one["ack_floor"]["stream_seq"],
                )
                for one in sorted(listed["consumers"], key=lambda one: str(one["name"]))
            ]
        positions = await StreamApi(self._admin, "READING", bound_s=5).call("STREAM.INFO")
        found["positions"] = positions["state"]["messages"]
        return found


async def attack(target: Target, url: str, role: str, home: Path) -> None:
    """Send everything; what was there before must be there after, and nothing else."""
    denied: list[str] = []

    async def on_error(error: Exception) -> None:
        denied.append(str(error))

    client = await nats.connect(
        url,
        user=role,
        password=secret_path(home, role).read_text().strip(),
        inbox_prefix=inbox_prefix(role),
        error_cb=on_error,
    )
    try:
        before = await target.state()
        powers = POWERS.get(role, ())
        for reply in replies(role):
            for subject, body in requests(role):
                if not any(f".{power}" in subject for power in powers):
                    await client.publish(subject, body, reply=reply)
            await client.flush(timeout=20)
            assert await target.state() == before, f"{role} changed something; answers went to {reply}"
        assert denied
    finally:
        await client.close()


@pytest.fixture
async def target(own_broker: LiveBroker, connect_as: Connect) -> Target:
    target = Target(await connect_as(own_broker, "admin"))
    await target.fill()
    return target


@pytest.mark.parametrize("role", sorted(PUBLISHES))
async def test_no_role_stores_takes_or_changes_what_is_not_its_own(
    role: str, own_broker: LiveBroker, target: Target
) -> None:
    await attack(target, own_broker.url, role, own_broker.home)


@pytest.mark.parametrize("role", ["actor", "reader"])
async def test_in_one_account_the_same_permissions_do_not_hold(
    role: str, own_broker: LiveBroker, connect_as: Connect
) -> None:
    """So it was before roles had accounts: answers go into the log. It shows that the attack would be noticed."""
    own_broker.stop()
    everybody = [user for block in users(own_broker.home).values() for user in block]
    for user in everybody:
        allowed = user["permissions"]["publish"]["allow"]
        allowed += [subject.replace("$JS.log.API", "$JS.API") for subject in allowed]
    one = {"jetstream": "enabled", "users": everybody, "mappings": {"$JS.log.API.>": "$JS.API.>"}}
    server = {
        "host": "127.0.0.1",
        "port": own_broker.plan.port,
        "jetstream": {"store_dir": str(own_broker.plan.store)},
        "accounts": {LOG_ACCOUNT: one},
    }
    own_broker.plan.config.write_text(config_text(server))
    own_broker.start()
    target = Target(await connect_as(own_broker, "admin"))
    await target.fill()
    with pytest.raises(AssertionError, match=f"{role} changed something"):
        await attack(target, own_broker.url, role, own_broker.home)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Server, Server]]:
    folder = tmp_path_factory.mktemp("hostile")
    with serving(3, hub_and_leaf(folder, hub_home=folder / "first", leaf_home=folder / "far")) as (hub, leaf):
        yield folder, hub, leaf


@pytest.mark.parametrize("role", LEAF_ROLES)
async def test_nor_through_a_leaf_node(role: str, servers: tuple[Path, Server, Server]) -> None:
    folder, hub, leaf = servers
    admin = await connect(hub.url, role="admin", home=folder / "first")
    try:
        target = Target(admin)
        await target.fill()
        reader = await connect(leaf.url, role=role, home=folder / "far")
        log = await JetStreamLog.open(reader, "a", SETTINGS)
        assert await log.read(after=0, limit=1), "the link is up"
        await reader.close()
        await attack(target, leaf.url, role, folder / "far")
    finally:
        await admin.close()
