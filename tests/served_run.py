"""A training run on a real vLLM server, in tests: what it is started with, and what its log says.

The policy is random; a scaffold of the tests' own leaves it clicks and waiting, so that it wins about every other episode on
two buttons: groups differ, and M-GRPO has something to learn from. The run has no goal of its own: a test drains it once it
has seen what it waits for, however long that takes.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from system import Home

from app.bench.untied import write_untied
from app.runs import open_run
from core.arrays import unpack_ids
from events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeRequested,
    PolicyServerTroubled,
    StepTaken,
    WeightsPublished,
)
from events.envelope import Fact
from events.reader import read

RUN = "served"
PATIENCE_S = 1200
AGREES = 1e-6
"""KL per token between sampler and learner, at equal weights in float32."""
STATES = """
environment = "miniwob"

[[state]]
name = "buttons"
path = ".*"
instruction = "Click on what the task names."
actions = [{ action = "Click" }, { action = "Wait" }]
"""
SETTINGS = {
    "policy.engine": "vllm",
    "curriculum.environments": '["miniwob"]',
    "curriculum.families": '["miniwob/click-test-2"]',
    "curriculum.group_size": "4",
    "curriculum.max_running": "8",
    "curriculum.task_pool": "4",
    "actors.max_answer_tokens": "120",
    "actors.contexts": "4",
    "scaffold.stages": "1",
    "learner.group_batch": "1",
    "learner.minibatches": "1",
    "learner.epochs": "1",
    "learner.rehearsal_episodes": "0",
    # a server takes its time to start again, and nothing gives up meanwhile
    "actors.generate_timeout_s": "900",
    "actors.episode_timeout_s": "1000",
    "curriculum.lease_s": "1200",
}


def arguments(folder: Path, **changes: str) -> list[str]:
    """Of `hindcast start`, for a small run whose policy and scaffold are written to a folder."""
    base = write_untied(folder / "policy", seed=0, width=64, inner=128, layers=2, heads=2, spread=0.05)
    states = folder / "buttons.toml"
    states.write_text(STATES)
    wanted = {**SETTINGS, "policy.base": str(base), "scaffold.states": str(states), **changes}
    chosen = [part for key, value in wanted.items() for part in ("--set", f"{key}={value}")]
    return ["--recipe", "mgrpo", "--run", RUN, *chosen]


async def _facts(home: Home) -> list[Fact]:
    async with open_run(RUN, home=home.folder).connect_log() as log:
        return [recorded.fact async for recorded in read(log)]


def facts(home: Home) -> list[Fact]:
    return asyncio.run(_facts(home))


def sampled_from(seen: Sequence[Fact]) -> set[int]:
    """Versions that tokens were sampled from."""
    steps = [fact for fact in seen if isinstance(fact, StepTaken)]
    return {version for step in steps for version in unpack_ids(step.versions).tolist()}


def published(seen: Sequence[Fact]) -> int:
    """The newest published version."""
    return max((fact.version for fact in seen if isinstance(fact, WeightsPublished)), default=0)


def requested(seen: Sequence[Fact]) -> set[str]:
    return {fact.episode for fact in seen if isinstance(fact, EpisodeRequested)}


def ends(seen: Sequence[Fact]) -> Counter[str]:
    """How often each episode ended."""
    return Counter(
        fact.episode for fact in seen if isinstance(fact, EpisodeEnded | EpisodeAbandoned | EpisodeCancelled)
    )


def troubles(seen: Sequence[Fact]) -> set[str]:
    return {fact.trouble for fact in seen if isinstance(fact, PolicyServerTroubled)}


def drain(home: Home) -> None:
    """Ask for no more episodes, and wait for the end of those there are."""
    home.json("ctl", "drain", "--run", RUN, timeout_s=PATIENCE_S)
    home.wait_for(
        "the end of all episodes",
        lambda: set(ends(seen := facts(home))) == requested(seen),
        timeout_s=PATIENCE_S,
    )
