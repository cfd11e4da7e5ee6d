"""The learner's fold as it is kept beside a checkpoint: the buffer's state, and where every producer's chain stood.

Everything in it follows from the log up to one position. Settings are kept as plain values and validated again.
"""

from typing import Any

import msgspec
from pydantic import BaseModel

from hindcast.core.rl.algorithm import BUILT_IN
from hindcast.events.log.hash_chain import ChainChecker, ChainLink, RollingDigest
from hindcast.learner.buffer.state import BufferState
from hindcast.storage.snapshots import SnapshotKind

RULES = (
    "hindcast.learner.buffer.replay_buffer",
    "hindcast.learner.buffer.batches",
    "hindcast.learner.buffer.group_completion",
    "hindcast.learner.buffer.success_replay",
    "hindcast.learner.planners",
    "hindcast.learner.planners.base",
    "hindcast.learner.planners.cloning",
    "hindcast.learner.planners.groups",
    "hindcast.learner.buffer.relabels",
    "hindcast.core.rl.hindsight_weights",
    "hindcast.learner.planners.phases",
    "hindcast.learner.buffer.phases",
    "hindcast.learner.planners.reward_model",
    "hindcast.learner.auxiliary.reward_model_examples",
    "hindcast.learner.planners.relabeler",
    "hindcast.learner.auxiliary.relabeler_examples",
    *(f"hindcast.learner.algorithms.{name}" for name in ("base", "steps", *sorted(BUILT_IN))),
    "hindcast.core.rl.algorithm",
    "hindcast.core.rl.importance_weights",
    "hindcast.core.rl.loss_normalization",
    "hindcast.core.rl.values",
    "hindcast.learner.digests",
    "hindcast.learner.buffer.verdicts",
    "hindcast.learner.buffer.state",
    "hindcast.learner.buffer.records",
    "hindcast.core.rl.advantages",
    "hindcast.core.settings.changes",
    "hindcast.core.domain.arrays",
    "hindcast.core.domain.evidence",
    "hindcast.core.rl.held_out",
    "hindcast.core.ids",
    "hindcast.core.rl.replay_filter",
    "hindcast.core.seeds",
    "hindcast.core.rl.staleness",
    "hindcast.core.rl.combined_state",
    "hindcast.events.log.hash_chain",
    "hindcast.events.catalogue.verdict",
    "hindcast.events.upcasters",
)
"""Modules whose code decides what the state is."""


class FoldedLog(msgspec.Struct, frozen=True):
    """The log folded up to `state.position`."""

    state: BufferState
    links: dict[str, ChainLink]
    """Of all hash chains, by incarnation."""

    def chains(self) -> ChainChecker:
        """To check what follows with."""
        return ChainChecker(after=self.state.position, links=self.links)


def _to_plain(value: Any) -> Any:
    if isinstance(value, RollingDigest):
        return value.value
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"a snapshot cannot hold a {type(value).__name__}")


def _from_plain(kind: type, value: Any) -> Any:
    if kind is RollingDigest:
        return RollingDigest(value)
    if issubclass(kind, BaseModel):
        return kind.model_validate(value)
    raise TypeError(f"a snapshot cannot hold a {kind.__name__}")


LEARNER = SnapshotKind("learner", FoldedLog, rules=RULES, to_plain=_to_plain, from_plain=_from_plain)
