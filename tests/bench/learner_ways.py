"""The learner under other settings beside the learner as it was: how fast it trains, and in how much memory.

Each measurement is a process of its own, since what an allocator keeps of one would count as the next one's. Memory is the
most that the process held while it trained, above what it held once weights and batch were ready: activations, gradient,
AdamW's moments, and what they leave unused in between.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.comparison import Comparison, summarise
from bench.engine_calls import describe, recorded_episodes
from bench.learner import Ours, made_up_batch, prepare
from bench.memory import MIB
from bench.peaks import forget_peak, peak_mib
from hindcast.core.scratch import scratch_folder
from hindcast.core.settings.schema import LearnerSettings

RATE = "update, from plan to fact"
MEMORY = "memory beside the weights while it trains (less is better)"


class Way(NamedTuple):
    """What is trained, and how."""

    policy: Path
    settings: LearnerSettings
    episodes: int
    """Recorded ones, in the batch."""


class Trained(NamedTuple):
    """What came of it."""

    rate: float
    """Tokens per second of processor time."""
    peak_mib: float
    """See the module."""
    tokens: int
    """Of the batch."""


def train(way: Way) -> Trained:
    """Two batches, of which the second is timed: the first one makes AdamW's moments. For a process of its own."""
    prepare(way.settings.threads)
    work = made_up_batch(way.policy, recorded_episodes(way.episodes), way.settings)
    with scratch_folder() as scratch:
        ours = Ours(way.policy, work, blobs=scratch)
        forget_peak()
        before = psutil.Process().memory_info().rss / MIB
        ours.train()
        return Trained(ours.train(), peak_mib() - before, work.tokens)


async def compare_ways(
    changed: Way, standing: Way, *, words: str, repeats: int, said: Callable[[str], None]
) -> list[Comparison]:
    """Both in turn, who goes first alternating: rate and memory. `words`: what is changed."""
    pairs: list[tuple[Trained, Trained]] = []
    for number in range(repeats):
        ways = (changed, standing) if number % 2 == 0 else (standing, changed)
        found = [await _apart(way) for way in ways]
        first, second = found if number % 2 == 0 else found[::-1]
        pairs.append((first, second))
        said(
            f"{words}: {first.rate:.4g} tokens/CPU s in {first.peak_mib:.0f} MiB, without "
            f"{second.rate:.4g} in {second.peak_mib:.0f} MiB ({number + 1}/{repeats})"
        )
    settings = changed.settings
    detail = (
        f"{describe(recorded_episodes(changed.episodes))}; {pairs[0][0].tokens} tokens in 2 mini-batches, "
        f"{settings.tokens_per_forward} to a forward pass; {words}"
    )
    return [
        summarise(
            [(getattr(one, kind), getattr(other, kind)) for one, other in pairs],
            figure=figure,
            unit=unit,
            peer_name="without",
            goal=None,
            detail=detail if figure == RATE else "",
        )
        for figure, kind, unit in ((RATE, "rate", "tokens/CPU s"), (MEMORY, "peak_mib", "MiB"))
    ]


async def _apart(way: Way) -> Trained:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, train, way)
