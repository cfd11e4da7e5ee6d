"""Composition root: builds what each role needs from the settings, and runs the role.

Imports of torch, the browser and SQL stay inside the role that needs them: seven processes share two cores.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import structlog

from hindcast.actors.curriculum.feasibility import FeasibilityChecker, Valuer
from hindcast.actors.curriculum.task_generator import TaskGenerator
from hindcast.app.runs.runs import RunHandle, open_run
from hindcast.app.system.home import home_folder
from hindcast.app.system.launch import read_launch
from hindcast.app.system.listen_addresses import (
    PAGE_FILE,
    SITE_FILE,
    control_token,
    page_token,
    serve_again,
    store_address,
    watch_store,
)
from hindcast.app.system.logs import LogStyle, configure_logging
from hindcast.app.system.processes import READY, others_working, pid_alive, read_json
from hindcast.app.system.sites import task_sources
from hindcast.app.system.telemetry import exporting
from hindcast.core.errors import BrokerUnreachable
from hindcast.core.fast_import import loading
from hindcast.core.rl.algorithm import traits_of
from hindcast.core.rl.combined_state import ORM
from hindcast.core.settings.endpoint import ENDPOINT
from hindcast.core.settings.schema import Settings
from hindcast.events.log.joined_log import RunLog
from hindcast.events.log.publisher import Publisher

HOST = "127.0.0.1"

Ready = Callable[[str], None]
logger = structlog.get_logger(__name__)
POLL_S = 0.1
READY_WAIT_S = 150.0
"""How long a role waits for the bus to open the run."""
LAST_WORDS_S = 2.8
"""How long the projector outlives a stop; honcho kills 5 s after the first process has ended."""
SETTLE_S = 0.2
"""From the end of the last other role to the projector's own end."""


@asynccontextmanager
async def opened(role: str, name: str) -> AsyncIterator[tuple[RunHandle, RunLog, Publisher]]:
    """Open the current run: its handle, its log with this role's permissions, and this process's publisher."""
    home = home_folder()
    await wait_for_bus(home)
    handle = open_run(home=home)
    telemetry = handle.settings.telemetry
    style = LogStyle(telemetry.log_format, telemetry.log_level)
    configure_logging(style, process=name, role=role, run=handle.name)
    with exporting(telemetry, process=name, role=role, run=handle.name):
        async with (
            handle.connect_log(role=role) as log,
            handle.publisher(log, name) as publisher,
        ):
            yield handle, log, publisher


async def wait_for_bus(home: Path) -> None:
    """Return once the bus has opened the run.

    Raises:
        BrokerUnreachable: it has not within `READY_WAIT_S`.

    """
    began = time.monotonic()
    while time.monotonic() - began < READY_WAIT_S:
        ready = read_json(home / READY)
        if ready is not None and pid_alive(int(ready["bus_pid"])):
            return
        await asyncio.sleep(POLL_S)
    raise BrokerUnreachable(
        f"the bus has not opened a run in {home} within {READY_WAIT_S:.0f} s. See the messages of bus.1 in the system's output."
    )


async def outlast_others(home: Path, stop: asyncio.Event, outlasted: asyncio.Event) -> None:
    """Set `outlasted` once the other roles have ended after `stop`, so that the tables show their last events."""
    await stop.wait()
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORDS_S):
            while others_working(home / "processes", besides=("bus", "projector", "site", "page")):  # noqa: ASYNC110 - files
                await asyncio.sleep(POLL_S)
            await asyncio.sleep(SETTLE_S)
    outlasted.set()


async def until_stopped(work: Awaitable[object], stop: asyncio.Event) -> None:
    """Run `work` to its end, or cancel it when `stop` is set."""

    async def run() -> None:
        await work

    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(run())

        async def cancel() -> None:
            await stop.wait()
            working.cancel()

        stopping = tasks.create_task(cancel())
        working.add_done_callback(lambda _: stopping.cancel())


@asynccontextmanager
async def asking(settings: Settings) -> AsyncIterator[tuple[TaskGenerator | None, FeasibilityChecker | None]]:
    """The generator of tasks in words, if the settings name it, and the checker that asks whether a task can be done.

    There is a checker wherever there is an endpoint: `evolution.feasibility` may be changed while the run is running.
    """
    if not (settings.evolution.generator and settings.endpoint.base_url and settings.endpoint.model):
        yield None, None
        return
    from hindcast.app.system.judges import endpoint_of

    async with endpoint_of(settings) as endpoint:
        invents = settings.evolution.generator == ENDPOINT
        yield (
            TaskGenerator(endpoint, run_seed=settings.run.seed) if invents else None,
            FeasibilityChecker(endpoint),
        )


def valuer_of(handle: RunHandle) -> Valuer | None:
    """The model that values generated tasks, if the learner trains it. Loads torch."""
    settings = handle.settings
    by_orm = settings.evolution.valued_by == ORM
    if not settings.evolution.generator or (
        not traits_of(settings.learner.algorithm).learns_in_phases and not by_orm
    ):
        return None
    from hindcast.actors.engines.value_models import CriticValuer, OutcomeValuer
    from hindcast.core.models.folders import policy_folder

    if by_orm:
        return OutcomeValuer(policy_folder(settings.policy.base), blobs=handle.blobs, settings=settings)
    return CriticValuer(
        policy_folder(settings.policy.base),
        settings.learner.critic_heads,
        blobs=handle.blobs,
        settings=settings,
    )


async def play_bus(name: str, _stop: asyncio.Event, _ready: Ready) -> None:
    """Open the run. A child of the bus process, which ends once the run is open."""
    with loading():
        from hindcast.app.runs.open_log import open_log

    home = home_folder()
    handle = open_run(home=home)
    await open_log(handle, read_launch(home))
    logger.info("run is open", run=handle.name, recipe=handle.recipe)


async def play_site(_name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Serve the store. After a restart it keeps its address, so that running browsers find it again."""
    from hindcast.actors.environments.store.server import serve

    home = home_folder()
    await wait_for_bus(home)
    settings = open_run(home=home).settings.sites

    async def serve_at(port: int, listening: Ready) -> None:
        token = control_token(home)
        await serve(settings, host=HOST, port=port, control_token=token, ready=listening)

    await until_stopped(serve_again(home / SITE_FILE, serve_at, ready=ready, port=settings.port), stop)


async def play_curriculum(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Request episodes, as the curriculum decides."""
    from hindcast.actors.curriculum.role import run_curriculum
    from hindcast.app.runs.recipe_change import settings_now
    from hindcast.app.system.free_room import room_check

    async with opened("curriculum", name) as (handle, log, publisher):
        launch = read_launch(handle.home)
        goal = launch.until.get("episodes") if launch else None
        async with asking(handle.settings) as (inventor, checker):
            ready("")
            await run_curriculum(
                log=log,
                publisher=publisher,
                blobs=handle.blobs,
                sources=task_sources(handle.settings),
                settings=await settings_now(log),
                stop=stop,
                until_episodes=int(goal) if goal else None,
                room_check=room_check(handle, log),
                valuer=valuer_of(handle),
                inventor=inventor,
                checker=checker,
            )


async def play_actor(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Play episodes in one browser with one policy engine."""
    with loading():
        from hindcast.actors.environments.browser import BrowserHost
        from hindcast.actors.episodes.actor import run_actor
        from hindcast.app.system.policy_servers import opened_engine
        from hindcast.app.system.sites import needs_browser, sites_with

    async with opened("actor", name) as (handle, log, publisher):
        settings = handle.settings
        base_url = await store_address(handle.home)
        sites = sites_with(base_url, control_token(handle.home), settings)
        host_of = BrowserHost(settings.actors, at_once=needs_browser(sites, settings))
        async with opened_engine(handle, log, publisher) as engine, host_of as host:
            ready(f"policy {settings.policy.base}")
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(watch_store(handle.home, base_url))
                await run_actor(
                    name=name,
                    log=log,
                    publisher=publisher,
                    queue=await log.open_queue("episodes", family="request", dead_letters=publisher),
                    engine=engine,
                    host=host,
                    sites=sites,
                    blobs=handle.blobs,
                    settings=settings,
                    stop=stop,
                )
                watching.cancel()


async def play_policy_server(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Run vLLM servers and load the newest weights into them."""
    from hindcast.app.system.policy_servers import keep_servers

    async with opened("policy_server", name) as (handle, log, publisher):
        await until_stopped(keep_servers(handle, log, publisher, ready=ready), stop)


async def play_judge(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Judge finished episodes."""
    from hindcast.actors.judges.role import run_judge
    from hindcast.app.system.judges import open_judges, shelf_for

    async with opened("judge", name) as (handle, log, publisher):
        settings = handle.settings
        shelf = await asyncio.to_thread(shelf_for, settings.judge.judges, settings, handle.blobs)
        queue = await log.open_queue("verdicts", family="episode_end", dead_letters=publisher)
        async with open_judges(settings.judge.judges, settings, handle.blobs) as judges:
            ready("")
            await run_judge(
                log=log,
                publisher=publisher,
                queue=queue,
                settings=settings,
                blobs=handle.blobs,
                stop=stop,
                judges=judges,
                shelf=shelf,
            )


async def play_relabeler(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Relabel finished episodes with goals that they did achieve."""
    from hindcast.actors.relabelers.role import run_relabeler
    from hindcast.app.system.judges import open_relabeler
    from hindcast.core.models.folders import policy_folder
    from hindcast.core.models.tokenizer import load_tokenizer

    async with opened("relabeler", name) as (handle, log, publisher):
        tokenizer = await asyncio.to_thread(load_tokenizer, policy_folder(handle.settings.policy.base))
        queue = await log.open_queue("relabels", family="episode_end", dead_letters=publisher)
        async with open_relabeler(handle.settings, handle.blobs) as relabeler:
            ready(handle.settings.relabeler.kind)
            await run_relabeler(
                log=log,
                publisher=publisher,
                queue=queue,
                blobs=handle.blobs,
                settings=handle.settings,
                relabeler=relabeler,
                tokenizer=tokenizer,
                stop=stop,
            )


async def play_learner(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Train as the leader; or, as another data-parallel rank, compute with the leader (here or started by torchrun)."""
    with loading():
        from hindcast.app.system.learner_ranks import help_leader, train
        from hindcast.learner.distributed.rendezvous import place_in

    place = place_in(os.environ)
    if place is not None and place.rank > 0:
        await until_stopped(asyncio.to_thread(help_leader, place, open_run(home=home_folder())), stop)
        return
    async with opened("learner", name) as (handle, log, publisher):
        launch = read_launch(handle.home)
        goal = launch.until.get("updates") if launch else None
        ready("")
        training = train(
            handle, log, publisher, name=name, place=place, until_updates=int(goal) if goal else None
        )
        await until_stopped(training, stop)


async def play_projector(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Fold the log into the read model."""
    from hindcast.app.runs.folded_read_model import sole_writer
    from hindcast.storage.readmodel.projector import run_projector

    home = home_folder()
    await wait_for_bus(home)
    handle = open_run(home=home)
    async with handle.connect_log(role="projector") as log, sole_writer(handle):
        ready(handle.database_url)
        outlasted = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            lasting = tasks.create_task(outlast_others(home, stop, outlasted))
            await until_stopped(run_projector(log, handle.database_url, handle.settings.storage), outlasted)
            lasting.cancel()


async def play_page(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Serve the page and the run's metrics on loopback. After a restart the page keeps its address, so that open tabs work."""
    from hindcast.app.page.application import serve_page
    from hindcast.app.page.prometheus import metrics_served

    home = home_folder()
    await wait_for_bus(home)
    handle = open_run(home=home)

    async def serve_at(port: int, listening: Ready) -> None:
        await serve_page(home, host=HOST, port=port, token=page_token(home), ready=listening)

    with metrics_served(handle, handle.settings.telemetry):
        await until_stopped(serve_again(home / PAGE_FILE, serve_at, ready=ready), stop)


async def play_archiver(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Move the beginning of the log to the archive and delete old pages."""
    from hindcast.app.runs.archive import keep_archiving

    async with opened("archiver", name) as (handle, log, publisher):
        ready(str(handle.archive or ""))
        await until_stopped(keep_archiving(handle, log, publisher), stop)


ROLES = {
    "prepare": play_bus,
    "site": play_site,
    "curriculum": play_curriculum,
    "policy_server": play_policy_server,
    "actor": play_actor,
    "judge": play_judge,
    "relabeler": play_relabeler,
    "learner": play_learner,
    "projector": play_projector,
    "page": play_page,
    "archiver": play_archiver,
}
"""Role name in the Procfile -> coroutine that `app.system.worker` runs. `prepare` is the bus's child."""
