"""Joining a run from another machine: what is asked of the broker, what is refused and in which words."""

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hindcast.app.revision import code_revision
from hindcast.app.runs.fork import fork_run
from hindcast.app.runs.runs import Fork, RunHandle, create_run, open_run, run_folder
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.join import (
    CLOCK_S,
    JOINED,
    JoinRefused,
    JoinRequest,
    parse_machine,
    parse_roles,
    plan_join,
)
from hindcast.app.system.processes import write_json
from hindcast.core.errors import BrokerDenied, BrokerUnreachable, SettingsError
from hindcast.events.catalogue import RunForked, RunStarted, WeightsAdopted
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.envelope import BlobRef
from hindcast.events.jetstream.broker import LEAF_ROLES, secret_path
from hindcast.events.log.publisher import Publisher
from hindcast.storage.blobs.store import BlobStore
from servers.nats_servers import Server, hub_and_leaf, serving

pytestmark = [pytest.mark.broker, pytest.mark.torch]

RUN = "shared"
BASE = b"the first weights"


class Hub:
    """A hub and its leaf node, with a run that others may join; nobody works on it."""

    def __init__(self, folder: Path, hub: Server, leaf: Server) -> None:
        self.first, self.far = folder / "first", folder / "far"
        self.hub, self.leaf = hub, leaf

    def make_run(self, *overrides: str) -> RunHandle:
        given = [f"log.url={self.hub.url}", "log.connect_timeout_s=20", *overrides]
        resolved = resolve(folder=self.first, environment={}, overrides=given)
        return create_run(resolved, name=RUN, home=self.first)

    def machine(self, folder: Path, *roles: str) -> Path:
        """Another machine's home, with copies of the secrets of some roles."""
        (folder / "secrets").mkdir(parents=True)
        for role in roles:
            shutil.copy2(secret_path(self.first, role), secret_path(folder, role))
        return folder


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    folder = tmp_path_factory.mktemp("joining")
    with serving(3, hub_and_leaf(folder, hub_home=folder / "first", leaf_home=folder / "far")) as (hub, leaf):
        yield Hub(folder, hub, leaf)


@pytest.fixture(scope="module")
def shared(servers: Hub, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    """The same with a run whose blobs all machines reach."""
    blobs = tmp_path_factory.mktemp("blobs")
    handle = servers.make_run(f"storage.blobs={blobs}", "curriculum.group_size=3", "telemetry.sample=0.5")
    asyncio.run(start(handle))
    return servers


async def start(handle: RunHandle, *, code_rev: str | None = None) -> None:
    """Record that a run starts, without anything that takes long."""
    settings = handle.settings
    fact = RunStarted(
        settings=settings.model_dump(mode="json"),
        recipe=handle.recipe,
        run_seed=settings.run.seed,
        packages={},
        fingerprint=Fingerprint(
            cpu_capability="", threads=1, blas="", torch="", transformers="", python="", platform=""
        ),
        base_policy=handle.blobs.put(BASE),
        base_policy_name=settings.policy.base,
        behaviour={},
    )
    async with (
        handle.connect_log("admin") as log,
        Publisher(
            log,
            producer="opening.1",
            code_rev=code_revision() if code_rev is None else code_rev,
            settings=settings.log,
        ) as publisher,
    ):
        await publisher.decide(fact, entity=handle.name)


def asked(url: str, roles: str = "actor", machine: str = "far", **more: object) -> JoinRequest:
    return JoinRequest(url=url, run=None, counts=parse_roles(roles), machine=machine, **more)  # type: ignore[arg-type]


async def test_settings_come_from_the_log_through_the_leaf_and_places_from_here(shared: Hub) -> None:
    handle = await plan_join(shared.far, asked(shared.leaf.url, overrides=["telemetry.log_level=debug"]))
    settings = open_run(RUN, home=shared.far).settings
    assert handle.name == RUN
    assert settings == handle.settings
    assert settings.curriculum.group_size == 3
    assert settings.telemetry.sample == 0.5
    assert settings.telemetry.log_level == "debug"
    assert settings.log.url == shared.leaf.url
    again = await plan_join(shared.far, asked(shared.leaf.url))
    assert again.settings.telemetry.log_level == "info", "what is said anew holds"


async def test_what_a_role_may_do_holds_through_the_leaf(shared: Hub) -> None:
    """The leaf lets actors write steps, and nobody write verdicts, whatever its own users may."""
    assert set(LEAF_ROLES) == {"actor", "reader"}
    with pytest.raises(BrokerDenied, match="'judge' has no secret"):
        await plan_join(shared.far, asked(shared.leaf.url, "judge"))


async def test_a_wrong_password_is_told_from_a_broker_that_is_away(shared: Hub, tmp_path: Path) -> None:
    home = shared.machine(tmp_path / "m", "reader", "actor")
    secret_path(home, "actor").write_text("not-the-password")
    with pytest.raises(BrokerDenied, match=r"refused role 'actor'.*Authorization"):
        await plan_join(home, asked(shared.hub.url))
    away = asked("nats://127.0.0.1:9", overrides=["log.connect_timeout_s=0.5"])
    with pytest.raises(BrokerUnreachable, match="does not answer"):
        await plan_join(home, away)


async def test_a_run_that_is_not_there_is_told_with_those_that_are(shared: Hub, tmp_path: Path) -> None:
    home = shared.machine(tmp_path / "m", "reader", "actor")
    wanted = JoinRequest(url=shared.hub.url, run="other", counts={"actor": 1}, machine="far")
    with pytest.raises(JoinRefused, match=rf"no run 'other'; it has .*{RUN}.*--run"):
        await plan_join(home, wanted)


@pytest.mark.parametrize(("off_s", "words"), [(CLOCK_S + 5, "ahead of"), (-CLOCK_S - 5, "behind")])
async def test_a_clock_that_is_far_off_is_refused(
    shared: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off_s: float, words: str
) -> None:
    from hindcast.app.system import join

    measured = join.clock_ahead_s

    async def off(*arguments: object, **named: object) -> float:
        return await measured(*arguments, **named, clock=lambda: time.time() + off_s)  # type: ignore[arg-type]

    monkeypatch.setattr(join, "clock_ahead_s", off)
    home = shared.machine(tmp_path / "m", "reader", "actor")
    with pytest.raises(JoinRefused, match=f"s {words} that of the broker"):
        await plan_join(home, asked(shared.hub.url))


async def test_other_code_is_refused_unless_it_is_asked_for(
    shared: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hindcast.app.runs.runs.code_revision", lambda: "another")
    home = shared.machine(tmp_path / "m", "reader", "actor")
    with pytest.raises(JoinRefused, match=r"this is another.*--other-code"):
        await plan_join(home, asked(shared.hub.url))
    assert (await plan_join(home, asked(shared.hub.url, other_code=True))).name == RUN


async def test_what_the_run_computes_cannot_differ_on_another_machine(shared: Hub, tmp_path: Path) -> None:
    home = shared.machine(tmp_path / "m", "reader", "actor")
    with pytest.raises(SettingsError, match=r"--set learner\.learning_rate .*its first event fixes"):
        await plan_join(home, asked(shared.hub.url, overrides=["learner.learning_rate=1"]))


async def test_a_home_with_a_run_of_that_name_is_left_alone(shared: Hub) -> None:
    with pytest.raises(JoinRefused, match=f"has a run '{RUN}' of its own"):
        await plan_join(shared.first, asked(shared.hub.url))


async def test_blobs_that_lie_on_the_first_machine_alone_are_told(shared: Hub, tmp_path: Path) -> None:
    home = shared.machine(tmp_path / "m", "reader", "actor", "projector")
    with pytest.raises(JoinRefused, match=r"storage\.blobs is empty.*s3://"):
        await plan_join(home, asked(shared.hub.url, overrides=["storage.blobs="]))
    projector = await plan_join(home, asked(shared.hub.url, "projector", overrides=["storage.blobs="]))
    assert projector.settings.storage.blobs == "", "who reads no blob may join all the same"


async def test_a_shared_folder_that_is_not_mounted_is_told_before_anything_starts(
    shared: Hub, tmp_path: Path
) -> None:
    """It can be made and written to here, and nothing of the run is in it."""
    home = shared.machine(tmp_path / "m", "reader", "actor")
    with pytest.raises(JoinRefused, match=r"this machine does not find its first weights there.*mount"):
        await plan_join(home, asked(shared.hub.url, overrides=[f"storage.blobs={tmp_path / 'empty'}"]))


async def test_blobs_that_cannot_be_written_are_told_and_a_probe_leaves_nothing_behind(
    shared: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = shared.machine(tmp_path / "m", "reader", "actor", "projector")
    place = Path(open_run(RUN, home=shared.first).settings.storage.blobs)
    before = {path for path in place.rglob("*") if path.is_file()}
    await plan_join(home, asked(shared.hub.url))
    assert {path for path in place.rglob("*") if path.is_file()} == before

    def refusing(_store: BlobStore, _content: bytes) -> BlobRef:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(BlobStore, "put", refusing)
    with pytest.raises(JoinRefused, match=r"storage\.blobs.*cannot use them.*Permission denied"):
        await plan_join(home, asked(shared.hub.url))
    await plan_join(home, asked(shared.hub.url, "projector"))


async def test_a_name_that_another_machine_bears_is_refused_and_ones_own_is_not(
    shared: Hub, tmp_path: Path
) -> None:
    handle = open_run(RUN, home=shared.first)
    fact = WeightsAdopted(actor="actor.taken-1", version=0, load_ms=1.0)
    own = shared.machine(tmp_path / "own", "reader", "actor")
    await plan_join(own, asked(shared.hub.url, machine="taken"))
    async with (
        handle.connect_log("actor") as log,
        Publisher(
            log, producer="actor.taken-1", code_rev=code_revision(), settings=handle.settings.log
        ) as publisher,
    ):
        await publisher.publish(fact, entity="actor.taken-1")
        await publisher.commit()
    other = shared.machine(tmp_path / "other", "reader", "actor")
    with pytest.raises(JoinRefused, match=r"events of actor\.taken-1.*--name"):
        await plan_join(other, asked(shared.hub.url, machine="taken"))
    await plan_join(other, asked(shared.hub.url, machine="takes"))
    await plan_join(own, asked(shared.hub.url, machine="taken"))
    write_json(run_folder(own, RUN) / JOINED, {"url": shared.hub.url})  # as before names were noted
    await plan_join(own, asked(shared.hub.url, machine="taken"))


async def test_a_joined_home_makes_no_fork_and_a_fork_cannot_be_joined(shared: Hub, tmp_path: Path) -> None:
    home = shared.machine(tmp_path / "m", "reader", "actor")
    joined = await plan_join(home, asked(shared.hub.url))
    with pytest.raises(SettingsError, match="one of the machines that joined run shared"):
        await fork_run(joined, at=1, name=None, overrides=[], said=print)
    first = open_run(RUN, home=shared.first)
    fork = RunHandle(shared.first, "forked", first.resolved, fork=Fork(parent=RUN, at=1))
    fact = RunForked(parent=RUN, at_position=1, parent_digest=b"", start=None)
    wanted = JoinRequest(url=shared.hub.url, run="forked", counts={"actor": 1}, machine="far")
    try:
        async with (
            fork.connect_stream("admin") as stream,
            Publisher(
                stream, producer="opening.1", code_rev=code_revision(), settings=fork.settings.log
            ) as publisher,
        ):
            await publisher.decide(fact, entity="forked")
        with pytest.raises(JoinRefused, match=r"run forked is a fork.*its parent's"):
            await plan_join(home, wanted)
    finally:
        async with fork.connect_stream("repairer") as stream:
            await stream.delete()


def test_roles_are_counted_and_actors_bring_their_store() -> None:
    assert parse_roles("actor, actor,judge") == {"site": 1, "actor": 2, "judge": 1}
    assert parse_roles("learner") == {"learner": 1}
    for wrong in ("bus", "player", "actor,"):
        with pytest.raises(SettingsError, match="no machine can join as"):
            parse_roles(wrong)


def test_a_machines_name_fits_into_subjects() -> None:
    assert parse_machine("GPU_7.example.org") == "gpu-7"
    with pytest.raises(SettingsError, match="--name"):
        parse_machine("größe")
