"""Reads episodes of verifiers as conversations: `traces.jsonl` of verifiers 0.4, whose format prime-rl records, too.

Each trace of an episode is a conversation, because each agent has its own. A trace is a graph of messages: what is read is the
path to its last message, as `verifiers.v1.trace.Trace.messages`. A node's tokens are those that it adds to the sequence, and
the sampled ones are marked. prime-rl stamps the group, the training step, and the policy versions that were live.

Source: `verifiers.v1.episode.Episode`, `verifiers.v1.trace.Trace` and `verifiers.v1.graph.MessageNode` of verifiers 0.4.0.
Nothing of verifiers is imported.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hindcast.actors.episodes.answerers import NO_VERSION
from hindcast.app.imports.conversation import Conversation
from hindcast.app.imports.decoder import DocumentError
from hindcast.app.imports.importer import Importer
from hindcast.app.imports.recorded_run import (
    Located,
    Message,
    Recorded,
    call_of,
    checked,
    conversation_of,
    read_lines,
    text_of,
    thought,
)

SOURCE = "verifiers"
TRACE_VERSION = 1
LIMITS = frozenset(
    {"max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed"}
)
"""Values of `stop_condition` that `Trace.is_truncated` names."""


def conversations_of(path: Path) -> Located:
    """Yield every trace of every episode with its place.

    Raises:
        DocumentError: a line is no episode of this version, or holds something else than text.
        OSError: the file cannot be read.

    """
    for place, episode in read_lines(path):
        traces = episode.get("traces")
        if not isinstance(traces, list):
            raise DocumentError(place, "`traces` is missing: it is no episode of verifiers 0.4")
        for number, trace in enumerate(traces):
            at = f"{place}, traces[{number}]"
            yield at, checked(partial(_conversation, episode, trace), at, "trace of verifiers")


def _conversation(episode: Mapping[str, Any], trace: Mapping[str, Any]) -> Conversation:
    if trace["version"] != TRACE_VERSION:
        raise DocumentError("version", f"{trace['version']!r} is not {TRACE_VERSION}")
    run, env, agent = episode.get("run") or {}, episode["env"], trace["agent"]["name"]
    work = run.get("work") or {}
    policy = work.get("policy") or {}
    trainable = trace["agent"].get("trainable", True)
    task, info = trace["task"], trace.get("info") or {}
    errors = trace.get("errors") or episode.get("errors") or []
    ok = trace.get("ok", False)
    group = (episode.get("group") or {}).get("id")
    timing = trace.get("timing") or {}
    names = [env.get("name") or env["id"], *([agent] if agent != "agent" else [])]
    held_out = work.get("type") == "eval"
    return conversation_of(
        Recorded(
            source=SOURCE,
            family=".".join([*names, *(["evaluation"] if held_out else [])]),
            key=str(task.get("key") or task.get("hash") or trace["id"]),
            target=task["data"].get("answer"),
            rollout=trace["id"],
            group=f"{group} {agent}" if group else "",
            version=policy.get("start", NO_VERSION) if trainable else NO_VERSION,
            trainer_version=work.get("step"),
            rewards=_rewards(trace.get("rewards") or {}),
            error="" if ok or not errors else f"{errors[-1]['type']}: {errors[-1]['message']}",
            truncated=_is_truncated(trace),
            trained=False if held_out or not trainable else info.get("effective"),
            more={"run": run.get("id"), "metrics": trace.get("metrics") or {}},
            duration_s=_seconds(timing),
        ),
        [_message(node, f"nodes[{at}]", tokens) for at, node, tokens in _path(trace["nodes"])],
    )


def _rewards(found: Mapping[str, Mapping[str, float] | None]) -> dict[str, float | None]:
    """The weighted sum, which counts, and its parts."""
    parts = {
        name: None if one is None else one["score"] * one.get("weight", 1.0) for name, one in found.items()
    }
    known = [value for value in parts.values() if value is not None]
    return {"reward": sum(known) if known else None, **parts} if parts else {}


def _is_truncated(trace: Mapping[str, Any]) -> bool:
    if trace.get("stop_condition") in LIMITS:
        return True
    calls = [call for call in trace.get("calls") or () if not call.get("error")]
    return bool(calls) and calls[-1].get("finish_reason") == "length"


def _seconds(timing: Mapping[str, Any]) -> float:
    ends = [span.get("end") or 0.0 for span in timing.values() if isinstance(span, Mapping)]
    return float(max(0.0, max(ends, default=0.0) - timing.get("start", 0.0)))


def _path(nodes: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any], list[int]]]:
    """Nodes from the first message to the last one, each with its index and the tokens before it."""
    parents = {node.get("parent") for node in nodes}
    at = max((index for index in range(len(nodes)) if index not in parents), default=None)
    path = list[int]()
    while at is not None:
        if not 0 <= at < len(nodes) or at in path:
            raise DocumentError(f"nodes[{path[-1]}].parent", f"{at} is no earlier message")
        path.append(at)
        at = nodes[at].get("parent")
    found, tokens = [], list[int]()
    for index in reversed(path):
        found.append((index, nodes[index], list(tokens)))
        tokens += nodes[index].get("token_ids") or ()
    return found


def _message(node: Mapping[str, Any], key: str, before: Sequence[int]) -> Message:
    given, sampled = node["message"], node.get("sampled", False)
    content = text_of(given.get("content"), f"{key}.message.content")
    message: dict[str, Any] = {
        "role": given["role"],
        "content": thought(given.get("reasoning_content") or "") + content,
    }
    if given.get("tool_calls"):
        message["tool_calls"] = [
            call_of(call["name"], call["arguments"], call["id"]) for call in given["tool_calls"]
        ]
    if given.get("tool_call_id"):
        message["tool_call_id"] = given["tool_call_id"]
    ids, mask = node.get("token_ids") or [], node.get("mask") or []
    if not sampled or not any(mask):
        return Message(content=message, sampled=sampled)
    if len(mask) != len(ids):
        raise DocumentError(f"{key}.mask", f"it has {len(mask)} values for {len(ids)} tokens")
    begin = mask.index(True)
    return Message(
        content=message,
        sampled=True,
        prompt_ids=(*before, *ids[:begin]),
        action_ids=tuple(ids[begin:]) if all(mask[begin:]) else (),
        logprobs=tuple(node.get("logprobs") or ()),
    )


IMPORTER = Importer(
    reads="`traces.jsonl` of verifiers 0.4, and the records of prime-rl", conversations=conversations_of
)
