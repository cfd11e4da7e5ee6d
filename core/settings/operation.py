"""Operational settings: log, storage and telemetry. They do not change what a run computes."""

from typing import Annotated, Any, Literal

from pydantic import Field

from hindcast.core.settings.section import Bytes, Count, Seconds, Section

OPERATIONAL = ("sites.port", "actors.contexts", "policy.threads", "policy.max_batch")

GPU_PLACEMENT = ("vllm.gpus", "vllm.gpus_per_server", "vllm.memory_share", "vllm.max_num_seqs")
"""Settings of where policy servers run, which another machine may need to change."""


class LogSettings(Section):
    """The event log and its broker."""

    url: str = ""
    """Address of an external NATS server, or several of its cluster separated by commas; empty: the
    run starts its own on loopback."""
    domain: str = ""
    """Unused: all roles reach the log under the same name, also through a leaf node. Kept for the settings of older runs."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the run's own broker on loopback; 0: any free one, kept across restarts."""
    max_bytes: Bytes = 8 * 1024**3
    """Size of the stream, in bytes, at which appending stops (back-pressure, nothing is lost)."""
    replicas: Literal[1, 3, 5] = 1
    """Replicas of the stream in a NATS cluster."""
    batch_events: Annotated[int, Field(ge=1, le=1000)] = 256
    """Maximum events in one atomic batch."""
    linger_ms: Annotated[float, Field(ge=0, le=1000)] = 20.0
    """How long the writer waits for more events before it commits a batch."""
    queue_events: Count = 4096
    """Maximum number of events that wait for the writer in one process; when it is reached, publishers wait (back-pressure)."""
    append_timeout_s: Seconds = 60.0
    """How long the outcome of one append may stay unknown before the process gives up."""
    queue_check_s: Seconds = 10.0
    """How often the broker's work queues are checked. A changed or missing one is created again, and
    `queue.repaired` records that."""
    connect_timeout_s: Seconds = 30.0
    """How long a process waits for the broker when it starts."""


class StorageSettings(Section):
    """Storage outside the log: blobs, read model, snapshots, archive."""

    blobs: str = ""
    """Store of blobs (pages, weights, checkpoints), each run's under its name: a folder that every machine of the run mounts,
    or s3://bucket/prefix; empty: the run's own folder."""
    blob_cache_mib: Count = 8192
    """Size of each machine's disk cache for blobs from s3://, in MiB; the least recently used are evicted first."""
    database: str = ""
    """SQLAlchemy URL of the read model, without a password; empty: SQLite under the run's folder."""
    project_events: Count = 1000
    """Events folded in one transaction of the projector."""
    snapshot_events: Annotated[int, Field(ge=16)] = 10_000
    """Minimum number of events between two snapshots of a role's state; a restart folds about as many. Snapshots append
    events themselves, so a very small number would never settle."""
    database_wait_s: Seconds = 600.0
    """How long the projector waits for a database that does not answer before it restarts."""
    min_free_mib: Annotated[int, Field(ge=0)] = 256
    """Free space in MiB on the disks of log, blobs and read model below which no new episode starts."""
    full_wait_s: Seconds = 30.0
    """How long a process waits for room on a full disk before it gives up the write and tries again."""
    segment_bytes: Bytes = 32 * 1024**2
    """Size in bytes at which a segment of an archive is closed."""
    archive: str = ""
    """Folder into which the log is moved during the run, under the run's name; empty: the log stays in the broker."""
    keep_live_events: Annotated[int, Field(ge=1000)] = 1_000_000
    """Number of latest events that stay in the broker even if archived."""
    keep_page_episodes: Annotated[int, Field(ge=0)] = 0
    """Number of latest ended episodes whose page snapshots are kept; 0: all. An archive (`storage.archive`) keeps what it
    has copied."""


class TelemetrySettings(Section):
    """Traces, metrics and process messages. None of it changes what a run computes."""

    otlp_endpoint: str = ""
    """Address of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318; empty: no traces."""
    sample: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of episodes and batches that are traced."""
    content: bool = False
    """Whether traces contain prompts, answers and page text."""
    prometheus_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port that serves the run's metrics under /metrics; 0: no port."""
    prometheus_host: str = "127.0.0.1"
    """Address on which metrics are served. No token is required: any other than loopback exposes them to other machines."""
    log_format: Literal["text", "json"] = "text"
    """Format of process messages: `text`: a line each for people; `json`: a JSON object each."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level of messages that are written."""
    alerts: tuple[str, ...] = (
        "success",
        "mismatch",
        "constant_critic",
        "pinned_sampler",
        "queue",
        "intruder",
        "lag",
        "still",
    )
    """Alerts that `hindcast start` and `hindcast alerts` watch for. One may be a plugin, by its name or as `module:object`
    (docs/plugins.md)."""
    alert_options: dict[str, dict[str, Any]] = Field(default={})
    """Options of alerts, by the alert's name: `{success={stretch=50}}` (docs/plugins.md)."""


def is_operational(key: str) -> bool:
    """Whether a setting is operational, so that it may change when a run is resumed."""
    return (
        key.startswith(("log.", "storage.", "telemetry.", "actors.browser_"))
        or key in OPERATIONAL + GPU_PLACEMENT
    )
