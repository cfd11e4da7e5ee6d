"""Learners of several data-parallel processes: this one leads, the others follow in processes of their own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.log.publisher import Publisher
from hindcast.learner.distributed.leader import MakeLeading
from hindcast.learner.distributed.rendezvous import Place, join_group, open_store
from hindcast.learner.loop import LearnerReport, run_learner
from stories.training_story import QUICK, Bench, folder_of

FOLLOWER = Path(__file__).parents[1] / "processes" / "following_process.py"


@contextmanager
def leading(
    made: Bench, settings: LearnerSettings, *, followers_environment: Mapping[str, str] | None = None
) -> Iterator[MakeLeading]:
    """This process as the leader of `learner.processes`, the others at work on the bench's blobs and policy."""
    size = settings.processes
    store = open_store(size)
    command = [sys.executable, str(FOLLOWER), str(folder_of(made.blobs)), str(made.policy)]
    followers = [
        subprocess.Popen(
            [*command, settings.model_dump_json()],
            env=os.environ
            | Place(rank, rank, size).environment(store.port)
            | {"PYTHONPATH": os.pathsep.join(sys.path)}
            | (followers_environment or {}),
        )
        for rank in range(1, size)
    ]
    try:
        with join_group(Place(0, 0, size), store, settings) as (orders, ranks):
            yield MakeLeading(orders, ranks)
            orders.end()
            assert [follower.wait(120) for follower in followers] == [0] * (size - 1)
    finally:
        for follower in followers:
            follower.kill()
            follower.wait()


async def learn_with(make: MakeLeading, made: Bench, *, until: int) -> LearnerReport:
    """Run the leader's learner on the bench's log."""
    async with Publisher(made.log, producer="learner.1", code_rev="test", settings=QUICK) as publisher:
        return await run_learner(
            made.log,
            made.blobs,
            publisher=publisher,
            policy=made.policy,
            until_updates=until,
            make_trainer=make,
        )


def share_blobs(folder: Path, blobs: Path) -> None:
    """One folder of blobs for both: the process that follows knows one, as in a home."""
    blobs.mkdir(exist_ok=True)
    folder.mkdir(parents=True)
    (folder / "blobs").symlink_to(blobs)
