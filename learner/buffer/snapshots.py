"""The learner's fold as it is kept beside a checkpoint: the buffer's state, and where every producer's chain stood.

Everything in it follows from the log up to one position. Settings are kept as plain values and validated again.
"""

from typing import Any

import msgspec
from pydantic import BaseModel

from events.log.hash_chain import ChainChecker, ChainLink, RollingDigest
from learner.buffer.state import BufferState
from storage.snapshots import SnapshotKind

RULES = (
    "learner.buffer.replay_buffer",
    "learner.buffer.batches",
    "learner.buffer.group_completion",
    "learner.buffer.success_replay",
    "learner.planners",
    "learner.planners.base",
    "learner.planners.cloning",
    "learner.planners.groups",
    "learner.planners.hsl",
    "learner.buffer.relabels",
    "core.rl.hindsight_weights",
    "learner.planners.phases",
    "learner.buffer.phases",
    "learner.planners.reward_model",
    "learner.auxiliary.reward_model_examples",
    "learner.planners.relabeler",
    "learner.auxiliary.relabeler_examples",
    "learner.planners.filtered_cloning",
    "learner.planners.pairs",
    "learner.planners.successes",
    "learner.digests",
    "learner.buffer.verdicts",
    "learner.buffer.state",
    "learner.buffer.records",
    "core.rl.advantages",
    "core.settings.changes",
    "core.domain.arrays",
    "core.domain.evidence",
    "core.rl.held_out",
    "core.ids",
    "core.rl.replay_filter",
    "core.seeds",
    "core.rl.staleness",
    "core.rl.combined_state",
    "events.log.hash_chain",
    "events.catalogue.verdict",
    "events.upcasters",
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
