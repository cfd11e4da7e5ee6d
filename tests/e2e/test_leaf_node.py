"""An actor on a machine that reaches only a leaf node, in a run whose log is at the hub and whose blobs are in a bucket.

Three machines, each a home and processes of its own: one that has opened the run, one that joins it at the hub with
curriculum and judge, and one that joins at the leaf with an actor. The leaf node's process is killed in the middle.
"""

import asyncio
import json
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from hindcast.app.runs.open_log import open_log
from hindcast.app.runs.runs import RunHandle, create_run
from hindcast.app.settings.configuration import resolve
from hindcast.core.models.folders import base_policy_folder
from hindcast.core.models.policy import encode_weights, load_policy
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    StepTaken,
    WeightsAdopted,
    WeightsPublished,
)
from hindcast.events.envelope import Recorded
from hindcast.events.jetstream.broker import secret_path
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read, tail
from processes.system import COMMAND, ROOT, SMALL_GROUPS, Home
from servers.nats_servers import Server, hub_and_leaf, serving
from servers.s3_server import BUCKET, S3Server, s3_server  # noqa: F401  # fixture

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.broker,
    pytest.mark.torch,
    pytest.mark.browser,
]

RUN = "spread"
ACTOR = "actor.far-1"
PATIENCE_S = 240.0
ENDS = (EpisodeEnded, EpisodeAbandoned, EpisodeCancelled)


class Machine(Home):
    """A home whose processes joined a run."""

    def __init__(self, folder: Path, server: S3Server) -> None:
        super().__init__(folder)
        self.environment |= server.environment

    @contextmanager
    def joined(self, url: str, *arguments: str) -> Iterator[None]:
        """`hindcast join` until the block ends; it must then leave in order."""
        process = subprocess.Popen(
            [*COMMAND, "join", url, "--json", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, f"nothing came up:\n{self.words()}"
            assert json.loads(line)["ready"]
            yield
            assert self.stop(process) == 0, self.words()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(60)


def first_machine(folder: Path, hub: Server) -> RunHandle:
    """A run opened as `hindcast start` does, with nobody at work."""
    settings = {**SMALL_GROUPS, "curriculum.environments": "miniwob", "actors.contexts": "4"}
    settings |= {"log.url": hub.url, "storage.blobs": f"s3://{BUCKET}/{folder.name}"}
    overrides = [f"{key}={value}" for key, value in settings.items()]
    handle = create_run(resolve(folder=folder, environment={}, overrides=overrides), name=RUN, home=folder)
    asyncio.run(open_log(handle, None))
    return handle


async def wait_for(handle: RunHandle, enough: Callable[[list[Recorded]], bool]) -> list[Recorded]:
    """The log from its beginning until it holds enough."""
    seen: list[Recorded] = []
    async with (
        asyncio.timeout(PATIENCE_S),
        handle.connect_log() as log,
        aclosing(tail(log, after=0)) as recordeds,
    ):
        async for recorded in recordeds:
            seen.append(recorded)
            if enough(seen):
                break
    return seen


def ended(recordeds: list[Recorded]) -> int:
    return sum(isinstance(recorded.fact, EpisodeEnded) for recorded in recordeds)


async def publish_weights(handle: RunHandle) -> None:
    """What a learner says after its first batch."""
    weights = handle.blobs.put(encode_weights(load_policy(base_policy_folder()).model))
    fact = WeightsPublished(version=1, model="policy", weights=weights, update=1)
    async with (
        handle.connect_log("learner") as log,
        Publisher(
            log, producer="learner.1", code_rev=handle.code_rev, settings=handle.settings.log
        ) as publisher,
    ):
        await publisher.decide(fact, entity="policy_1")


def test_an_actor_behind_a_leaf_node_plays_and_loses_nothing_when_the_link_is_cut(
    tmp_path: Path,
    s3_server: S3Server,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    desk, far = Machine(tmp_path / "desk", s3_server), Machine(tmp_path / "far", s3_server)
    servers = hub_and_leaf(tmp_path, hub_home=tmp_path / "first", leaf_home=far.folder)
    with serving(3, servers) as (hub, leaf):
        handle = first_machine(tmp_path / "first", hub)
        (desk.folder / "secrets").mkdir(parents=True)
        for role in ("reader", "curriculum", "judge"):
            shutil.copy2(secret_path(handle.home, role), secret_path(desk.folder, role))
        with (
            desk.joined(hub.url, "--roles", "curriculum,judge", "--name", "desk"),
            far.joined(leaf.url, "--roles", "actor", "--name", "far"),
        ):
            asyncio.run(wait_for(handle, lambda seen: ended(seen) >= 2))
            leaf.kill()
            asyncio.run(publish_weights(handle))
            assert leaf.start(), leaf.words()
            asyncio.run(wait_for(handle, lambda seen: later_steps(seen) >= 3 and ended(seen) >= 6))
        log = asyncio.run(everything(handle))
    check(log)


def later_steps(recordeds: list[Recorded]) -> int:
    """Steps sampled from the weights that were published while the link was cut."""
    return sum(
        isinstance(recorded.fact, StepTaken) and recorded.envelope.policy_version == 1
        for recorded in recordeds
    )


async def everything(handle: RunHandle) -> list[Recorded]:
    async with handle.connect_log() as log:
        return [recorded async for recorded in read(log)]


def check(log: list[Recorded]) -> None:
    facts = [recorded.fact for recorded in log]
    requested = Counter(fact.episode for fact in facts if isinstance(fact, EpisodeRequested))
    started = Counter(fact.episode for fact in facts if isinstance(fact, EpisodeStarted))
    ends = Counter(fact.episode for fact in facts if isinstance(fact, ENDS))
    steps = Counter((fact.episode, fact.index) for fact in facts if isinstance(fact, StepTaken))
    assert max(requested.values()) == max(started.values()) == max(ends.values()) == max(steps.values()) == 1
    assert set(started) <= set(requested)
    assert set(started) <= set(ends), "what was begun has its end: the actor said so when it left"
    for fact in facts:
        if isinstance(fact, EpisodeStarted):
            assert fact.actor == ACTOR
        if isinstance(fact, EpisodeEnded):
            assert {step for episode, step in steps if episode == fact.episode} == set(range(fact.steps))
    adopted = [fact.version for fact in facts if isinstance(fact, WeightsAdopted)]
    assert adopted == [0, 1], "the actor went on through the outage: it was not started again"
    assert any(isinstance(fact, EpisodeJudged) for fact in facts)
    assert len({recorded.envelope.id for recorded in log}) == len(log)
