"""The role `policy_server`: gives every policy server the newest published weights once, however many actors ask.

    weights.published ── follow ──> wanted ──> per server: give it, and check again ──> actors see the name of its weights
    server ends / fails ──────────> policy_server.troubled

It consumes weights.published. It waits for the log, for the servers (`vllm.start_timeout_s`, `vllm.sync_timeout_s`) and
between two checks of one (`LOOK_EVERY_S`). It appends policy_server.troubled. Crash-only: it asks a server for its
weights and remembers nothing. So a server that was restarted by anyone, or left half-way, gets the newest weights like
any other. Actors record `weights.adopted` when the servers report them.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager, nullcontext
from pathlib import Path

import structlog

from hindcast.actors.curriculum.snapshots import curriculum_kind
from hindcast.actors.engines.vllm.server import ServerTroubled, Trouble, VllmServer
from hindcast.actors.episodes.weight_adoption import newest_policy, version_of
from hindcast.actors.log_follower import follow, read_families
from hindcast.actors.policy_servers.version_folders import (
    AdapterLayout,
    VersionFolders,
    VersionLayout,
    WholeModelLayout,
)
from hindcast.actors.policy_servers.weight_delivery import PublishedFile, VersionSource, WeightDelivery
from hindcast.core.errors import BlobMissing, EngineFailed, ModelFileError
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import PolicyServerTroubled, WeightsPublished
from hindcast.events.codec import decode
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.snapshots import newest_standing

LOOK_EVERY_S = 2.0
"""How soon a server without the newest weights is noticed, for example after a restart of its own."""
LONGEST_PAUSE_S = 10.0
FAMILIES = frozenset({"learner"})

logger = structlog.get_logger(__name__)


class TargetWeights:
    """The weights that the servers should have: the newest published version, or the base policy."""

    def __init__(self) -> None:
        self.published: Recorded | None = None
        self._changed = asyncio.Event()

    @property
    def version(self) -> int:
        """Version of the wanted weights; 0: nothing was published yet."""
        return 0 if self.published is None else version_of(self.published)

    def take(self, events: Sequence[Recorded]) -> None:
        """Take the newest publication among events."""
        newest = newest_policy(events, than=self.published)
        if newest is not self.published:
            self.published = newest
            self._changed.set()

    async def changed(self, *, within_s: float) -> None:
        """Return when there is a newer version, or after `within_s` seconds."""
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()


class WeightSynchronizer:
    """Keeps servers at the wanted weights."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        blobs: BlobStore,
        folders: VersionFolders,
        giving: WeightDelivery,
        settings: Settings,
    ) -> None:
        self._publisher = publisher
        self._blobs = blobs
        self._folders = folders
        self._giving = giving
        self._settings = settings

    async def bring_up_to_date(self, server: VllmServer, target: TargetWeights) -> None:
        """Give one server the wanted weights, if it has others.

        Raises:
            ServerTroubled, EngineFailed: it rejects them.
            ModelFileError: their folder cannot be written, for example on a full disk.
        """
        published = target.published
        version = target.version
        if published is None or version == 0:
            await self._giving.give(server, VersionSource(0, lambda: nullcontext(self._folders.base())))
            return
        fact = published.fact
        assert isinstance(fact, WeightsPublished)
        try:
            weights = await asyncio.to_thread(self._blobs.path, fact.weights)
        except BlobMissing:
            logger.warning("published weights are gone: a newer version must follow", version=version)
            return
        except OSError as error:  # of blobs that are fetched
            raise ModelFileError(
                f"the weights of version {version} could not be fetched: {error.strerror or error}"
            ) from error

        @asynccontextmanager
        async def laid_out() -> AsyncIterator[Path]:
            with ExitStack() as reservation:
                reserved = self._folders.reserve_version(version, fact.weights.sha256, weights)
                yield await asyncio.to_thread(reservation.enter_context, reserved)

        source = VersionSource(version, laid_out, PublishedFile(weights, fact.weights))
        try:
            await self._giving.give(server, source)
        except ModelFileError:
            if weights.exists():
                raise
            logger.warning("published weights were deleted while they were laid out", version=version)

    async def keep(self, server: VllmServer, target: TargetWeights) -> None:
        """Keep a server up to date forever; report a trouble once, and retry through it."""
        failures = 0
        while True:
            try:
                await self.bring_up_to_date(server, target)
            except (ServerTroubled, EngineFailed, ModelFileError) as error:
                failures += 1
                if failures == 1:
                    await self.tell(server.address, trouble_of(error), str(error))
                await asyncio.sleep(
                    min(LONGEST_PAUSE_S, self._settings.vllm.backoff_s * 2 ** min(failures, 16))
                )
                continue
            failures = 0
            await target.changed(within_s=LOOK_EVERY_S)

    async def tell(self, address: str, trouble: str, detail: str) -> None:
        """Record a server's trouble."""
        logger.warning("a policy server is in trouble", server=address, trouble=trouble, detail=detail)
        fact = PolicyServerTroubled(server=address, trouble=trouble, detail=detail)
        await self._publisher.publish(fact, entity=address)


def trouble_of(error: ServerTroubled | EngineFailed | ModelFileError) -> Trouble:
    """Name of a failure to give a server weights."""
    match error:
        case ServerTroubled():
            return error.trouble
        case ModelFileError():
            return "no_weights"
        case EngineFailed():
            return "refused"


async def published_so_far(log: EventLog, blobs: BlobStore, settings: Settings, target: TargetWeights) -> int:
    """Read the publications up to now, from the curriculum's newest snapshot on; returns the position read up to."""
    position = 0
    if (standing := await newest_standing(log, blobs, curriculum_kind(settings))) is not None:
        position = standing.state.position
        if standing.state.published:
            events = await log.read(after=standing.state.published - 1, limit=1)
            target.take([event for stored_event in events if (event := decode(stored_event)) is not None])
    async with aclosing(read_families(log, after=position, families=FAMILIES)) as batches:
        async for followed in batches:
            position = followed.position
            target.take(followed.recorded)
    return position


async def follow_published(log: EventLog, target: TargetWeights, *, after: int) -> None:
    """Follow the publications from now on."""
    async with aclosing(follow(log, after=after, families=FAMILIES)) as batches:
        async for followed in batches:
            target.take(followed.recorded)


def folders_for(settings: Settings, base: Path, home: Path, *, run: str) -> VersionFolders:
    """The folder of a run's versions for the servers: in `vllm.weights_folder`, or the home. Each run has its own.

    In the home, folders of other runs are removed: one system works in a home at a time, so no server asks for them any more.
    In `vllm.weights_folder` they stay, because other running homes may share it.
    """
    layout: VersionLayout = AdapterLayout() if settings.learner.lora_rank else WholeModelLayout()
    shared_folder = settings.vllm.weights_folder
    if shared_folder:
        return VersionFolders(Path(shared_folder).expanduser() / run, base, layout)
    root = home / "policy-server" / "versions"
    for run_folder in root.iterdir() if root.is_dir() else ():
        if run_folder.name != run and run_folder.is_dir():
            VersionFolders(run_folder, base, layout).drop()
    return VersionFolders(root / run, base, layout)
