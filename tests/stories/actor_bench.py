"""An actor with an engine, a world and blobs of the test's own, on a log in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from fakes.virtual_time import clock_ns, clock_s
from hindcast.actors.engines.base import Constraint, Generation
from hindcast.actors.environments.base import ResetResult, StepOutcome, WindowImage
from hindcast.actors.episodes.actor import run_actor
from hindcast.core.domain.action import Action, ParseFailure
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Node, Observation, Page
from hindcast.core.domain.sampling import Sampling
from hindcast.core.domain.task import Task
from hindcast.core.ids import digest_hex
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    EpisodeRequested,
)
from hindcast.events.envelope import BlobRef, Fact, Recorded
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import read
from simulation.links import MemoryBlobs
from simulation.stand_ins import LetterTokenizer
from stories.curriculum_story import SOURCES, settings_of

TASK = SOURCES["shop"].task("buy", 3)


EXIT = 'exit(message="done")'


class Engine:
    """Gives its answers in turn; `before` is awaited first."""

    def __init__(self, *answers: str) -> None:
        self.version = 0
        self.tokenizer = LetterTokenizer()
        self.answers = list(answers) or [EXIT]
        self.asked: list[tuple[list[int], Sampling]] = []
        self.adopted: list[int] = []
        self.before: Callable[[], Awaitable[None]] | None = None

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, constraint: Constraint | None = None
    ) -> Generation:
        self.asked.append((list(prompt_ids), sampling))
        if self.before is not None:
            await self.before()
        answer = self.answers[(len(self.asked) - 1) % len(self.answers)]
        ids = [*(ord(letter) for letter in answer), 0]
        return Generation(
            token_ids=ids,
            logprobs=[-0.125 * index for index in range(len(ids))],
            versions=[self.version] * len(ids),
            finish="stop",
        )

    async def adopt(self, version: int, weights: Path) -> None:
        await asyncio.sleep(3)
        self.adopted.append(version)
        self.version = version

    async def close(self) -> None:
        return None


class Blobs(MemoryBlobs):
    """Without files: the engine of these tests opens none."""

    def __init__(self) -> None:
        super().__init__(Path())

    def path(self, ref: BlobRef) -> Path:
        self.get(ref)
        return Path(ref.sha256)


class World:
    """A shop whose page changes with every action."""

    title = "Shop"

    def __init__(self, trouble: dict[str, Callable[[], Awaitable[None]]], done_after: int) -> None:
        self._trouble = trouble
        self._done_after = done_after
        self.actions: list[Action | ParseFailure] = []
        self.closed = False

    async def _maybe(self, when: str) -> None:
        if when in self._trouble:
            await self._trouble[when]()

    def _observation(self) -> Observation:
        text = f"Buy {min(len(self.actions), 1)}"
        nodes = (Node(kind="button", tag="button", text=text, id=1),)
        page = Page(url="http://shop/", title=self.title, nodes=nodes, ordinal=len(self.actions))
        if len(self.actions) > 1:
            page = Page(url="http://shop/", title=self.title, nodes=nodes, ordinal=1)
        return Observation(page=page, digest=digest_hex(text.encode()))

    async def reset(self, task: Task) -> ResetResult:
        await self._maybe("reset")
        self.actions.clear()
        return ResetResult(instruction="Buy it", observation=self._observation())

    async def step(self, action: Action | ParseFailure) -> StepOutcome:
        self.actions.append(action)
        await self._maybe("step")
        failed = isinstance(action, ParseFailure)
        return StepOutcome(
            result="parse_failure" if failed else "ok",
            detail=action.reason if isinstance(action, ParseFailure) else "",
            observation=self._observation(),
            done=len(self.actions) >= self._done_after,
            act_ms=2.0,
            observe_ms=1.0,
        )

    async def picture(self) -> WindowImage:
        await self._maybe("picture")
        return WindowImage(image=f"picture {len(self.actions)}".encode(), width=640, height=512, scale=0.5)

    async def finish(self, answer: str | None) -> Evidence:
        await self._maybe("finish")
        return Evidence(answer=answer, final_url="http://shop/", probes={"actions": len(self.actions)})

    async def close(self) -> None:
        await self._maybe("close")
        self.closed = True


class Bench:
    """One actor on a log in memory, in virtual time."""

    def __init__(self, *answers: str, done_after: int = 99, **actors: Any) -> None:
        self.settings: Settings = settings_of(
            run={"seed": 11},
            actors={"contexts": 2, "generate_timeout_s": 10, "episode_timeout_s": 40, **actors},
        )
        self.log = MemoryLog("r", clock=clock_s)
        self.engine = Engine(*answers)
        self.blobs = Blobs()
        self.worlds: list[World] = []
        self.trouble: dict[str, Callable[[], Awaitable[None]]] = {}
        self.done_after = done_after
        self.demonstrators: dict[tuple[str, str], Any] = {}
        self.stop = asyncio.Event()

    async def open_world(self, site: object) -> World:
        if "open" in self.trouble:
            await self.trouble["open"]()
        self.worlds.append(World(self.trouble, self.done_after))
        return self.worlds[-1]

    def publisher(self, name: str) -> Publisher:
        return Publisher(self.log, producer=name, code_rev="", settings=self.settings.log, clock_ns=clock_ns)

    async def tell(self, *facts: Fact, by: str = "story") -> None:
        async with self.publisher(by) as publisher:
            for fact in facts:
                await publisher.decide(fact, entity=getattr(fact, "episode", "e"))

    async def act(self, *, for_s: float = 30, queue: str = "actors") -> None:
        """Run the actor for a while, then tell it to stop."""
        self.stop = asyncio.Event()
        async with self.publisher("actor.1") as publisher, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run(publisher, queue))
            await asyncio.sleep(for_s)
            self.stop.set()

    async def _run(self, publisher: Publisher, queue: str) -> None:
        await run_actor(
            name="actor.1",
            log=self.log,
            publisher=publisher,
            queue=await self.log.open_queue(queue, family="request"),
            engine=self.engine,
            host=self,  # type: ignore[arg-type]
            sites={"shop": "shop"},  # type: ignore[dict-item]
            blobs=self.blobs,  # type: ignore[arg-type]
            settings=self.settings,
            stop=self.stop,
            demonstrators=self.demonstrators,
        )

    async def history(self) -> list[Recorded]:
        return [recorded async for recorded in read(self.log)]

    async def facts(self, *kinds: type[Fact]) -> list[Any]:
        return [recorded.fact for recorded in await self.history() if isinstance(recorded.fact, kinds)]


def requested(episode: str = "ep_a", **changes: Any) -> EpisodeRequested:
    return EpisodeRequested(
        **{
            "episode": episode,
            "task": TASK,
            "group": "g",
            "member": 0,
            "group_size": 1,
            "attempt": 0,
            "origin": "online",
            "temperature": 0.8,
            "phase": 0,
            "min_version": 0,
            "lease_s": 60.0,
            **changes,
        }
    )
