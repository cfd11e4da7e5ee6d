"""The stable public API: types for consumers, plugins and scripts outside this repository.

    from hindcast.api import Recorded, events        a consumer: its input, and the catalogue of facts
    from hindcast.api import Task, Observation       an environment or a judge: its input
    from hindcast.api import EpisodeWorld, Judge     an environment or a judge: the interface to implement
    from hindcast.api import Exporter, Writer        an exporter: the interface to implement
    from hindcast.api import Importer, Conversation  an importer, and what it reads
    from hindcast.api import Bridge                  a bridge: a consumer with a name
    from hindcast.api import Alert, AlertIncidents   an alert: the interface to implement

Names here keep their meaning through a major version; everything else may move. Importing this loads no torch, no browser
and no broker.
"""

from hindcast.actors.environments.base import EpisodeWorld, ResetResult, StepOutcome, TaskSource
from hindcast.actors.judges.base import Judge, Verdict
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.actors.relabelers.base import Relabeler
from hindcast.app.alerts.alert import Alert, AlertContext, AlertIncidents, Incident, SystemView
from hindcast.app.attach.bridge import Bridge
from hindcast.app.attach.target import FoldConsumer, WritingConsumer
from hindcast.app.exports.exporter import EpisodeFile, Exporter, ExportSources, Writer
from hindcast.app.imports.conversation import Conversation, Turn
from hindcast.app.imports.importer import Importer
from hindcast.core.domain.action import Action
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.observation import Node, Observation, Page
from hindcast.core.domain.task import Task
from hindcast.core.errors import HindcastError, SettingsError
from hindcast.events import catalogue as events
from hindcast.events.envelope import BlobRef, Envelope, Recorded
from hindcast.events.log.episode_assembler import AssembledEpisode
from hindcast.events.log.port import EventLog
from hindcast.events.log.projection import Projection, fold

__all__ = [
    "Action",
    "Alert",
    "AlertContext",
    "AlertIncidents",
    "AssembledEpisode",
    "BlobRef",
    "Bridge",
    "Conversation",
    "Envelope",
    "EpisodeFile",
    "EpisodeWorld",
    "EventLog",
    "Evidence",
    "ExportSources",
    "Exporter",
    "FoldConsumer",
    "HindcastError",
    "Importer",
    "Incident",
    "Judge",
    "JudgedEpisode",
    "Judgment",
    "Node",
    "Observation",
    "Page",
    "Projection",
    "Recorded",
    "Relabeler",
    "ResetResult",
    "SettingsError",
    "StepOutcome",
    "SystemView",
    "Task",
    "TaskSource",
    "Turn",
    "Verdict",
    "Writer",
    "WritingConsumer",
    "events",
    "fold",
]
