"""`hindcast verify --ranks`: as many processes as the run's learner had compute each update together. Importing this loads torch.

    leader (this process): reads the log, compares ──orders──> followers: compute their part (`learner.distributed.leader`)

The followers read blobs and store none.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from hindcast.app.runs.sources import open_source
from hindcast.app.system.learner_ranks import companions, start_rank
from hindcast.core.models.folders import policy_folder
from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.distributed.leader import follow
from hindcast.learner.distributed.rendezvous import found_store, join_group, place_in
from hindcast.learner.numerics import configure
from hindcast.learner.training import MakeTrainer
from hindcast.storage.checkpoints import DigestOnlySink

FOLLOWER = "from hindcast.app.replay.recomputing_ranks import main; main()"


@contextmanager
def recomputing_ranks(settings: LearnerSettings, run: str) -> Iterator[MakeTrainer]:
    """Yield what makes the leader's trainer in this process; the others end with the block.

    `settings`: the run's. `run`: its name as `open_source` takes it.

    Raises:
        SettingsError: this machine lacks the GPUs that the settings demand.
        RankEnded: another process ended within the block.
    """
    start = partial(start_rank, ("-c", FOLLOWER, run))
    with companions(settings, None, start) as (make_trainer, others):
        try:
            yield make_trainer
        except RuntimeError:  # raised by a collective that has lost a process
            others.require_all()
            raise


def main() -> None:
    """Compute as another rank until the leader ends, which ends this process, too."""
    source, place = open_source(sys.argv[1]), place_in(os.environ)
    assert place is not None, "started by a leader"
    settings = source.settings.learner
    configure(settings.threads)
    with join_group(place, found_store(place), settings) as (orders, ranks):
        folder = policy_folder(source.settings.policy.base)
        follow(orders, folder, blobs=source.blobs, ranks=ranks, sink=DigestOnlySink())
