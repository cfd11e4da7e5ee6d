"""Which weights, checkpoints and snapshots are released. Pure; a release is an event first and a deletion after it."""

from math import ceil

import msgspec

from hindcast.core.settings.schema import LearnerSettings, StorageSettings
from hindcast.events.envelope import BlobRef
from hindcast.learner.buffer.snapshots import LEARNER
from hindcast.learner.buffer.state import BufferState

BYTES_PER_TURN = 400_000_000
"""Base weights for which digests and checkpoints are one update, or batch, further apart: 100 million parameters in float32, of
which both take 1.2 GB."""
MOST_BATCHES = 10
"""Batches between checkpoints at most, if the model's size decides: they are computed again after a crash."""
KEEP_BESIDE = 2
"""Versions kept of each auxiliary model: a process may still be loading the one before the newest."""
KEEP_SNAPSHOTS = 2
"""Snapshots kept of each projection: the newest, and the one before in case it cannot be read."""


class Release(msgspec.Struct, frozen=True):
    """A blob that is not needed any more."""

    blob: BlobRef
    reason: str


def releases(state: BufferState, settings: LearnerSettings) -> list[Release]:
    """Weights and checkpoints beyond those that the settings keep, and snapshots beyond `KEEP_SNAPSHOTS`, oldest first.

    Always kept: version 0, the version that RL started from and every KL reference, since batches are recomputed with them;
    the latest version, every `keep_weights_every`-th, the newest checkpoint, and every blob with the same content as a kept
    one. Of an auxiliary model, the two latest versions.
    """
    latest = sorted(state.weights)[-settings.keep_weights :]
    kept_versions = {
        version
        for version in state.weights
        if version in (0, state.cloned_version, *state.references, *latest)
        or version % settings.keep_weights_every == 0
    }
    kept_checkpoints = state.checkpoints[-settings.keep_checkpoints :]
    kept_digests = {state.weights[version].weights.sha256 for version in kept_versions}
    kept_digests |= {blob.sha256 for checkpoint in kept_checkpoints for blob in checkpoint.parts}
    kept_digests |= {
        snapshot.blob.sha256
        for snapshots in state.snapshots.values()
        for snapshot in snapshots[-KEEP_SNAPSHOTS:]
    }
    auxiliary_versions = {name: sorted(auxiliary.weights) for name, auxiliary in state.models.items()}
    for name, versions in auxiliary_versions.items():
        kept_digests |= {
            state.models[name].weights[version].weights.sha256 for version in versions[-KEEP_BESIDE:]
        }
    released: dict[str, Release] = {}
    for name, versions in auxiliary_versions.items():
        for version in versions[:-KEEP_BESIDE]:
            blob = state.models[name].weights[version].weights
            released.setdefault(
                blob.sha256, Release(blob, f"version {version} of the {name}: newer ones are kept")
            )
    for version in sorted(set(state.weights) - kept_versions):
        blob = state.weights[version].weights
        released.setdefault(blob.sha256, Release(blob, f"weights of version {version}: newer ones are kept"))
    for checkpoint in state.checkpoints[: -settings.keep_checkpoints]:
        for blob in checkpoint.parts:
            reason = f"checkpoint of update {checkpoint.update}: newer ones are kept"
            released.setdefault(blob.sha256, Release(blob, reason))
    for projection, snapshots in state.snapshots.items():
        for snapshot in snapshots[:-KEEP_SNAPSHOTS]:
            reason = f"snapshot of the {projection} at position {snapshot.position}: newer ones are kept"
            released.setdefault(snapshot.blob.sha256, Release(snapshot.blob, reason))
    return [release for sha256, release in released.items() if sha256 not in kept_digests]


def leftovers(state: BufferState) -> list[BlobRef]:
    """Released blobs that nothing refers to: deleted again at a start, in case a crash prevented it."""
    assert state.started is not None
    used_digests = {published.weights.sha256 for published in state.weights.values()}
    used_digests |= {
        published.weights.sha256
        for auxiliary in state.models.values()
        for published in auxiliary.weights.values()
    }
    used_digests |= {blob.sha256 for checkpoint in state.checkpoints for blob in checkpoint.parts} | {
        state.started.base_policy.sha256
    }
    used_digests |= {snapshot.blob.sha256 for snapshots in state.snapshots.values() for snapshot in snapshots}
    return [blob for sha256, blob in state.released.items() if sha256 not in used_digests]


def digest_interval(settings: LearnerSettings, base: BlobRef, *, whole: bool) -> int:
    """Updates between two digests of a model's state (`learner.digest_every`).

    `base`: the run's base weights. `whole`: whether all weights are trained, not an adapter.
    """
    return settings.digest_every or (_turns(base.size) if whole else 1)


def checkpoint_interval(settings: LearnerSettings, *, base_bytes: int) -> int:
    """Batches between two checkpoints (`learner.checkpoint_every`). `base_bytes`: size of the run's base weights."""
    by_size = 1 if settings.lora_rank else min(MOST_BATCHES, _turns(base_bytes))
    return settings.checkpoint_every or by_size


def _turns(base_bytes: int) -> int:
    return max(1, ceil(base_bytes / BYTES_PER_TURN))


def is_checkpoint_due(state: BufferState, settings: LearnerSettings) -> bool:
    """Whether the last finished batch requires a checkpoint that is not saved yet."""
    assert state.started is not None
    finished = state.batches if state.batch is None else state.batches - 1
    every = checkpoint_interval(settings, base_bytes=state.started.base_policy.size)
    return finished > 0 and finished % every == 0 and state.checkpointed < finished


def is_snapshot_due(state: BufferState, settings: StorageSettings) -> bool:
    """Whether to save a snapshot now: at a checkpoint that covers all training, with enough events since the last snapshot.

    A start from the snapshot then recomputes no update except those after a newer checkpoint.
    """
    if state.batch is not None or not state.checkpoints or state.checkpointed < state.batches:
        return False
    snapshots = state.snapshots.get(LEARNER.projection)
    return state.position - (snapshots[-1].position if snapshots else 0) >= settings.snapshot_events
