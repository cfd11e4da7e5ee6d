"""A process that trains with a leader: `python following_process.py BLOBS POLICY SETTINGS`, its place in its environment.

`SETTINGS`: the learner's, as JSON.
"""

import os
import sys
from pathlib import Path

from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.distributed.leader import follow
from hindcast.learner.distributed.rendezvous import found_store, join_group, place_in
from hindcast.learner.numerics import configure
from hindcast.storage.blobs.store import BlobStore

if __name__ == "__main__":
    configure(1)
    blobs, policy = map(Path, sys.argv[1:3])
    settings = LearnerSettings.model_validate_json(sys.argv[3])
    place = place_in(os.environ)
    assert place is not None
    with join_group(place, found_store(place), settings) as (orders, ranks):
        follow(orders, policy, blobs=BlobStore(blobs), ranks=ranks)
