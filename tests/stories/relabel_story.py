"""An episode in the store to relabel, and a relabeler process in virtual time."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from fakes.virtual_time import clock_s, run_virtually
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.actors.relabelers.base import Relabeler
from hindcast.actors.relabelers.role import run_relabeler
from hindcast.actors.relabelers.rules import RuleRelabeler
from hindcast.core.settings.schema import SiteSettings
from hindcast.events.envelope import Fact
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.reader import read
from hindcast.storage.blobs.store import BlobStore
from stories.curriculum_story import settings_of
from stories.judge_story import publisher
from stories.store_visitor import running_store
from stories.store_walk import TOKENIZER, Visit

SITES = SiteSettings(products=60)
TASKS = StoreTasks(SITES)
RULES = RuleRelabeler(max_goals=8)


@pytest.fixture(scope="module")
def visit() -> Iterator[Visit]:
    """Seven steps that add two products, and the answer; step 3 puts the first into the cart."""
    with running_store(SITES) as base_url:
        visit = Visit(base_url, TASKS.task("add_several", 1))
        visit.demonstrate()
        yield visit


def relabel_all(
    facts: Sequence[Fact],
    blobs: BlobStore,
    *,
    relabeler: Relabeler = RULES,
    starts: int = 1,
    before: int = 0,
    killed: int = 0,
    settings: dict[str, dict[str, object]] | None = None,
) -> list[Fact]:
    """Tell the facts, the first `before` of them before the relabeler starts, and give back what it said.

    `settings`: sections of the run's. `killed`: so often one that took the episode's end died over it before.
    """

    async def main() -> list[Fact]:
        log = MemoryLog("r", clock=clock_s)
        given = settings_of(**settings or {})
        async with publisher(log, "story") as story:
            for fact in facts[:before]:
                await story.publish(fact, entity=getattr(fact, "episode", "e"))
            await story.commit()
            for number in range(starts):
                stop = asyncio.Event()
                queue = await log.open_queue(f"relabels {number}", family="episode_end")
                if killed:
                    for fact in facts:
                        await story.publish(fact, entity=getattr(fact, "episode", "e"))
                    await story.commit()
                for _ in range(killed):
                    assert await queue.fetch(1, wait_s=120)
                async with publisher(log, f"relabeler.{number}") as mine, asyncio.TaskGroup() as tasks:
                    tasks.create_task(
                        run_relabeler(
                            log=log,
                            publisher=mine,
                            queue=queue,
                            blobs=blobs,
                            settings=given,
                            relabeler=relabeler,
                            tokenizer=TOKENIZER,
                            stop=stop,
                        )
                    )
                    for fact in facts[before:] if number == 0 and not killed else ():
                        await story.publish(fact, entity=getattr(fact, "episode", "e"))
                    await asyncio.sleep(600)
                    stop.set()
        return [recorded.fact async for recorded in read(log, after=len(facts))]

    return run_virtually(main())
