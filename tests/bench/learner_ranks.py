"""What adding in rank order costs: ranks that train one batch with `learner.exact_ranks`, and without it, in turns.

Every rank is a process of its own, and trains both ways in it, so that both share what the machine does meanwhile. The bare
collectives of gloo or NCCL are the peer. Time is that of the first rank; processor time is summed over all ranks.
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from bench.comparison import Comparison, summarise
from bench.engine_calls import describe, recorded_episodes
from bench.learner import Ours, made_up_batch, prepare
from bench.learner_ways import Way
from hindcast.core.scratch import scratch_folder
from hindcast.learner.batch_plan import minibatches_of
from hindcast.learner.distributed.ranks import DistributedRank
from hindcast.learner.distributed.rendezvous import LOOPBACK, Place, join_group, open_store
from hindcast.learner.update import Clocks

WALL = "seconds per update (less is better)"
CPU = "CPU seconds per update, all ranks (less is better)"


class Turn(NamedTuple):
    """Mean time of an update, both ways."""

    exact: Clocks
    bare: Clocks


def train_both_ways(rank: int, port: int, way: Way, repeats: int) -> list[Turn]:
    """Train as one of `learner.processes` ranks; the first batch of each way is not timed. For a process of its own."""
    settings = way.settings
    prepare(settings.threads)
    work = made_up_batch(way.policy, recorded_episodes(way.episodes), settings)
    store = TCPStore(LOOPBACK, port, settings.processes, is_master=False)
    with (
        scratch_folder() as scratch,
        join_group(Place(rank, rank, settings.processes), store, settings) as (_, ranks),
    ):
        exact, bare = (
            Ours(way.policy, work, blobs=scratch, ranks=one)
            for one in (DistributedRank(exact=True), DistributedRank())
        )
        updates = len(minibatches_of(work.plan))

        def timed(ours: Ours) -> Clocks:
            ranks.unable(able=True)  # a barrier: all begin together
            began = Clocks.read()
            ours.train()
            taken = Clocks.read().minus(began)
            return Clocks(taken.wall_s / updates, taken.cpu_s / updates)

        timed(exact), timed(bare)
        turns = []
        for number in range(repeats):
            first, second = (exact, bare) if number % 2 == 0 else (bare, exact)
            found = {first: timed(first), second: timed(second)}
            turns.append(Turn(found[exact], found[bare]))
        return turns


def compare_sums(way: Way, *, repeats: int) -> list[Comparison]:
    """Time and processor time of an update with sums in rank order, compared with those of the bare collectives."""
    size = way.settings.processes
    store = open_store(size)
    with ProcessPoolExecutor(size, mp_context=get_context("spawn")) as pool:
        tasks = [pool.submit(train_both_ways, rank, store.port, way, repeats) for rank in range(size)]
        ranks = [task.result() for task in tasks]
    walls = [(turn.exact.wall_s, turn.bare.wall_s) for turn in ranks[0]]
    cpus = [
        (sum(turn.exact.cpu_s for turn in turns), sum(turn.bare.cpu_s for turn in turns))
        for turns in zip(*ranks, strict=True)
    ]
    detail = f"{describe(recorded_episodes(way.episodes))}; {size} ranks, {way.settings.tokens_per_forward} tokens to a forward pass"
    return [
        summarise(pairs, figure=figure, unit="s", peer_name="bare collectives", goal=None, detail=detail)
        for figure, pairs in ((WALL, walls), (CPU, cpus))
    ]
