"""The tables of the read model, and which of them hold things that change.

Two kinds of table. A *versioned* one has `valid_from` and `valid_to`: a change closes the open row (`valid_to` becomes
the position of the change) and opens another; the open row has `valid_to = OPEN`. A *recorded* one holds what happened
once, at `position`, and is only ever added to. As of position N holds: `valid_from <= N < valid_to`, or `position <= N`.

Only types that SQLite and PostgreSQL share. Structured values are JSON text with sorted keys, digests hexadecimal text.
Every table has a comment and every column a description (`storage.readmodel.descriptions`); for people who ask in SQL
there are views of what holds now (`storage.readmodel.database`).
"""

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, MetaData, Table
from sqlalchemy import Text as AnyText

from hindcast.storage.readmodel.descriptions import description

SCHEMA_VERSION = 22
"""Version of tables and mappers. A read model of another version is dropped and folded again; there are no migrations.

Increase it with every change of a table or a mapper: all rows of a read model must follow from the same rules.
"""

OPEN = 2**63 - 1
"""`valid_to` of a row that still holds."""

Text = AnyText().with_variant(AnyText(collation="C"), "postgresql")
"""Text in the order of its bytes, as in SQLite, so that every database sorts the same."""

NAMED = 3
"""Number of columns in an index's name: PostgreSQL limits the length of a name."""

metadata = MetaData()


def _versioned(
    name: str, *columns: Column[object], comment: str, indexes: tuple[tuple[str, ...], ...] = ()
) -> Table:
    """A table of things that change; the columns marked `primary_key` identify the thing."""
    return Table(
        name,
        metadata,
        *columns,
        Column("valid_from", BigInteger, primary_key=True, autoincrement=False),
        Column("valid_to", BigInteger, nullable=False),
        *(Index(f"{name}_{'_'.join(names[:NAMED])}", *names) for names in indexes),
        comment=comment,
        info={"versioned": True, "key": tuple(column.name for column in columns if column.primary_key)},
    )


def _recorded(
    name: str, *columns: Column[object], comment: str, indexes: tuple[tuple[str, ...], ...] = ()
) -> Table:
    """A table of things that happened once: keyed by position, and by the columns marked `primary_key` within it."""
    return Table(
        name,
        metadata,
        Column("position", BigInteger, primary_key=True, autoincrement=False),
        *columns,
        *(Index(f"{name}_{'_'.join(names[:NAMED])}", *names) for names in indexes),
        comment=comment,
        info={"versioned": False},
    )


def _text_key(name: str) -> Column[object]:
    return Column(name, Text, primary_key=True)


def _number_key(name: str) -> Column[object]:
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def _text(*names: str) -> tuple[Column[object], ...]:
    return tuple(Column(name, Text) for name in names)


def _integer(*names: str) -> tuple[Column[object], ...]:
    return tuple(Column(name, BigInteger) for name in names)


def _real(*names: str) -> tuple[Column[object], ...]:
    return tuple(Column(name, Double) for name in names)


runs = _versioned(
    "runs",
    _text_key("run"),
    *_text(
        "state",
        "recipe",
        "base_policy",
        "base_policy_name",
        "settings",
        "packages",
        "fingerprint",
        "behaviour",
    ),
    *_text("goal", "finished_reason", "parent"),
    *_integer("run_seed", "phase", "started_ns", "started_position", "forked_at"),
    comment=(
        "One row for each run whose events are in the log: the run itself and, of a fork, its ancestors."
    ),
)

tasks = _versioned(
    "tasks",
    _text_key("task"),
    *_text("environment", "family", "instruction", "goal", "source", "parents", "state", "reason"),
    *_text("generator", "change", "checked"),
    *_integer("seed", "max_steps", "phase"),
    *_real("value"),
    comment="Tasks that were proposed, or first seen in a request, with their state.",
)

task_parents = _recorded(
    "task_parents",
    _number_key("place"),
    *_text("task", "parent"),
    indexes=(("task",), ("parent",)),
    comment="Which tasks a proposed task was derived from.",
)

episodes = _versioned(
    "episodes",
    _text_key("episode"),
    *_text(
        "task", "environment", "family", "group_id", "origin", "state", "actor", "instruction", "renderer"
    ),
    *_text("reason", "detail", "answer", "final_url", "swept", "branch_episode"),
    *_integer(
        "member", "group_size", "attempt", "phase", "min_version", "steps", "version_low", "version_high"
    ),
    *_integer("branch_step"),
    *_integer("requested_position", "requested_ns", "started_ns", "terminal_ns"),
    *_real("temperature", "lease_s", "duration_ms"),
    Column("revisits", Boolean),
    indexes=(
        ("valid_to", "valid_from", "state", "task", "phase", "origin", "version_high"),
        ("requested_position", "valid_from", "valid_to", "requested_ns", "started_ns", "terminal_ns"),
        ("version_low", "requested_position"),
        ("started_ns", "valid_from", "valid_to"),
        ("terminal_ns", "started_ns", "valid_from", "valid_to"),
        ("task",),
        ("group_id",),
        ("valid_from",),
    ),
    comment="Episodes, from the request to the end.",
)

weights = _versioned(
    "weights",
    _text_key("model"),
    _number_key("version"),
    *_text("sha256"),
    *_integer("size_bytes", "at_update", "occurred_ns"),
    indexes=(("model", "at_update"),),
    comment="Published versions of the policy and of other models.",
)

steps = _recorded(
    "steps",
    *_text(
        "episode",
        "observation_digest",
        "observation_blob",
        "url",
        "answer",
        "action",
        "argument",
        "result",
        "detail",
        "code_rev",
        "scaffold_state",
        "scaffold_chosen",
        "touched",
    ),
    *_integer("scaffold_choices", "scaffold_remembered"),
    *_integer(
        "step", "element", "world_ordinal", "prompt_tokens", "answer_tokens", "version_low", "version_high"
    ),
    *_integer("context", "sampling_seed", "occurred_ns"),
    *_real("temperature", "observe_ms", "generate_ms", "act_ms"),
    Column("prompt_truncated", Boolean),
    indexes=(("episode", "step"), ("version_high", "version_low", "episode", "position"), ("occurred_ns",)),
    comment=(
        "Steps of episodes. Token ids and log-probabilities are in the log and in exports, at `position`."
    ),
)

screenshots = _recorded(
    "screenshots",
    *_text("episode", "shows", "sha256", "missing", "marks"),
    *_integer("step", "size_bytes", "width", "height"),
    *_real("scale"),
    indexes=(("episode",),),
    comment="Images of the window, of the page before a step, after it, or at the end of an episode.",
)

token_versions = _recorded(
    "token_versions",
    _number_key("place"),
    *_text("episode"),
    *_integer("version", "tokens"),
    indexes=(("version", "episode", "position"),),
    comment=(
        "Stretches of an answer and the policy version that sampled each, of steps whose tokens come "
        "from several versions."
    ),
)

verdicts = _recorded(
    "verdicts",
    *_text("episode", "judge", "judge_version", "task", "prompt_digest", "outcome", "reason", "code_rev"),
    *_integer("occurred_ns", "model_version"),
    *_real("reward", "probability"),
    indexes=(("episode", "position"),),
    comment="Verdicts on episodes: one for each episode, judge and version of the judge.",
)

consultations = _recorded(
    "consultations",
    *_text("purpose", "about", "model"),
    *_integer("prompt_tokens", "answer_tokens", "requests", "occurred_ns"),
    *_real("cost_usd"),
    comment=(
        "Questions to models behind endpoints that the event at `position` rests on, and what they cost."
    ),
)

judged = _versioned(
    "judged",
    _text_key("episode"),
    _text_key("judge"),
    *_text("outcome", "origin", "environment", "family", "task"),
    *_real("reward"),
    *_integer("phase", "version_low", "version_high", "terminal_ns", "decided_ns"),
    Column("revisits", Boolean),
    indexes=(
        ("judge", "decided_ns", "terminal_ns"),
        (
            "judge",
            "origin",
            "version_low",
            "environment",
            "family",
            "outcome",
            "valid_from",
            "reward",
            "version_high",
        ),
        ("judge", "task", "phase", "origin", "revisits", "outcome", "valid_from"),
    ),
    comment=(
        "The first verdict of each judge on an episode, with what the episode was when it was given. "
        "Rows never end."
    ),
)

evaluations = _versioned(
    "evaluations",
    _number_key("number"),
    *_text("state", "temperatures", "skipped", "reason"),
    *_integer("version", "version_low", "version_high", "tasks", "started_ns", "finished_ns"),
    *_real("seconds", "share"),
    comment="Evaluations of the policy during the run, on held-out tasks.",
)

evaluation_results = _recorded(
    "evaluation_results",
    _number_key("place"),
    *_text("environment", "family"),
    *_integer("number", "version", "successes", "failures", "lost"),
    *_real("temperature", "reward"),
    indexes=(("number",),),
    comment="Outcomes of each finished evaluation, by temperature and family.",
)

batches = _recorded(
    "batches",
    *_text("model", "algorithm", "log_digest", "config_digest", "code_rev"),
    *_integer("batch", "as_of", "seed", "version", "reference_version", "proximal_version", "critic_version"),
    *_integer("samples", "minibatches", "episodes", "rehearsed", "consumed", "occurred_ns"),
    indexes=(("batch",),),
    comment="Plans of the learner: one for each batch.",
)

batch_episodes = _recorded(
    "batch_episodes",
    _number_key("place"),
    *_text("episode", "group_id", "replaces"),
    *_integer("batch", "samples", "epoch", "kept", "relabel"),
    *_real("reward", "format_term", "length_term", "advantage"),
    Column("trained", Boolean, nullable=False),
    Column("rehearsed", Boolean, nullable=False),
    indexes=(("episode", "trained", "position"), ("batch",)),
    comment=(
        "The part of each episode in a batch: trained on, only imitated (`rehearsed`), or used up "
        "without either. A batch that is gone through again has a row for each epoch; `trained AND epoch "
        "= 0` is each episode once."
    ),
)

planned_first = _versioned(
    "planned_first",
    _text_key("episode"),
    *_text("task"),
    *_integer("batch"),
    indexes=(("task", "batch", "valid_from", "episode"), ("batch",)),
    comment="The first batch in which the policy was to learn from an episode. Rows never end.",
)

batch_samples = _recorded(
    "batch_samples",
    _number_key("sample"),
    *_integer("batch", "minibatch", "place", "step_position"),
    *_text("episode"),
    indexes=(("step_position",), ("batch", "minibatch", "place")),
    comment="Which step is which sample of a batch.",
)

updates = _recorded(
    "updates",
    *_text("model", "outcome", "before", "after", "inputs", "metrics", "reason", "code_rev"),
    *_integer("update_number", "batch", "minibatch", "samples", "occurred_ns"),
    *_real("duration_ms", "cpu_ms"),
    indexes=(
        ("model", "update_number"),
        ("batch", "minibatch"),
        ("outcome", "model", "update_number", "batch", "position"),
    ),
    comment="Optimizer steps, applied or skipped.",
)

update_samples = _recorded(
    "update_samples",
    _number_key("place"),
    *_text("model"),
    *_integer("update_number", "batch", "minibatch"),
    *_real("advantage", "weight", "ratio", "mask"),
    indexes=(("batch", "minibatch", "place"),),
    comment="What an update did with each sample of its mini-batch.",
)

adoptions = _recorded(
    "adoptions",
    *_text("actor"),
    *_integer("version", "occurred_ns"),
    *_real("load_ms"),
    indexes=(("version",),),
    comment="From here on an actor samples from a policy version.",
)

checkpoints = _recorded(
    "checkpoints",
    *_integer("update_number", "batch", "version", "size_bytes", "occurred_ns"),
    *_text("state", "sha256"),
    comment="Weights and optimizer state from which a learner can start.",
)

notices = _recorded(
    "notices",
    *_text("type", "about", "text", "detail", "producer"),
    *_integer("occurred_ns"),
    indexes=(("type", "about"), ("about",)),
    comment="All other events, one line each, with the whole payload.",
)

block_counts = _recorded(
    "block_counts",
    _text_key("counted"),
    _text_key("kind"),
    *_integer("number"),
    comment="Counts of rows over blocks of 4096 positions, from which totals are added up.",
)

block_tallies = _recorded(
    "block_tallies",
    _number_key("place"),
    *_text("judge", "origin", "environment", "family"),
    *_integer("version_low", "success", "failure", "undecided", "mixed"),
    *_real("reward"),
    comment="First verdicts of judges within a block of 4096 positions, by kind of episode.",
)

block_episodes = _recorded(
    "block_episodes",
    _number_key("place"),
    *_text("judge", "outcome", "state", "origin", "environment", "family"),
    *_integer("number"),
    comment=(
        "Changes of the number of episodes by kind within a block of 4096 positions. Their sum up to a block's end "
        "is the number of episodes of each kind at that position."
    ),
)

block_metrics = _recorded(
    "block_metrics",
    _text_key("metric"),
    _number_key("first_update"),
    *_integer("last_update", "updates"),
    *_real("low", "high", "last"),
    comment="Metrics of consecutive policy updates within a block of 4096 positions.",
)

cursor = Table(
    "cursor",
    metadata,
    Column("name", Text, primary_key=True),
    Column("run", Text, nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("log_digest", Text, nullable=False),
    Column("first_digest", Text, nullable=False),
    Column("last_position", BigInteger, nullable=False),
    Column("last_digest", Text, nullable=False),
    comment="One row: how far the log is folded, written in the same transaction as the rows.",
)

FOLD_INDEXES = [index for index in episodes.indexes if index.name == "episodes_valid_from"]
"""Indexes that the fold itself reads by; a scratch read model has no others."""

TABLES: dict[str, Table] = {table.name: table for table in metadata.sorted_tables if table is not cursor}
"""Every table but the cursor, by name."""

for _table in metadata.sorted_tables:
    for _column in _table.c:
        _column.comment = description(_table.name, _column.name)
