"""A real Chromium is killed under an actor: its episodes are abandoned with a reason, and the actor goes on."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from random import Random

import psutil
import pytest

from hindcast.actors.engines.base import Constraint, Generation
from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.miniwob.site import MiniwobSite
from hindcast.actors.environments.miniwob.tasks import MiniwobTasks
from hindcast.actors.episodes.actor import run_actor
from hindcast.core.domain.sampling import Sampling
from hindcast.events.catalogue import EpisodeAbandoned, EpisodeEnded, EpisodeRequested, StepTaken
from hindcast.events.envelope import Fact
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read, tail
from hindcast.storage.blobs.store import BlobStore
from simulation.stand_ins import Mishaps, ScriptedEngine
from stories.curriculum_story import settings_of

pytestmark = [pytest.mark.browser, pytest.mark.torch]

SETTINGS = settings_of(actors={"contexts": 2})
ROOT = Path(__file__).parents[2]
BROWSING = """
import asyncio, sys
from hindcast.actors.environments.browser import BrowserHost
from hindcast.core.settings.schema import ActorSettings

async def browse():
    async with BrowserHost(ActorSettings()):
        print("up", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(browse())
"""
GIVING_UP = """
import asyncio, os, tempfile
from hindcast.actors.environments.chromium import Chromium

async def give_up():
    starting = asyncio.create_task(Chromium.start(""))
    while not os.listdir(tempfile.gettempdir()):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    print("given up, left:", os.listdir(tempfile.gettempdir()), flush=True)
    os._exit(0)  # as a worker leaves

asyncio.run(give_up())
"""
GONE_S = 30.0


class Scrolling(ScriptedEngine):
    """Never gets anywhere, so that every episode takes all of its steps."""

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, constraint: Constraint | None = None
    ) -> Generation:
        await asyncio.sleep(0.2)
        ids = [*map(ord, 'do(action="Scroll Down")'), self.tokenizer.eos_token_id]
        return Generation(token_ids=ids, logprobs=[-1.0] * len(ids), versions=[0] * len(ids), finish="stop")


def requested(number: int) -> EpisodeRequested:
    return EpisodeRequested(
        episode=f"ep_{number}",
        task=MiniwobTasks().task("click-tab-2", number),
        group=f"g_{number}",
        member=0,
        group_size=1,
        attempt=0,
        origin="online",
        temperature=1.0,
        phase=0,
        min_version=0,
        lease_s=60.0,
    )


def my_browser() -> psutil.Process:
    """The main process of the Chromium that this test started, among this process's own descendants."""

    def is_browser(process: psutil.Process) -> bool:
        with suppress(
            psutil.NoSuchProcess
        ):  # a process of the killed browser may end now, and be a zombie until then
            return "chrom" in process.exe() and "--type=" not in " ".join(process.cmdline())
        return False

    return next(child for child in psutil.Process().children(recursive=True) if is_browser(child))


async def seen(log: MemoryLog, kind: type[Fact], number: int) -> None:
    async with asyncio.timeout(60), aclosing(tail(log, after=0)) as events:
        async for recorded in events:
            number -= isinstance(recorded.fact, kind)
            if number <= 0:
                return


async def test_episodes_of_a_killed_browser_are_abandoned_and_the_next_ones_are_played(
    tmp_path: Path,
) -> None:
    log = MemoryLog("r")
    stop = asyncio.Event()

    async def act(publisher: Publisher) -> None:
        async with BrowserHost(SETTINGS.actors) as host:
            await run_actor(
                name="actor.1",
                log=log,
                publisher=publisher,
                queue=await log.open_queue("actors", family="request"),
                engine=Scrolling(Mishaps(Random(1), 0.0)),
                host=host,
                sites={"miniwob": MiniwobSite()},
                blobs=BlobStore(tmp_path),
                settings=SETTINGS,
                stop=stop,
            )

    async with (
        Publisher(log, producer="actor.1", code_rev="", settings=SETTINGS.log) as publisher,
        Publisher(log, producer="story", code_rev="", settings=SETTINGS.log) as story,
        asyncio.TaskGroup() as tasks,
    ):
        for number in range(2):
            await story.decide(requested(number), entity=f"ep_{number}")
        tasks.create_task(act(publisher))
        await seen(log, StepTaken, 2)
        os.kill(my_browser().pid, signal.SIGKILL)
        await seen(log, EpisodeAbandoned, 2)
        for number in range(2, 5):
            await story.decide(requested(number), entity=f"ep_{number}")
        await seen(log, EpisodeEnded, 3)
        stop.set()

    facts = [recorded.fact async for recorded in read(log)]
    gone = [fact for fact in facts if isinstance(fact, EpisodeAbandoned)]
    ended = [fact for fact in facts if isinstance(fact, EpisodeEnded)]
    assert [fact.reason for fact in gone] == ["browser_died"] * 2
    assert {fact.episode for fact in gone} == {"ep_0", "ep_1"}
    assert {fact.episode for fact in ended} == {"ep_2", "ep_3", "ep_4"}


def browsing(temporary: Path) -> "subprocess.Popen[str]":
    """A process with a browser of its own, which it closes at a line on standard input."""
    process = subprocess.Popen(
        [sys.executable, "-c", BROWSING],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert any(line == "up\n" for line in process.stdout)
    return process


def test_a_start_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    given_up = subprocess.run(  # apart: Playwright leaves a transport open whose start is cancelled
        [sys.executable, "-c", GIVING_UP],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=2 * GONE_S,
    )
    assert "given up, left: []" in given_up.stdout, given_up.stderr


def test_what_the_browser_of_a_killed_actor_leaves_is_removed_by_the_next_one(tmp_path: Path) -> None:
    killed = browsing(tmp_path)
    below = psutil.Process(killed.pid).children(recursive=True)
    assert below
    killed.kill()
    killed.communicate()
    _, alive = psutil.wait_procs(below, timeout=GONE_S)
    assert not alive
    (left,) = tmp_path.iterdir()
    assert list(left.iterdir())
    browsing(tmp_path).communicate("\n", timeout=GONE_S)
    assert list(tmp_path.iterdir()) == []
