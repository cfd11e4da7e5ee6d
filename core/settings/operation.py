"""Settings of where and how fast a run works, none of what it computes: log, storage, telemetry."""

from typing import Annotated, Literal

from pydantic import Field

from hindcast.core.settings.section import Bytes, Count, Seconds, Section

OPERATIONAL = ("sites.port", "actors.contexts", "policy.threads", "policy.max_batch")


class LogSettings(Section):
    """The event log and its broker."""

    url: str = ""
    """Address of a NATS server that others run, or of several of its cluster with commas; empty: the run's own on loopback."""
    domain: str = ""
    """Not used: roles reach the log under one name, also through a leaf node. It stands in the settings of older runs."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the run's own broker on loopback; 0: any free one, kept across restarts."""
    max_bytes: Bytes = 8 * 1024**3
    """Size of the stream at which appending stops (back-pressure, nothing is lost)."""
    replicas: Literal[1, 3, 5] = 1
    """Copies in a NATS cluster."""
    batch_events: Annotated[int, Field(ge=1, le=1000)] = 256
    """Most events in one atomic batch."""
    linger_ms: Annotated[float, Field(ge=0, le=1000)] = 20.0
    """How long the writer waits for more events before it commits a batch."""
    queue_events: Count = 4096
    """Events that may wait in a process for the writer; beyond it publishers wait."""
    append_timeout_s: Seconds = 60.0
    """How long one append may stay without a known outcome before the process gives up."""
    queue_check_s: Seconds = 10.0
    """How often the work queues in the broker are compared with what they should be. One that was changed or has vanished is
    made anew, and `queue.repaired` says so."""
    connect_timeout_s: Seconds = 30.0
    """How long a process waits for the broker at its start."""


class StorageSettings(Section):
    """What is kept beside the log."""

    blobs: str = ""
    """Where blobs (pages, weights, checkpoints) are kept, each run's under its name: a folder that every machine of the run
    mounts, or s3://bucket/prefix; empty: the run's own folder."""
    blob_cache_mib: Count = 8192
    """Blobs from s3:// kept on each machine's disk to be read again; the least recently used go first."""
    database: str = ""
    """SQLAlchemy URL of the read model, without a password; empty: SQLite under the run's folder."""
    project_events: Count = 1000
    """Events folded in one transaction of the projector."""
    snapshot_events: Annotated[int, Field(ge=16)] = 10_000
    """Events between two snapshots of a role's state, at least: about as many are folded when it starts again. Each
    snapshot is followed by events of its own, so that few would never come to rest."""
    database_wait_s: Seconds = 600.0
    """How long the projector waits for a database that does not answer, before it is started afresh."""
    min_free_mib: Annotated[int, Field(ge=0)] = 256
    """Free space on the disks of log, blobs and read model below which no new episode is begun."""
    full_wait_s: Seconds = 30.0
    """How long a process waits for room on a full disk before it gives up what it wanted to store, and tries anew."""
    segment_bytes: Bytes = 32 * 1024**2
    """Size at which a segment of an archive is closed."""
    archive: str = ""
    """Folder that the log is moved to while the run goes on, into one of the run's name; empty: it stays in the broker."""
    keep_live_events: Annotated[int, Field(ge=1000)] = 1_000_000
    """Latest events that stay in the broker whatever is archived."""
    keep_page_episodes: Annotated[int, Field(ge=0)] = 0
    """Episodes that came to an end, the latest ones, whose snapshots of pages are kept beside the log; 0: those of all.
    What an archive has copied (`storage.archive`) stays in it."""


class TelemetrySettings(Section):
    """What processes tell of their work beside the log. None of it changes what a run computes."""

    otlp_endpoint: str = ""
    """Address of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318; empty: no traces."""
    sample: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of episodes and batches that are traced."""
    content: bool = False
    """Whether traces hold prompts, answers and words of pages."""
    prometheus_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port at which the run's metrics can be scraped under /metrics; 0: none."""
    prometheus_host: str = "127.0.0.1"
    """Address that they are served on; nobody is asked for a token, so others than this machine see them where it is
    another."""
    log_format: Literal["text", "json"] = "text"
    """Messages of the processes: one line each for people, or one JSON object each."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Messages below this level are left out."""


def is_operational(key: str) -> bool:
    """Whether a setting says where and how fast a run works rather than what it computes: it may change at a resume."""
    return key.startswith(("log.", "storage.", "telemetry.", "actors.browser_")) or key in OPERATIONAL
