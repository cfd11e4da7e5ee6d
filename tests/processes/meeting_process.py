"""One of two processes that torchrun starts, and starts again: `torchrun ... meeting_process.py FOLDER`.

The first time the second one ends as by `kill -9`, after they have met.
"""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.distributed.rendezvous import found_store, join_group, place_in

if __name__ == "__main__":
    place = place_in(os.environ)
    assert place is not None
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    with join_group(place, found_store(place), LearnerSettings()) as (orders, ranks):
        total = torch.tensor([1.0 + place.rank])
        dist.all_reduce(total)
        if first and place.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(total)  # the first time, with nobody
        (Path(sys.argv[1]) / str(place.rank)).write_text(str(total.item()))
