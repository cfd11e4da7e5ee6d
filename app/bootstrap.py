"""The only place that builds objects from settings: what each role works with.

Imports of torch, the browser and SQL stay inside the role that needs them: seven processes share two cores.
"""

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import structlog

from actors.curriculum.inventing import Inventor
from actors.curriculum.valuing import Valuer
from actors.environments.base import TaskSource
from app.launch import read_launch
from app.logs import LogStyle, configure_logging
from app.places import PAGE_FILE, SITE_FILE, base_url_in, serve_again
from app.processes import others_working
from app.runs import RunHandle, open_run
from app.supervisor import home_folder
from app.telemetry import exporting
from app.worker import wait_for_bus
from core.endpoint import ENDPOINT
from core.errors import EnvironmentFailed
from core.phases import PHASED
from core.settings import Settings
from core.states import ORM
from events.joined import RunLog
from events.publisher import Publisher

HOST = "127.0.0.1"
SITE_WAIT_S = 60.0
"""How long an actor waits for the store's first answer."""
LAST_WORDS_S = 2.8
"""How long the projector outlasts a stop; honcho kills 5 s after the first process has left."""
SETTLE_S = 0.2
"""From the last word of the others to the projector's own end."""
STORE_CHECK_S = 2.0
"""How often an actor looks whether the store has moved to another port."""
POLL_S = 0.1

Ready = Callable[[str], None]
logger = structlog.get_logger(__name__)


def control_token(home: Path) -> str:
    """The store's control token: made once, readable by the owner alone."""
    path = home / "secrets" / "store-control"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    mine = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(32))
    # a link appears whole, and the first one stays: nobody reads half a token
    with suppress(FileExistsError):
        path.hardlink_to(mine)
    mine.unlink()
    return path.read_text().strip()


def task_sources(settings: Settings) -> dict[str, TaskSource]:
    """Every environment's tasks, by name."""
    from actors.environments.browsergym.tasks import BrowsergymTasks
    from actors.environments.miniwob.tasks import MiniwobTasks
    from actors.environments.store.tasks import StoreTasks
    from actors.environments.web.tasks import WebTasks
    from actors.environments.webarena.tasks import WebArenaTasks
    from actors.environments.webshop.tasks import webshop_tasks

    sources: list[TaskSource] = [StoreTasks(settings.sites), MiniwobTasks()]
    if settings.web.tasks:
        sources.append(WebTasks(settings.web))
    if settings.sites.webarena_tasks:
        sources.append(WebArenaTasks(settings.sites))
    if (webshop := webshop_tasks(settings.sites)) is not None:
        sources.append(webshop)
    if settings.sites.browsergym_python:
        sources.append(BrowsergymTasks(settings.sites))
    return {source.name: source for source in sources}


@asynccontextmanager
async def opened(role: str, name: str) -> AsyncIterator[tuple[RunHandle, RunLog, Publisher]]:
    """The current run, its log as this role sees it, and this process's writer."""
    home = home_folder()
    await wait_for_bus(home)
    handle = open_run(home=home)
    telemetry = handle.settings.telemetry
    style = LogStyle(telemetry.log_format, telemetry.log_level)
    configure_logging(style, process=name, role=role, run=handle.name)
    with exporting(telemetry, process=name, role=role, run=handle.name):
        async with (
            handle.connect_log(role=role) as log,
            Publisher(
                log, producer=name, code_rev=handle.code_rev, settings=handle.settings.log
            ) as publisher,
        ):
            yield handle, log, publisher


async def play_bus(name: str, _stop: asyncio.Event, _ready: Ready) -> None:
    """Open the run; a child of the bus, done when that is done."""
    from app.opening import open_log

    home = home_folder()
    handle = open_run(home=home)
    await open_log(handle, read_launch(home))
    logger.info("run is open", run=handle.name, recipe=handle.recipe)


async def play_site(_name: str, _stop: asyncio.Event, ready: Ready) -> None:
    """Serve the store, at the same address after a restart so that running browsers find it again."""
    from actors.environments.store.server import serve

    home = home_folder()
    await wait_for_bus(home)
    settings = open_run(home=home).settings.sites

    async def serve_at(port: int, listening: Ready) -> None:
        token = control_token(home)
        await serve(settings, host=HOST, port=port, control_token=token, ready=listening)

    await serve_again(home / SITE_FILE, serve_at, ready=ready, port=settings.port)


async def play_curriculum(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Request episodes."""
    from actors.curriculum.role import run_curriculum
    from app.changing import settings_now
    from app.room import room_check

    async with opened("curriculum", name) as (handle, log, publisher):
        launch = read_launch(handle.home)
        goal = launch.until.get("episodes") if launch else None
        async with _inventing(handle.settings) as inventor:
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
                valuer=_valuer(handle),
                inventor=inventor,
            )


@asynccontextmanager
async def _inventing(settings: Settings) -> AsyncIterator[Inventor | None]:
    """Who invents tasks in words, where the settings want that."""
    if settings.evolution.generator != ENDPOINT:
        yield None
        return
    from actors.endpoint.client import Endpoint
    from app.judges import MEMORY

    async with Endpoint(
        settings.endpoint, memory=home_folder() / MEMORY, content=settings.telemetry.content
    ) as endpoint:
        yield Inventor(endpoint, run_seed=settings.run.seed)


def _valuer(handle: RunHandle) -> Valuer | None:
    """The model that values generated tasks, where the learner trains it; it loads torch."""
    settings = handle.settings
    by_orm = settings.evolution.valued_by == ORM
    if not settings.evolution.generator or (settings.learner.algorithm not in PHASED and not by_orm):
        return None
    from actors.engines.valuing import CriticValuer, OutcomeValuer
    from core.models.folders import policy_folder

    if by_orm:
        return OutcomeValuer(policy_folder(settings.policy.base), blobs=handle.blobs, settings=settings)

    return CriticValuer(
        policy_folder(settings.policy.base),
        settings.learner.critic_heads,
        blobs=handle.blobs,
        settings=settings,
    )


async def play_actor(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Play episodes in one browser with one policy engine."""
    from actors.actor import run_actor
    from actors.environments.browser import BrowserHost
    from actors.environments.store.site import StoreSite
    from app.policy_servers import opened_engine
    from app.sites import sites_with

    async with opened("actor", name) as (handle, log, publisher):
        settings = handle.settings
        base_url = await _store_address(handle.home)
        async with opened_engine(handle, publisher) as engine, BrowserHost(settings.actors) as host:
            store = StoreSite(base_url, control_token(handle.home))
            ready(f"policy {settings.policy.base}")
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(_watch_store(handle.home, base_url))
                await run_actor(
                    name=name,
                    log=log,
                    publisher=publisher,
                    queue=await log.open_queue("episodes", family="request", dead_letters=publisher),
                    engine=engine,
                    host=host,
                    sites=sites_with(store, settings),
                    blobs=handle.blobs,
                    settings=settings,
                    stop=stop,
                )
                watching.cancel()


async def play_policy_server(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Keep vLLM servers at the newest weights."""
    from app.policy_servers import keep_servers

    async with opened("policy_server", name) as (handle, log, publisher):
        await until_stopped(keep_servers(handle, log, publisher, ready=ready), stop)


async def _store_address(home: Path) -> str:
    until = time.monotonic() + SITE_WAIT_S
    while time.monotonic() < until:
        base_url = base_url_in(home / SITE_FILE)
        if base_url is not None:
            return base_url
        await asyncio.sleep(POLL_S)
    raise EnvironmentFailed(
        f"the store has not said where it listens ({home / SITE_FILE}) for {SITE_WAIT_S:.0f} s. See what site.1 says."
    )


async def _watch_store(home: Path, base_url: str) -> None:
    """Raise EnvironmentFailed when the store has moved: the actor starts again with the new address."""
    while True:
        await asyncio.sleep(STORE_CHECK_S)
        now = await _store_address(home)
        if now != base_url:
            raise EnvironmentFailed(
                f"the store moved from {base_url} to {now}; this actor starts again there"
            )


async def play_judge(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Judge what ended."""
    from actors.judge.role import run_judge
    from app.judges import open_judges, shelf_for

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
                stop=stop,
                judges=judges,
                shelf=shelf,
            )


async def play_relabeler(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Say what the episodes that ended achieved."""
    from actors.relabel.role import run_relabeler
    from app.relabelers import open_relabeler
    from core.models.folders import policy_folder
    from core.models.policy import load_tokenizer

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
    """Train; or help the learner that started this process, or whom torchrun made the leader."""
    from app.companions import help_leader, train
    from learner.joining import place_in

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
    """Fold everything into the read model."""
    from storage.readmodel.projector import run_projector

    home = home_folder()
    await wait_for_bus(home)
    handle = open_run(home=home)
    async with handle.connect_log(role="projector") as log:
        ready(handle.database_url)
        outlasted = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            lasting = tasks.create_task(_outlast_others(home, stop, outlasted))
            await until_stopped(run_projector(log, handle.database_url, handle.settings.storage), outlasted)
            lasting.cancel()


async def play_page(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Serve the page and the run's metrics on loopback, the page at the same address after a restart: one that somebody has open goes on."""
    from app.page.serving import serve_page
    from app.prometheus import metrics_served

    home = home_folder()
    await wait_for_bus(home)
    handle = open_run(home=home)

    async def serve_at(port: int, listening: Ready) -> None:
        await serve_page(home, host=HOST, port=port, ready=listening)

    with metrics_served(handle, handle.settings.telemetry):
        await serve_again(home / PAGE_FILE, serve_at, ready=ready)


async def play_archiver(name: str, stop: asyncio.Event, ready: Ready) -> None:
    """Move the beginning of the log to an archive, let go of old pages."""
    from app.archiving import keep_archiving

    async with opened("archiver", name) as (handle, log, publisher):
        ready(str(handle.archive or ""))
        await until_stopped(keep_archiving(handle, log, publisher), stop)


async def _outlast_others(home: Path, stop: asyncio.Event, outlasted: asyncio.Event) -> None:
    """Set `outlasted` when the others have said what they had to say after `stop`, so that the tables show it."""
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
"""What `app.worker` runs, by the name in the Procfile; `prepare` is the bus's child."""
