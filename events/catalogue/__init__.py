"""Every fact there is, one family per file. Importing this package fills the registry."""

from events.catalogue.curriculum import (
    EpisodeRequested,
    PhaseStarted,
    StateValued,
    TaskAdmitted,
    TaskProposed,
    TaskRejected,
)
from events.catalogue.episode import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeStarted,
    StepTaken,
)
from events.catalogue.operation import (
    BlobReleased,
    ControlApplied,
    ControlRequested,
    EventDeadLettered,
    InjectionSeen,
    LogRepaired,
    LogSealed,
    SegmentArchived,
    WaitExceeded,
)
from events.catalogue.run import RecipeChanged, RunFinished, RunForked, RunResumed, RunStarted
from events.catalogue.training import (
    BatchPlanned,
    CheckpointSaved,
    ReplayScored,
    SamplesSwept,
    UpdateApplied,
    UpdateSkipped,
    WeightsAdopted,
    WeightsPublished,
)
from events.catalogue.verdict import EpisodeJudged, EpisodeRelabeled, VerdictDisputed

__all__ = [
    "BatchPlanned",
    "BlobReleased",
    "CheckpointSaved",
    "ControlApplied",
    "ControlRequested",
    "EpisodeAbandoned",
    "EpisodeCancelled",
    "EpisodeEnded",
    "EpisodeJudged",
    "EpisodeRelabeled",
    "EpisodeRequested",
    "EpisodeStarted",
    "EventDeadLettered",
    "InjectionSeen",
    "LogRepaired",
    "LogSealed",
    "PhaseStarted",
    "RecipeChanged",
    "ReplayScored",
    "RunFinished",
    "RunForked",
    "RunResumed",
    "RunStarted",
    "SamplesSwept",
    "SegmentArchived",
    "StateValued",
    "StepTaken",
    "TaskAdmitted",
    "TaskProposed",
    "TaskRejected",
    "UpdateApplied",
    "UpdateSkipped",
    "VerdictDisputed",
    "WaitExceeded",
    "WeightsAdopted",
    "WeightsPublished",
]
