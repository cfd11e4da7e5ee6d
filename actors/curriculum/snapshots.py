"""The curriculum's fold as it is kept: what is under way, who holds it until when, what each task came to.

Actors read it too: it names every open episode and the newest weights, so that they need not read the history either.
"""

from collections import Counter
from typing import Any

from actors.curriculum.projection import CurriculumProjection
from actors.curriculum.state import CurriculumState
from core.settings.schema import Settings
from storage.snapshots import SnapshotKind

RULES = (
    "actors.curriculum.projection",
    "actors.curriculum.state",
    "actors.curriculum.groups",
    "actors.curriculum.phases",
    "actors.curriculum.leases",
    "actors.curriculum.pauses",
    "core.rl.advantages",
    "core.domain.evidence",
    "core.ids",
    "core.rl.replay_filter",
    "core.rl.staleness",
    "core.rl.combined_state",
    "core.domain.task",
    "events.upcasters",
)
"""Modules whose code decides what the state is."""


def _from_plain(kind: type, value: Any) -> Any:
    if getattr(kind, "__origin__", kind) is Counter:
        return Counter(value)
    raise TypeError(f"a snapshot cannot hold a {kind.__name__}")


def curriculum_kind(settings: Settings) -> SnapshotKind[CurriculumState]:
    """How the state under these settings is kept; a fork with others folds its parent's log itself."""
    return SnapshotKind(
        "curriculum",
        CurriculumState,
        rules=RULES,
        conditions=CurriculumProjection.under(settings).conditions,
        from_plain=_from_plain,
    )
