"""Makes the learner's model and prints what that took: `loading_process.py POLICY BLOBS BASE SETTINGS`.

`BASE`: the base weights as `sha256:size`; `SETTINGS`: `learner` as JSON. With more than one process torchrun starts it.
"""

import json
import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path

from hindcast.core.models.policy import state_digest
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.envelope import BlobRef
from hindcast.learner.distributed.ranks import Ranks
from hindcast.learner.distributed.rendezvous import found_store, join_group, place_in
from hindcast.learner.numerics import configure
from hindcast.learner.policy_models import Policies
from hindcast.storage.blobs.store import BlobStore


def peak_bytes() -> int:
    """Most memory this process has held since `forget_peak`."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def forget_peak() -> int:
    """Begin to measure the peak here; returns what is held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


if __name__ == "__main__":
    _, policy, blobs, base, written = sys.argv
    digest, size = base.split(":")
    settings = LearnerSettings.model_validate_json(written)
    configure(1)
    with ExitStack() as stack:
        ranks, place = Ranks(), place_in(os.environ)
        if place is not None:
            _, ranks = stack.enter_context(join_group(place, found_store(place), settings))
        policies = Policies(
            Path(policy),
            BlobRef(digest, int(size)),
            blobs=BlobStore(Path(blobs)),
            settings=settings,
            ranks=ranks,
        )
        import peft  # noqa: F401 - only modules that are loaded later would count

        import hindcast.core.models.adapter  # noqa: F401

        before = forget_peak()
        model = policies.trained()
        taken = peak_bytes() - before
        # in one write, because the ranks share the output, and torchrun's workers do not buffer it
        print(json.dumps({"bytes": taken, "digest": state_digest(model)}) + "\n", end="")
