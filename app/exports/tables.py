"""Tables of `hindcast export --format parquet`: each column with its type and meaning (docs/exports.md)."""

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
        ("episode", TEXT, "id of the episode"),
        ("task", TEXT, "id of the task: a digest of its content"),
        ("environment", TEXT, "name of the environment"),
        ("family", TEXT, "task family"),
        ("seed", INTEGER, "seed of the task"),
        ("instruction", TEXT, "the instruction that the agent got; null before it was started"),
        ("goal", TEXT, "what the evaluator checks, as JSON"),
        ("max_steps", INTEGER, "number of steps after which the episode ends"),
        ("origin", TEXT, "online, demonstration or evaluation"),
        ("group_id", TEXT, "id of the group: episodes that are compared with each other"),
        ("member", INTEGER, "place in the group"),
        ("group_size", INTEGER, "episodes in the group"),
        ("attempt", INTEGER, "number of earlier attempts of this member that were abandoned"),
        ("phase", INTEGER, "phase of the curriculum"),
        ("temperature", REAL, "sampling temperature"),
        ("state", TEXT, "requested, started, ended, abandoned or cancelled"),
        ("reason", TEXT, "why it ended; null while it is open"),
        ("detail", TEXT, "why it was abandoned, in words"),
        ("actor", TEXT, "name of the actor that played it"),
        ("renderer", TEXT, "renderer of its pages, such as lines/1"),
        ("steps", INTEGER, "number of steps; null while it is open"),
        ("version_low", INTEGER, "lowest policy version that sampled a token; -1: a demonstrator"),
        ("version_high", INTEGER, "highest policy version that sampled a token; -1: a demonstrator"),
        ("answer", TEXT, "message given to exit; null: it never exited"),
        ("final_url", TEXT, "address of the last page"),
        ("probes", TEXT, "what the site reported about itself at the end, as JSON"),
        ("duration_ms", REAL, "milliseconds from start to end"),
        ("outcome", TEXT, "success, failure or undecided by the training judge; null: no verdict"),
        ("reward", REAL, "reward of that verdict"),
        ("requested_position", INTEGER, "position of the request in the log"),
        ("terminal_position", INTEGER, "position of the end in the log; null while it is open"),
        ("requested_ns", INTEGER, "time of the request: nanoseconds since 1970 by the producer's clock"),
        ("terminal_ns", INTEGER, "time of the end: nanoseconds since 1970 by the producer's clock"),
    ),
    "steps": _columns(
        ("position", INTEGER, "position in the log; identifies the step"),
        ("episode", TEXT, "id of the episode"),
        ("step", INTEGER, "number of the step in the episode, from 0"),
        ("url", TEXT, "address of the observed page"),
        ("observation_digest", TEXT, "digest of the observed page, without host and port"),
        ("observation_blob", TEXT, "sha256 of the recorded page; null: none was recorded"),
        ("screenshot_blob", TEXT, "sha256 of the screenshot; null: there is none"),
        ("answer", TEXT, "text of the sampled answer"),
        ("action", TEXT, "name of the action; null: the answer was no action"),
        ("element", INTEGER, "number of the element that the action targets"),
        ("argument", TEXT, "text that was typed, option chosen, key pressed, or answer given"),
        ("result", TEXT, "ok, exit, parse_failure, no_such_element, …"),
        ("detail", TEXT, "why the action failed; empty if the result is ok"),
        ("temperature", REAL, "sampling temperature"),
        ("sampling_seed", INTEGER, "seed of the sampling"),
        ("prompt_truncated", FLAG, "whether the prompt was cut"),
        ("answer_from", INTEGER, "number of tokens that are the thought, before the answer"),
        ("context", INTEGER, "number of the agent's context in the episode, from 0"),
        ("prompt_ids", pa.list_(pa.int32()), "token ids: exactly what the policy read"),
        ("observe_ms", REAL, "milliseconds to read the page"),
        ("generate_ms", REAL, "milliseconds to sample the answer"),
        ("act_ms", REAL, "milliseconds to carry out the action"),
        ("occurred_ns", INTEGER, "nanoseconds since 1970 by the actor's clock"),
        ("code_rev", TEXT, "code revision of the actor"),
    ),
    "tokens": _columns(
        ("position", INTEGER, "position of the step in the log"),
        ("episode", TEXT, "id of the episode"),
        ("step", INTEGER, "number of the step in the episode, from 0"),
        ("place", INTEGER, "place in the answer, from 0"),
        ("token_id", pa.int32(), "id of the sampled token, end token included"),
        ("logprob", pa.float32(), "log-probability under the distribution sampled from; 0 of a demonstrator"),
        ("version", pa.int32(), "policy version that sampled it; -1: a demonstrator"),
    ),
    "verdicts": _columns(
        ("position", INTEGER, "position in the log"),
        ("episode", TEXT, "id of the judged episode"),
        ("task", TEXT, "id of the episode's task"),
        ("judge", TEXT, "name of the judge"),
        ("judge_version", TEXT, "version of the judge"),
        ("outcome", TEXT, "success, failure or undecided"),
        ("reward", REAL, "reward in [0, 1]; 0 when undecided"),
        ("reason", TEXT, "reason, as a sentence"),
        ("model_version", INTEGER, "version of the model, of a judge that the run trains"),
        ("probability", REAL, "probability of success, of a judge that the run trains"),
        ("occurred_ns", INTEGER, "nanoseconds since 1970 by the judge's clock"),
    ),
    "disputes": _columns(
        ("position", INTEGER, "position in the log"),
        ("episode", TEXT, "id of the episode whose verdict is disputed"),
        ("judge", TEXT, "name of the judge whose verdict is disputed"),
        ("judge_version", TEXT, "version of that judge"),
        ("author", TEXT, "person who disputes the verdict"),
        ("outcome", TEXT, "correct outcome according to the author"),
        ("reason", TEXT, "reason of the dispute"),
        ("occurred_ns", INTEGER, "nanoseconds since 1970 by the clock of the process that recorded it"),
    ),
    "relabels": _columns(
        ("position", INTEGER, "position in the log"),
        ("episode", TEXT, "id of the episode"),
        ("relabeler", TEXT, "name of the relabeler"),
        ("relabeler_version", TEXT, "version of the relabeler"),
        ("place", INTEGER, "place among the goals it found, from 0; null: it found none"),
        ("instruction", TEXT, "the goal in words"),
        ("family", TEXT, "task family, such as store/find_price; empty: unknown"),
        ("goal", TEXT, "goal as JSON; null: unknown"),
        ("until_step", INTEGER, "number of steps up to the first achievement"),
        ("relevance", pa.list_(REAL), "relevance of each step before `until_step`"),
        ("failure", TEXT, "why the relabeler could not decide; empty: it could"),
        ("occurred_ns", INTEGER, "nanoseconds since 1970 by the relabeler's clock"),
    ),
    "updates": _columns(
        ("position", INTEGER, "position in the log"),
        ("model", TEXT, "trained model: policy, critic, orm, …"),
        ("update", INTEGER, "number of the update, from 1; a skipped number may be used again"),
        ("batch", INTEGER, "batch that it belongs to"),
        ("minibatch", INTEGER, "mini-batch in the batch"),
        ("outcome", TEXT, "applied or skipped"),
        ("reason", TEXT, "why it was skipped"),
        ("before", TEXT, "digest of weights and optimizer state before it"),
        ("after", TEXT, "digest of weights and optimizer state after it; of a skipped one the same"),
        ("inputs", TEXT, "digest of the numbers that it was computed from"),
        ("metrics", pa.map_(TEXT, REAL), "metrics by name"),
        ("duration_ms", REAL, "milliseconds of the update"),
        ("cpu_ms", REAL, "processor time of all threads, in milliseconds"),
        ("occurred_ns", INTEGER, "nanoseconds since 1970 by the learner's clock"),
    ),
    "policies": _columns(
        ("position", INTEGER, "position in the log"),
        ("model", TEXT, "published model: policy, critic, orm, …"),
        ("version", INTEGER, "version; 0: what the run began with"),
        ("update", INTEGER, "number of optimizer steps that made it"),
        ("sha256", TEXT, "sha256 of the weights"),
        ("size_bytes", INTEGER, "size of the weights in bytes"),
        ("occurred_ns", INTEGER, "nanoseconds since 1970 by the learner's clock"),
    ),
}
"""Columns by table, in order."""


def schema_of(table: str) -> Any:
    """The table's pyarrow schema; each field's metadata `says` has its meaning."""
    return pa.schema([pa.field(one.name, one.type, metadata={"says": one.says}) for one in TABLES[table]])
