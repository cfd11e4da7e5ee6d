"""Snapshots of the curriculum's fold: running episodes, their leases, and the tallies of tasks.

Actors read them too: a snapshot names every open episode and the newest weights, so that they need not read the history.
"""

from collections import Counter
from typing import Any

from hindcast.actors.curriculum.projection import CurriculumProjection
from hindcast.actors.curriculum.state import CurriculumState
from hindcast.core.settings.schema import Settings
from hindcast.storage.snapshots import SnapshotKind

RULES = (
    "hindcast.actors.curriculum.projection",
    "hindcast.actors.curriculum.state",
    "hindcast.actors.curriculum.groups",
    "hindcast.actors.curriculum.phases",
    "hindcast.actors.curriculum.leases",
    "hindcast.actors.curriculum.pauses",
    "hindcast.core.rl.advantages",
    "hindcast.core.domain.evidence",
    "hindcast.core.ids",
    "hindcast.core.rl.replay_filter",
    "hindcast.core.plugins",
    "hindcast.core.rl.algorithm",
    "hindcast.core.rl.staleness",
    "hindcast.core.rl.combined_state",
    "hindcast.core.domain.task",
    "hindcast.events.upcasters",
)
"""Modules whose code determines the state."""


def _from_plain(kind: type, value: Any) -> Any:
    if getattr(kind, "__origin__", kind) is Counter:
        return Counter(value)
    raise TypeError(f"a snapshot cannot hold a {kind.__name__}")


def curriculum_kind(settings: Settings) -> SnapshotKind[CurriculumState]:
    """How the state under these settings is stored; a fork with other settings folds its parent's log itself."""
    return SnapshotKind(
        "curriculum",
        CurriculumState,
        rules=RULES,
        conditions=CurriculumProjection.under(settings).conditions,
        from_plain=_from_plain,
    )
