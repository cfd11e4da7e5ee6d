"""Policy servers in tests: two stand-ins with an engine that asks them, and a keeper that gives them weights."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from fakes.policy_stand_in import PolicyStandIn, standing_in
from hindcast.actors.engines.base import preferred, routed_by
from hindcast.actors.engines.vllm.engine import VllmEngine
from hindcast.actors.engines.vllm.weights import ServedWeights, WholeWeights, label_of
from hindcast.actors.policy_servers.role import TargetWeights, WeightSynchronizer, folders_for
from hindcast.actors.policy_servers.weight_delivery import giving_for
from hindcast.core.domain.sampling import Sampling
from hindcast.core.settings.schema import LogSettings, Settings
from hindcast.core.settings.vllm import VllmSettings
from hindcast.events.catalogue import PolicyServerTroubled, WeightsPublished
from hindcast.events.codec import decode
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from hindcast.storage.blobs.store import BlobStore

RUN = "run-1.0123456789abcdef"
SAMPLING = Sampling(temperature=1.0, max_tokens=2, seed=0)


class Asking:
    """Two servers with version 0, and an engine that asks them."""

    def __init__(self, servers: list[PolicyStandIn], engine: VllmEngine) -> None:
        self.servers = servers
        self.engine = engine

    def key_of(self, server: PolicyStandIn) -> str:
        """An episode that belongs to this server."""
        addresses = [one.address for one in self.servers]
        return next(
            key for number in range(1000) if preferred(key := f"ep_{number}", addresses)[0] == server.address
        )

    async def ask(self, key: str, prompt: list[int]) -> list[int]:
        """The versions of an answer."""
        with routed_by(key):
            answer = await self.engine.generate(prompt, SAMPLING)
        return answer.versions


@asynccontextmanager
async def asking(
    policy: Path,
    told: list[PolicyServerTroubled],
    *,
    straggler_timeout_s: float,
    weights: ServedWeights | None = None,
) -> AsyncIterator[Asking]:
    """`weights`: what the servers say of versions; None: whole weights of the run `RUN`."""
    weights = weights or WholeWeights(RUN)

    async def tell(fact: PolicyServerTroubled) -> None:
        told.append(fact)

    async with standing_in() as one, standing_in() as other:
        servers = [one, other]
        for server in servers:
            server.label = label_of(weights.run, 0)
        engine = VllmEngine(
            policy,
            lambda: [server.address for server in servers],
            weights=weights,
            settings=VllmSettings(straggler_timeout_s=straggler_timeout_s, backoff_s=0.01),
            answer_timeout_s=60,
            tell=tell,
        )
        async with engine:
            yield Asking(servers, engine)


class Kept:
    """A keeper of servers, its log and its blobs."""

    def __init__(
        self, root: Path, publisher: Publisher, log: MemoryLog, *, lora_rank: int, transfer: str, tied: bool
    ) -> None:
        self.log = log
        self.publisher = publisher
        self.blobs = BlobStore(root / "blobs")
        base = root / "base"
        base.mkdir()
        (base / "config.json").write_text(json.dumps({"tie_word_embeddings": tied}))
        self.wanted = TargetWeights()
        settings = Settings.model_validate(
            {"vllm": {"backoff_s": 0.01, "transfer": transfer}, "learner": {"lora_rank": lora_rank}}
        )
        self.base = base
        self.keeper = WeightSynchronizer(
            publisher=publisher,
            blobs=self.blobs,
            folders=folders_for(settings, base, root, run=RUN),
            giving=giving_for(settings, base, run=RUN),
            settings=settings,
        )

    async def publish(self, version: int, content: bytes) -> None:
        fact = WeightsPublished(
            version=version, model="policy", weights=self.blobs.put(content), update=version
        )
        await self.publisher.publish(fact, entity=f"version_{version}")
        await self.publisher.commit()
        self.wanted.take([recorded async for recorded in read(self.log)])

    async def troubles(self) -> list[PolicyServerTroubled]:
        await self.publisher.commit()
        return [event.fact async for event in read(self.log) if isinstance(event.fact, PolicyServerTroubled)]

    async def next_trouble(self) -> PolicyServerTroubled:
        """The first there is, waited for."""
        async with asyncio.timeout(60), aclosing(self.log.tail(after=0)) as batches:
            async for batch in batches:
                for stored in batch:
                    event = decode(stored)
                    if event is not None and isinstance(event.fact, PolicyServerTroubled):
                        return event.fact
        raise AssertionError("a tail has no end")


@asynccontextmanager
async def kept(
    root: Path, *, lora_rank: int = 0, transfer: str = "files", tied: bool = False
) -> AsyncIterator[Kept]:
    log = MemoryLog("run-1")
    async with Publisher(
        log, producer="policy_server.1", code_rev="test", settings=LogSettings()
    ) as publisher:
        yield Kept(root, publisher, log, lora_rank=lora_rank, transfer=transfer, tied=tied)
