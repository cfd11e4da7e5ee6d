"""The learner's snapshot: the buffer's state and the end of every producer's hash chain, at one position.

All of it follows from the log up to that position. Settings are kept as plain values and validated again when loaded.
"""

from typing import Any

import msgspec
from pydantic import BaseModel

from hindcast.core.plugins import OWN, identify_plugin, own_modules
from hindcast.core.rl.algorithm import ALGORITHMS
from hindcast.core.settings.section import RECORDED
from hindcast.events.log.hash_chain import ChainChecker, ChainLink, RollingDigest
from hindcast.learner.buffer.state import BufferState
from hindcast.storage.snapshots import SnapshotKind

RULES = (
    "hindcast.learner.buffer.replay_buffer",
    "hindcast.learner.buffer.batches",
    "hindcast.learner.buffer.groups",
    "hindcast.learner.buffer.plannable",
    "hindcast.learner.buffer.withheld",
    "hindcast.learner.batch_plan",
    "hindcast.learner.planners.base",
    "hindcast.learner.planners.cloning",
    "hindcast.learner.planners.groups",
    "hindcast.learner.planners.kept",
    "hindcast.learner.buffer.relabels",
    "hindcast.core.rl.advantages",
    "hindcast.learner.planners.phases",
    "hindcast.learner.planners.auxiliary",
    "hindcast.learner.buffer.training_sets",
    *own_modules(ALGORITHMS),
    "hindcast.learner.algorithms.base",
    "hindcast.learner.algorithms.steps",
    "hindcast.learner.algorithms.group_loss",
    "hindcast.core.plugins",
    "hindcast.core.rl.algorithm",
    "hindcast.core.rl.algorithm_options",
    "hindcast.core.rl.importance_weights",
    "hindcast.core.rl.loss_normalization",
    "hindcast.core.rl.values",
    "hindcast.learner.buffer.state",
    "hindcast.learner.buffer.records",
    "hindcast.core.settings.changes",
    "hindcast.core.settings.old_names",
    "hindcast.core.settings.section",
    "hindcast.core.domain.arrays",
    "hindcast.core.domain.evidence",
    "hindcast.core.rl.held_out",
    "hindcast.core.ids",
    "hindcast.core.seeds",
    "hindcast.core.structs",
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
    algorithm_source: str = ""
    """Of the run's algorithm where another package brings it: its code decides what a batch uses up."""

    @property
    def is_current(self) -> bool:
        """Whether the algorithm's code is still what it was folded with."""
        return self.algorithm_source == source_of(self.state.settings.learner.algorithm)

    def chains(self) -> ChainChecker:
        """A checker for the events after the snapshot."""
        return ChainChecker(after=self.state.position, links=self.links)


def source_of(algorithm: str) -> str:
    """Digest of an algorithm's source; empty for a built-in one, whose modules are among `RULES`."""
    plugin = identify_plugin(ALGORITHMS, algorithm)
    return "" if plugin.distribution == OWN else plugin.source


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
        return kind.model_validate(value, context=RECORDED)
    raise TypeError(f"a snapshot cannot hold a {kind.__name__}")


LEARNER = SnapshotKind("learner", FoldedLog, rules=RULES, to_plain=_to_plain, from_plain=_from_plain)
