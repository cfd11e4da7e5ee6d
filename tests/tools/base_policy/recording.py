"""Demonstrations for the base policy: recorded in a real browser from the scripted demonstrators, then trained on.

Only episodes that their evaluator calls a success are kept.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import miniwob
import structlog

from hindcast.actors.environments.base import TaskSource
from hindcast.actors.environments.browser import BrowserHost
from hindcast.actors.environments.miniwob.families import USUAL as MINIWOB_FAMILIES
from hindcast.actors.environments.store.families import FAMILIES as STORE_FAMILIES
from hindcast.actors.environments.store.tasks import vocabulary_words
from hindcast.app.demonstrations.scripted import FIRST_SEED, demonstrate
from hindcast.app.system.sites import sites_running, task_sources
from hindcast.core.domain.task import Task
from hindcast.core.errors import EnvironmentFailed
from hindcast.core.settings.schema import Settings
from tools.base_policy.building import PHASES, build
from tools.base_policy.mix import CLONED, GLIMPSED
from tools.base_policy.samples import append_samples

DEMONSTRATIONS = "demonstrations.jsonl"
WORDS = "words.txt"
PAGES_ONLY_EPISODES = 8
"""Episodes recorded of a family that is not imitated: its pages are read, its actions are not learned."""
MINIWOB_WORDS = ("lorem_words", "FIFTY_NAMES")
"""Lists of MiniWoB++'s own script that its pages draw their texts from."""

log = structlog.get_logger()

_WORD = re.compile(r"""["']([A-Za-z]+),?["']""")


async def record_all(folder: Path, *, settings: Settings) -> int:
    """Write demonstrations of the usual and glimpsed families, and the sites' words, into the folder; returns the steps."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WORDS).write_text("\n".join(site_words()) + "\n")
    (folder / DEMONSTRATIONS).unlink(missing_ok=True)
    names = [f"store/{name}" for name in STORE_FAMILIES] + [f"miniwob/{name}" for name in MINIWOB_FAMILIES]
    wanted = dict.fromkeys(names, PAGES_ONLY_EPISODES) | GLIMPSED | CLONED
    return await record(wanted, folder / DEMONSTRATIONS, settings=settings)


async def record(families: dict[str, int], path: Path, *, settings: Settings, first: int = FIRST_SEED) -> int:
    """Append successful episodes to `path`, for each `environment/family` as many as asked; returns the steps written.

    A family whose demonstrator fails twice as often as asked ends early, with a warning.
    """
    tasks = _tasks(families, task_sources(settings), first)
    steps = 0
    lock = asyncio.Lock()
    async with sites_running(settings) as sites, BrowserHost(settings.actors) as host:

        async def work() -> None:
            nonlocal steps
            for task, wanted in tasks:
                if wanted.left <= 0:
                    continue
                wanted.left -= 1
                world = await host.open_world(sites[task.environment])
                try:
                    samples = await demonstrate(world, task)
                except EnvironmentFailed as error:
                    log.warning("demonstration broke off", task=task.family, seed=task.seed, error=str(error))
                    samples = ()
                finally:
                    await world.close()
                if not samples:
                    wanted.left += 1
                async with lock:
                    steps += await asyncio.to_thread(append_samples, path, samples)

        async with asyncio.TaskGroup() as group:
            for _ in range(settings.actors.contexts):
                group.create_task(work())
    return steps


def train_base(folder: Path, *, minutes: float, seed: int) -> None:
    """Train in the folder that `record_all` has filled. Takes `minutes` of two cores."""
    scale = minutes / sum(phase.minutes for phase in PHASES)
    build(
        folder,
        demonstrations=folder / DEMONSTRATIONS,
        words=(folder / WORDS).read_text().split(),
        seed=seed,
        phases=[phase._replace(minutes=phase.minutes * scale) for phase in PHASES],
    )


def site_words() -> tuple[str, ...]:
    """What the sites' pages are made of, each word once, in order of the alphabet."""
    script = Path(miniwob.__file__).parent / "html" / "common" / "ui_utils.js"
    source = script.read_text(encoding="utf-8", errors="replace")
    found = set(vocabulary_words())
    for name in MINIWOB_WORDS:
        match = re.search(rf"ui_utils\.{name} = \[(.*?)\];", source, flags=re.DOTALL)
        found.update(_WORD.findall(match.group(1)) if match else ())
    return tuple(sorted(found))


class _Wanted:
    """Episodes of a family that are still to be recorded."""

    def __init__(self, left: int) -> None:
        self.left = left


def _tasks(
    families: dict[str, int], sources: dict[str, TaskSource], first: int
) -> Iterator[tuple[Task, _Wanted]]:
    """Tasks of all families in turn, each family's seeds upwards, at most twice as many as asked."""
    wanted = {name: _Wanted(number) for name, number in families.items()}
    for seed in count(first):
        open_families: Sequence[str] = [name for name in families if seed - first < 2 * families[name]]
        if not open_families:
            return
        for name in open_families:
            environment, _, family = name.partition("/")
            if wanted[name].left > 0:
                yield sources[environment].task(family, seed), wanted[name]
