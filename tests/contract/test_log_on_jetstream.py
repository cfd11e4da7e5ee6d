"""What only the broker can show: roles and denials, foreign and regressed streams, restarts, missing logs."""

import asyncio
import json
import shutil
import stat
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from conftest import Connect, LiveBroker
from nats.aio.client import ServerVersion

from hindcast.core.errors import (
    BrokerDenied,
    BrokerUnreachable,
    CorruptEvent,
    ForeignLog,
    LogFull,
    SettingsError,
)
from hindcast.core.settings.schema import LogSettings
from hindcast.events.catalogue import (
    ControlRequested,
    EpisodeAbandoned,
    PhaseStarted,
    RunFinished,
    SamplesSwept,
    TaskAdmitted,
    WaitExceeded,
)
from hindcast.events.codec import decode_envelope, encode
from hindcast.events.envelope import UNREAD, Fact, Record
from hindcast.events.jetstream.accounts import LOG_ACCOUNT, PUBLISHES, REQUESTS
from hindcast.events.jetstream.api import ApiError, StreamApi
from hindcast.events.jetstream.broker import NO_ACCOUNT, PortTaken, prepare
from hindcast.events.jetstream.connection import Connection, connect
from hindcast.events.jetstream.stream_log import BrokerTooOld, JetStreamLog, LogMissing
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import Bookmark, read, skim, tail
from hindcast.events.registry import BY_CLASS
from hindcast.events.subjects import stream_name
from hindcast.storage.audit.audit import audit
from hindcast.storage.blobs.store import BlobStore

pytestmark = pytest.mark.broker


def finished(number: int = 0) -> RunFinished:
    return RunFinished(reason=f"number {number}", updates=0, episodes=0)


def writer(log: JetStreamLog, role: str, settings: LogSettings) -> Publisher:
    return Publisher(log, producer=f"{role}.1", code_rev="test", settings=settings)


async def fill(log: JetStreamLog, settings: LogSettings, count: int) -> None:
    async with writer(log, "admin", settings) as publisher:
        for number in range(count):
            await publisher.publish(finished(number), entity="run", ordinal=number)


EXAMPLES: list[tuple[str, Fact]] = [
    ("admin", finished()),
    ("curriculum", PhaseStarted(phase=0, reference_version=0)),
    ("judge", WaitExceeded(setting="judge.timeout_s", limit_s=1, waited_for="verdict")),
    ("learner", SamplesSwept(episodes=(), reason="stale", version=0)),
    ("actor", EpisodeAbandoned(episode="e", task_id="t", reason="error", detail="", steps=0)),
    ("control", ControlRequested(command="pause", arguments={}, author="me", reason="")),
]


@pytest.mark.parametrize("role", sorted(PUBLISHES))
async def test_a_role_appends_its_own_facts_and_no_others(
    role: str,
    broker: LiveBroker,
    connect_as: Connect,
    jetstream_log: JetStreamLog,
    log_settings: LogSettings,
) -> None:
    allowed = set(PUBLISHES[role])
    for _, fact in EXAMPLES:
        family = BY_CLASS[type(fact)].family
        log = await JetStreamLog.open(await connect_as(broker, role), jetstream_log.run, log_settings)
        before = (await log.identity()).last

        async def attempt(log: JetStreamLog = log, fact: Fact = fact) -> int:
            async with writer(log, role, log_settings) as publisher:
                await publisher.publish(fact, entity="e")
                return await publisher.commit()

        if family in allowed:
            assert await attempt() == before + 1
        else:
            with pytest.raises(
                BrokerDenied, match=rf"refused role '{role}': permissions violation for publish"
            ):
                await attempt()
            assert (await jetstream_log.identity()).last == before


async def test_every_role_can_read(
    broker: LiveBroker, connect_as: Connect, jetstream_log: JetStreamLog, log_settings: LogSettings
) -> None:
    await fill(jetstream_log, log_settings, 3)
    for role in PUBLISHES:
        log = await JetStreamLog.open(await connect_as(broker, role), jetstream_log.run, log_settings)
        assert [recorded.position async for recorded in read(log)] == [1, 2, 3]


@pytest.mark.parametrize("verb", ["STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.DELETE", "CONSUMER.DELETE"])
@pytest.mark.parametrize("role", sorted(PUBLISHES))
async def test_nobody_may_delete(
    verb: str, role: str, broker: LiveBroker, connect_as: Connect, jetstream_log: JetStreamLog
) -> None:
    """But a stream who makes it anew from its archive, and its beginning who has moved that to the archive."""
    if (role, verb) in (("repairer", "STREAM.DELETE"), ("archiver", "STREAM.PURGE")):
        return
    connection = await connect_as(broker, role)
    api = StreamApi(connection, stream_name(jetstream_log.run), bound_s=5)
    with pytest.raises(BrokerDenied):
        await api.once(verb)


async def test_the_archiver_may_make_the_broker_forget_a_beginning_and_delete_nothing(
    broker: LiveBroker, connect_as: Connect, jetstream_log: JetStreamLog, log_settings: LogSettings
) -> None:
    await fill(jetstream_log, log_settings, 5)
    connection = await connect_as(broker, "archiver")
    log = await JetStreamLog.open(connection, jetstream_log.run, log_settings)
    following = jetstream_log.tail(after=0)
    taken = [stored.position for stored in await anext(following)]
    while taken[-1] < 5:  # a batch is whatever has arrived by then
        taken += [stored.position for stored in await anext(following)]
    await log.purge(until=3)
    assert [stored.position for stored in await log.read(after=0, limit=9)] == [4, 5]
    await fill(jetstream_log, log_settings, 1)
    assert [stored.position for stored in await anext(following)] == [6], "who follows notices nothing"
    await following.aclose()
    identity = await log.identity()
    assert (identity.first, identity.last) == (4, 6)
    for verb in ("STREAM.DELETE", "STREAM.MSG.DELETE", "STREAM.UPDATE"):
        with pytest.raises(BrokerDenied):
            await StreamApi(connection, stream_name(log.run), bound_s=5).once(verb)


async def test_only_the_administrator_makes_streams(
    broker: LiveBroker, connect_as: Connect, run_name: str, log_settings: LogSettings
) -> None:
    with pytest.raises(BrokerDenied, match=r"(?i)stream\.create"):
        await JetStreamLog.create_or_open(await connect_as(broker, "learner"), run_name, log_settings)


async def test_a_role_cannot_listen_to_anothers_replies(broker: LiveBroker, connect_as: Connect) -> None:
    spy = await connect_as(broker, "actor")
    await spy.subscribe("_INBOX_learner.>")
    await spy.flush()
    async with asyncio.timeout(20):
        while spy.denied is None:  # noqa: ASYNC110 - told by a callback
            await asyncio.sleep(0.02)
    assert "permissions violation for subscription" in str(spy.denied)


async def test_a_wrong_password_is_a_denial(broker: LiveBroker, tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "actor").write_text("guess")
    (folder / "actor").chmod(0o600)
    with pytest.raises(BrokerDenied, match=r"role 'actor'.*[Aa]uthorization"):
        await connect(broker.url, role="actor", home=tmp_path, timeout_s=5)


async def test_a_missing_or_readable_secret_is_named(broker: LiveBroker, tmp_path: Path) -> None:
    with pytest.raises(BrokerDenied, match=r"has no secret at .*secrets/actor"):
        await connect(broker.url, role="actor", home=tmp_path, timeout_s=5)
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "actor").write_text("open")
    (folder / "actor").chmod(0o644)
    with pytest.raises(BrokerDenied, match=r"chmod 600"):
        await connect(broker.url, role="actor", home=tmp_path, timeout_s=5)


async def test_an_unreachable_broker_is_named_within_its_bound(broker: LiveBroker) -> None:
    start = asyncio.get_running_loop().time()
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:9 does not answer .*log\.connect_timeout_s"):
        await connect("nats://127.0.0.1:9", role="actor", home=broker.home, timeout_s=0.8)
    assert asyncio.get_running_loop().time() - start < 3


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nats://me:secret@127.0.0.1:4222", "carries a name or password"),
        ("nats://203.0.113.7:4222", "unencrypted"),
        ("http://127.0.0.1:4222", "no broker address"),
        ("", "no broker address"),
    ],
)
async def test_an_unfit_address_is_refused(url: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=reason) as refused:
        await connect(url, role="actor", home=tmp_path, timeout_s=1)
    assert "secret@" not in str(refused.value)


def test_a_taken_port_is_named(broker: LiveBroker, tmp_path: Path) -> None:
    with pytest.raises(PortTaken, match=rf"port {broker.plan.port} on 127\.0\.0\.1 is taken"):
        prepare(tmp_path, port=broker.plan.port)


def test_secrets_and_configuration_are_the_owners_alone_and_stay(tmp_path: Path) -> None:
    plan = prepare(tmp_path, port=0)
    secrets = {
        path.name: path.read_text() for path in (tmp_path / "secrets").iterdir() if path != plan.config
    }
    assert set(secrets) == set(PUBLISHES)
    assert len(set(secrets.values())) == len(secrets)
    for path in (tmp_path / "secrets").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    prepare(tmp_path, port=0)
    assert {name: (tmp_path / "secrets" / name).read_text() for name in secrets} == secrets
    assert not any(secret in " ".join([*plan.command(), plan.url]) for secret in secrets.values())


def test_the_configuration_is_loopback_durable_and_unmonitored(tmp_path: Path) -> None:
    config = json.loads(prepare(tmp_path, port=0).config.read_text())
    assert config["host"] == "127.0.0.1"
    assert config["jetstream"]["sync_interval"] == "always"
    assert not {"http", "http_port", "https", "https_port", "monitor_port"} & config.keys()


async def test_a_missing_log_is_named(
    broker: LiveBroker, connect_as: Connect, run_name: str, log_settings: LogSettings
) -> None:
    with pytest.raises(LogMissing, match=rf"no log of run '{run_name}'"):
        await JetStreamLog.open(await connect_as(broker, "actor"), run_name, log_settings)


async def test_a_foreign_stream_under_the_same_name_is_refused(
    broker: LiveBroker, connect_as: Connect, run_name: str, log_settings: LogSettings
) -> None:
    connection = await connect_as(broker, "admin")
    api = StreamApi(connection, stream_name(run_name), bound_s=5)
    await api.once(
        "STREAM.CREATE",
        {"name": stream_name(run_name), "subjects": [f"orders.{run_name}"], "storage": "file"},
    )
    for opened in (JetStreamLog.create_or_open, JetStreamLog.open):
        with pytest.raises(
            ForeignLog, match=rf"RUN_{run_name} exists already and is not the log of run .*orders"
        ):
            await opened(connection, run_name, log_settings)


async def test_a_stream_that_begins_with_another_runs_event_is_refused(
    jetstream_log: JetStreamLog,
    broker: LiveBroker,
    connect_as: Connect,
    run_name: str,
    log_settings: LogSettings,
) -> None:
    connection = await connect_as(broker, "admin")
    other = await JetStreamLog.create_or_open(connection, f"{run_name}x", log_settings)
    await fill(other, log_settings, 1)
    (stored,) = await other.read(after=0, limit=1)
    await jetstream_log.append([Record(f"run.{run_name}.run.x", stored.data, stored.id)])
    with pytest.raises(ForeignLog, match=rf"begins with an event of run '{run_name}x'"):
        await JetStreamLog.open(connection, run_name, log_settings)


async def test_a_stream_that_begins_elsewhere_is_not_opened_as_another_run_of_that_name(
    broker: LiveBroker, connect_as: Connect, run_name: str, log_settings: LogSettings
) -> None:
    """A fork was interrupted before its first event: nothing but this shows where that would stand."""
    connection = await connect_as(broker, "admin")
    await JetStreamLog.create_or_open(connection, run_name, log_settings, first=6)
    for first in (1, 7):
        with pytest.raises(ForeignLog, match=r"position 6 and not at .* Choose another run name"):
            await JetStreamLog.create_or_open(connection, run_name, log_settings, first=first)
    await JetStreamLog.create_or_open(connection, run_name, log_settings, first=6)


async def test_opening_again_follows_the_settings_size(
    broker: LiveBroker, connect_as: Connect, run_name: str
) -> None:
    connection = await connect_as(broker, "admin")
    small = LogSettings(max_bytes=4_000, append_timeout_s=2)
    log = await JetStreamLog.create_or_open(connection, run_name, small)
    with pytest.raises(LogFull):
        await fill(log, small, 30)
    log = await JetStreamLog.create_or_open(
        connection, run_name, small.model_copy(update={"max_bytes": 4_000_000})
    )
    await fill(log, small, 30)
    assert (await log.identity()).last >= 30


async def test_a_batch_too_large_for_the_broker_is_refused(jetstream_log: JetStreamLog) -> None:
    with pytest.raises(ValueError, match=r"batch_events"):
        await jetstream_log.append([Record("x", b"", str(number)) for number in range(1001)])


async def test_a_log_replaced_by_a_shorter_one_is_refused_by_who_read_it(
    own_broker: LiveBroker, connect_as: Connect, tmp_path: Path, log_settings: LogSettings
) -> None:
    """The broker's folder is set back to an older copy while a consumer is connected, then written anew."""
    log = await JetStreamLog.create_or_open(await connect_as(own_broker, "admin"), "r", log_settings)
    await fill(log, log_settings, 5)
    own_broker.stop()
    shutil.copytree(own_broker.plan.store, tmp_path / "older")
    own_broker.start()
    await fill(log, log_settings, 5)
    reader = await JetStreamLog.open(await connect_as(own_broker, "reader"), "r", log_settings)
    events = [recorded async for recorded in read(reader)]
    last = events[-1]
    mark = Bookmark(position=10, digest=last.digest, first_digest=events[0].digest)

    async def follow() -> int:
        async with aclosing(tail(reader, after=10)) as new:
            return (await anext(new)).position

    async def swap() -> None:
        await asyncio.sleep(0.3)
        own_broker.stop()
        shutil.rmtree(own_broker.plan.store)
        shutil.copytree(tmp_path / "older", own_broker.plan.store)
        own_broker.start()

    async with asyncio.timeout(40), asyncio.TaskGroup() as tasks:
        tasks.create_task(swap())
        with pytest.raises(ForeignLog, match=r"ends at position 5, but it was read up to 10"):
            await follow()
    await fill(log, log_settings, 7)
    with pytest.raises(ForeignLog, match=r"another event at position 10"):
        [recorded async for recorded in read(reader, after=10, bookmark=mark)]


@pytest.fixture
async def holed(
    own_broker: LiveBroker, log_settings: LogSettings, connect_as: Connect, monkeypatch: pytest.MonkeyPatch
) -> JetStreamLog:
    """Six events in a stream without our protections, the third message deleted."""
    monkeypatch.setitem(REQUESTS, "admin", ("STREAM.CREATE.*", "STREAM.MSG.DELETE.*"))
    own_broker.stop()
    own_broker.plan = prepare(own_broker.home, port=own_broker.plan.port)
    own_broker.start()
    connection = await connect_as(own_broker, "admin")
    config = {**JetStreamLog(connection, "r", log_settings)._config(), "deny_delete": False}
    await StreamApi(connection, stream_name("r"), bound_s=10).call("STREAM.CREATE", config)
    log = await JetStreamLog.open(connection, "r", log_settings)
    await fill(log, log_settings, 6)
    await StreamApi(connection, stream_name("r"), bound_s=5).once("STREAM.MSG.DELETE", {"seq": 3})
    return log


async def test_no_reader_passes_over_an_event_removed_inside_the_stream(holed: JetStreamLog) -> None:
    taken: list[int] = []

    async def follow() -> None:
        async for recorded in read(holed):
            taken.append(recorded.position)  # noqa: PERF401  # what came before the error counts

    async with asyncio.timeout(20):
        with pytest.raises(CorruptEvent, match=r"positions 3 to 3 are missing"):
            await follow()
    assert taken == [1, 2]


@pytest.mark.parametrize(
    ("start", "limit", "positions", "bare"),
    [
        (1, 2, [1, 2], True),
        (4, 9, [4, 5, 6], True),
        (1, 9, [1, 2, 4, 5, 6], False),
        (2, 2, [2, 4], False),
        (3, 2, [4, 5], False),
        (7, 9, [], False),
    ],
)
async def test_a_range_with_a_hole_is_read_again_with_its_headers(
    holed: JetStreamLog, start: int, limit: int, positions: list[int], bare: bool
) -> None:
    """Without headers positions are counted: right only if the broker's last position agrees."""
    found = await holed._api.ranged_once(start=start, limit=limit, headers=False)
    assert [stored.position for stored in found] == positions
    assert [stored.id is UNREAD for stored in found] == [bare] * len(positions)
    again = [await holed.read(after=stored.position - 1, limit=1) for stored in found]
    assert [stored.data for stored in found] == [stored.data for (stored,) in again]


async def test_another_events_id_in_the_header_is_noticed_by_who_reads_headers(
    jetstream_log: JetStreamLog, log_settings: LogSettings, tmp_path: Path
) -> None:
    """The checked reader does not ask for headers, and its chain holds."""
    await fill(jetstream_log, log_settings, 1)
    (first,) = await jetstream_log.read(after=0, limit=1)
    envelope = decode_envelope(first)
    second = msgspec.structs.replace(
        envelope, id=f"{envelope.id[:-1]}0", ordinal=1, producer_seq=1, prev_hash=sha256(first.data).digest()
    )
    await jetstream_log.append([Record(first.subject, encode(second), "another-id")])
    assert [recorded.position async for recorded in read(jetstream_log)] == [1, 2]
    assert [found.position async for found in skim(jetstream_log, family="run", until=2)] == [1]
    (stored,) = await jetstream_log.read(after=1, limit=1)
    with pytest.raises(CorruptEvent, match=r"position 2 .* the log stores it as another-id"):
        decode_envelope(stored)
    report = await audit(jetstream_log, BlobStore(tmp_path / "blobs"), depth="none")
    assert [one.what for one in report.defects if one.position == 2 and "another event's id" in one.what]


async def test_reading_and_publishing_go_on_by_themselves_after_a_restart(
    own_broker: LiveBroker, connect_as: Connect, log_settings: LogSettings
) -> None:
    log = await JetStreamLog.create_or_open(await connect_as(own_broker, "admin"), "r", log_settings)
    reader = await JetStreamLog.open(await connect_as(own_broker, "reader"), "r", log_settings)
    seen: list[int] = []

    async def follow() -> None:
        async with aclosing(tail(reader, after=0)) as events:
            async for recorded in events:
                seen.append(recorded.position)
                if recorded.position == 60:
                    return

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        async with writer(log, "admin", log_settings) as publisher:
            for number in range(60):
                await publisher.publish(finished(number), entity="run")
                if number % 20 == 10:
                    await publisher.commit()
                    await asyncio.to_thread(own_broker.kill)
                    own_broker.start()
    assert seen == list(range(1, 61))


async def test_a_queue_goes_on_after_a_restart(
    own_broker: LiveBroker, connect_as: Connect, log_settings: LogSettings
) -> None:
    made = await JetStreamLog.create_or_open(await connect_as(own_broker, "admin"), "r", log_settings)
    await made.ensure_queue("verdicts", family="curriculum")
    log = await JetStreamLog.open(await connect_as(own_broker, "curriculum"), "r", log_settings)
    work = await JetStreamLog.open(await connect_as(own_broker, "judge"), "r", log_settings)
    queue = await work.open_queue("verdicts", family="curriculum")
    async with writer(log, "curriculum", log_settings) as publisher:
        await publisher.publish(TaskAdmitted(task_id="a", phase=0), entity="a")
        await publisher.commit()
        (first,) = await queue.fetch(5, wait_s=5)
        await first.ack()
        own_broker.kill()
        own_broker.start()
        await publisher.publish(TaskAdmitted(task_id="b", phase=0), entity="b")
        await publisher.commit()
        names: list[str] = []
        async with asyncio.timeout(20):
            while "b" not in names:
                for delivery in await queue.fetch(5, wait_s=2):
                    names.append(delivery.recorded.envelope.entity)
                    await delivery.ack()
    assert names in (["b"], ["a", "b"]), "the broker may forget the last acknowledgements"


async def test_a_broker_that_stays_away_stops_readers_and_workers_with_a_reason(
    own_broker: LiveBroker, connect_as: Connect
) -> None:
    quick = LogSettings(append_timeout_s=1)
    log = await JetStreamLog.create_or_open(await connect_as(own_broker, "admin"), "r", quick)
    await log.ensure_queue("episodes", family="request")
    worker = await JetStreamLog.open(await connect_as(own_broker, "actor"), "r", quick)
    queue = await worker.open_queue("episodes", family="request")
    own_broker.kill()

    async def follow() -> None:
        async for _ in log.tail(after=0):
            pass

    async def work() -> None:
        while True:
            await queue.fetch(1, wait_s=0.2)

    async with asyncio.timeout(30):
        with pytest.raises(BrokerUnreachable, match=r"did not answer for 1 s"):
            await follow()
        with pytest.raises(BrokerUnreachable, match=r"did not answer for 1 s"):
            await work()
        with pytest.raises(BrokerUnreachable, match=r"no known outcome"):
            await log.append([Record("run.r.run.x", b"x", "x")])


async def test_a_log_that_vanishes_under_a_reader_is_named(
    own_broker: LiveBroker, connect_as: Connect, log_settings: LogSettings
) -> None:
    log = await JetStreamLog.create_or_open(await connect_as(own_broker, "admin"), "r", log_settings)
    await fill(log, log_settings, 3)

    async def follow() -> None:
        async for _ in tail(log, after=3):
            pass

    async def wipe() -> None:
        await asyncio.sleep(0.3)
        own_broker.stop()
        shutil.rmtree(own_broker.plan.store)
        own_broker.start()

    async with asyncio.timeout(40), asyncio.TaskGroup() as tasks:
        tasks.create_task(wipe())
        with pytest.raises(LogMissing, match=r"no log of run 'r'.*restore"):
            await follow()


async def test_a_broker_without_atomic_batches_is_refused(
    broker: LiveBroker,
    connect_as: Connect,
    run_name: str,
    log_settings: LogSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = await connect_as(broker, "admin")
    monkeypatch.setattr(Connection, "connected_server_version", ServerVersion("2.11.9"))
    with pytest.raises(BrokerTooOld, match=r"nats-server 2\.11\.9; atomic batches need 2\.12"):
        await JetStreamLog.create_or_open(connection, run_name, log_settings)


async def test_the_server_knows_only_the_calls_it_is_asked(
    jetstream_log: JetStreamLog, broker: LiveBroker, connect_as: Connect
) -> None:
    api = StreamApi(await connect_as(broker, "reader"), "RUN_nowhere", bound_s=5)
    with pytest.raises(ApiError, match=r"stream not found"):
        await api.call("STREAM.INFO")


async def test_only_its_workers_open_a_queue(
    broker: LiveBroker, connect_as: Connect, jetstream_log: JetStreamLog, log_settings: LogSettings
) -> None:
    await jetstream_log.ensure_queue("episodes", family="request")
    for role in ("reader", "judge", "learner"):
        log = await JetStreamLog.open(await connect_as(broker, role), jetstream_log.run, log_settings)
        with pytest.raises(BrokerDenied, match=r"consumer\.info"):
            await log.open_queue("episodes", family="request")


async def test_a_queue_that_is_not_there_is_waited_for_and_named(
    broker: LiveBroker, connect_as: Connect, jetstream_log: JetStreamLog
) -> None:
    quick = LogSettings(append_timeout_s=0.5)
    log = await JetStreamLog.open(await connect_as(broker, "judge"), jetstream_log.run, quick)
    with pytest.raises(BrokerUnreachable, match=r"no work queue verdicts.*log\.queue_check_s"):
        await log.open_queue("verdicts", family="episode_end")


async def test_streams_of_a_home_that_knew_no_accounts_are_adopted(
    own_broker: LiveBroker, connect_as: Connect, log_settings: LogSettings
) -> None:
    """Such a home's server kept its streams for everybody who logs in; roles had permissions alone."""
    log = await JetStreamLog.create_or_open(await connect_as(own_broker, "admin"), "r", log_settings)
    await log.ensure_queue("verdicts", family="episode_end")
    await fill(log, log_settings, 3)
    own_broker.stop()
    streams = own_broker.plan.store / "jetstream"
    (streams / LOG_ACCOUNT).rename(streams / NO_ACCOUNT)
    own_broker.plan = prepare(own_broker.home, port=own_broker.plan.port)
    own_broker.start()
    again = await JetStreamLog.open(await connect_as(own_broker, "reader"), "r", log_settings)
    assert [recorded.position async for recorded in read(again)] == [1, 2, 3]
    assert [one.name for one in await again.served()] == ["verdicts"]
