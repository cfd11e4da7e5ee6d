"""The tables of `hindcast export --format parquet`: each column with its type and what it means (docs/exports.md)."""

from typing import Any, NamedTuple

import pyarrow as pa

TEXT, INTEGER, REAL, FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()


class Column(NamedTuple):
    """One column."""

    name: str
    type: Any
    says: str


def _columns(*said: tuple[str, Any, str]) -> tuple[Column, ...]:
    return tuple(Column(*one) for one in said)


TABLES: dict[str, tuple[Column, ...]] = {
    "episodes": _columns(
        ("episode", TEXT, "id"),
        ("task", TEXT, "id of the task: a digest of its content"),
        ("environment", TEXT, "which site"),
        ("family", TEXT, "kind of task"),
        ("seed", INTEGER, "of the task"),
        ("instruction", TEXT, "the instruction that the agent got; null before it was started"),
        ("goal", TEXT, "what the evaluator checks, as JSON"),
        ("max_steps", INTEGER, "after which it is truncated"),
        ("origin", TEXT, "online, demonstration or evaluation"),
        ("group_id", TEXT, "episodes that are compared with each other"),
        ("member", INTEGER, "place in the group"),
        ("group_size", INTEGER, "of the group"),
        ("attempt", INTEGER, "earlier tries of the member that were abandoned"),
        ("phase", INTEGER, "of the curriculum"),
        ("temperature", REAL, "sampled at"),
        ("state", TEXT, "requested, started, ended, abandoned or cancelled"),
        ("reason", TEXT, "why it ended; null while it is open"),
        ("detail", TEXT, "why it was given up, in words"),
        ("actor", TEXT, "who played it"),
        ("renderer", TEXT, "how pages were written, such as lines/1"),
        ("steps", INTEGER, "number of steps; null while it is open"),
        ("version_low", INTEGER, "lowest policy version that sampled a token; -1: a demonstrator"),
        ("version_high", INTEGER, "highest"),
        ("answer", TEXT, "message given to exit; null: it never exited"),
        ("final_url", TEXT, "address of the last page"),
        ("probes", TEXT, "what the site said about itself at the end, as JSON"),
        ("duration_ms", REAL, "from start to end"),
        ("outcome", TEXT, "success, failure or undecided by the training judge; null: no verdict"),
        ("reward", REAL, "of that verdict"),
        ("requested_position", INTEGER, "of the request in the log"),
        ("terminal_position", INTEGER, "of its end; null while it is open"),
        ("requested_ns", INTEGER, "nanoseconds since 1970 by the producer's clock"),
        ("terminal_ns", INTEGER, "likewise"),
    ),
    "steps": _columns(
        ("position", INTEGER, "in the log; names the step"),
        ("episode", TEXT, "whose"),
        ("step", INTEGER, "0, 1, 2 … in the episode"),
        ("url", TEXT, "of the page that was seen"),
        ("observation_digest", TEXT, "of the page, without host and port"),
        ("observation_blob", TEXT, "sha256 of the recorded page; null: none was recorded"),
        ("screenshot_blob", TEXT, "sha256 of the screenshot; null: there is none"),
        ("answer", TEXT, "as sampled"),
        ("action", TEXT, "name; null: the answer was no action"),
        ("element", INTEGER, "number of the element acted upon"),
        ("argument", TEXT, "what was typed, chosen, pressed, answered"),
        ("result", TEXT, "ok, exit, parse_failure, no_such_element, …"),
        ("detail", TEXT, "why, unless the result is ok"),
        ("temperature", REAL, "sampled at"),
        ("sampling_seed", INTEGER, "of the sampling"),
        ("prompt_truncated", FLAG, "whether something was left out of the prompt"),
        ("answer_from", INTEGER, "tokens before it are the thought"),
        ("prompt_ids", pa.list_(pa.int32()), "token ids: exactly what the policy read"),
        ("observe_ms", REAL, "reading the page"),
        ("generate_ms", REAL, "the policy"),
        ("act_ms", REAL, "the action"),
        ("occurred_ns", INTEGER, "nanoseconds since 1970 by the actor's clock"),
        ("code_rev", TEXT, "of the actor"),
    ),
    "tokens": _columns(
        ("position", INTEGER, "of the step"),
        ("episode", TEXT, "whose"),
        ("step", INTEGER, "in the episode"),
        ("place", INTEGER, "0, 1, 2 … in the answer"),
        ("token_id", pa.int32(), "sampled, end token included"),
        ("logprob", pa.float32(), "under the distribution sampled from; 0 of a demonstrator"),
        ("version", pa.int32(), "policy version it was sampled from; -1: a demonstrator's"),
    ),
    "verdicts": _columns(
        ("position", INTEGER, "in the log"),
        ("episode", TEXT, "about which"),
        ("task", TEXT, "of the episode"),
        ("judge", TEXT, "who spoke"),
        ("judge_version", TEXT, "of the judge"),
        ("outcome", TEXT, "success, failure or undecided"),
        ("reward", REAL, "in [0, 1]; 0 when undecided"),
        ("reason", TEXT, "in a sentence"),
        ("model_version", INTEGER, "of a judge that the run trains"),
        ("probability", REAL, "that such a judge gave to success"),
        ("occurred_ns", INTEGER, "nanoseconds since 1970 by the judge's clock"),
    ),
    "disputes": _columns(
        ("position", INTEGER, "in the log"),
        ("episode", TEXT, "whose verdict"),
        ("judge", TEXT, "who gave it"),
        ("judge_version", TEXT, "of the judge"),
        ("author", TEXT, "who disagrees"),
        ("outcome", TEXT, "what it was instead"),
        ("reason", TEXT, "why"),
        ("occurred_ns", INTEGER, "nanoseconds since 1970 by the clock of who recorded it"),
    ),
    "relabels": _columns(
        ("position", INTEGER, "in the log"),
        ("episode", TEXT, "about which"),
        ("relabeler", TEXT, "who spoke"),
        ("relabeler_version", TEXT, "of the relabeler"),
        ("place", INTEGER, "0, 1, 2 … among the goals it found; null: it found none"),
        ("instruction", TEXT, "the goal in words"),
        ("family", TEXT, "as store/find_price; empty: unknown"),
        ("goal", TEXT, "as JSON; null: unknown"),
        ("until_step", INTEGER, "the step before this one achieved it"),
        ("relevance", pa.list_(REAL), "of each step up to there"),
        ("failure", TEXT, "why the relabeler could not tell; empty: it could"),
        ("occurred_ns", INTEGER, "nanoseconds since 1970 by the relabeler's clock"),
    ),
    "updates": _columns(
        ("position", INTEGER, "in the log"),
        ("model", TEXT, "policy, critic, orm, …"),
        ("update", INTEGER, "1, 2, 3 …; the number of a skipped one may come again"),
        ("batch", INTEGER, "whose plan it carries out"),
        ("minibatch", INTEGER, "in the batch"),
        ("outcome", TEXT, "applied or skipped"),
        ("reason", TEXT, "why it was skipped"),
        ("before", TEXT, "digest of weights and optimizer state"),
        ("after", TEXT, "likewise; of a skipped one the same"),
        ("inputs", TEXT, "digest of the numbers that went in"),
        ("metrics", pa.map_(TEXT, REAL), "by name"),
        ("duration_ms", REAL, "of the update"),
        ("cpu_ms", REAL, "of all threads"),
        ("occurred_ns", INTEGER, "nanoseconds since 1970 by the learner's clock"),
    ),
    "policies": _columns(
        ("position", INTEGER, "in the log"),
        ("model", TEXT, "policy, critic, orm, …"),
        ("version", INTEGER, "0: what the run began with"),
        ("update", INTEGER, "optimizer steps that made it"),
        ("sha256", TEXT, "of the weights"),
        ("size_bytes", INTEGER, "of the weights"),
        ("occurred_ns", INTEGER, "nanoseconds since 1970 by the learner's clock"),
    ),
}
"""Columns by table, in order."""


def schema_of(table: str) -> Any:
    """The table's pyarrow schema; each field's metadata `says` has its meaning."""
    return pa.schema([pa.field(one.name, one.type, metadata={"says": one.says}) for one in TABLES[table]])
