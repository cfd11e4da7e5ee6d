"""Reads rollouts of NeMo Gym as conversations: the JSONL file that `ng_collect_rollouts` writes, or its sidecar of failures.

A line holds the request and the response in the format of OpenAI's Responses API. Items of the model that follow each other
(reasoning, text, calls) are one answer. An item that holds token ids ends the answer that they belong to.
Rows of the sidecar (`…_failures.jsonl`) have `_ng_failure_class`: NeMo Gym leaves them out of its figures.

Source: `nemo_gym.rollout_collection`, `nemo_gym.openai_utils` and `nemo_gym.base_resources_server` of nemo-gym 0.4.0.
Nothing of nemo-gym is imported.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

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
from hindcast.core.ids import digest_hex

SOURCE = "nemo-gym"
TEXTS = ("input_text", "output_text", "text", "refusal")
LONGEST = 2000
"""Longest text among a row's further fields that is kept for judges, in characters."""
KNOWN = frozenset({"responses_create_params", "response", "reward"})


def conversations_of(path: Path) -> Located:
    """Yield every rollout with its place.

    Raises:
        DocumentError: a line is no rollout, or holds something else than text.
        OSError: the file cannot be read.

    """
    for place, row in read_lines(path):
        missing = sorted({"responses_create_params", "response"} - row.keys())
        if missing:
            raise DocumentError(place, f"`{missing[0]}` is missing: it is no rollout of NeMo Gym")
        yield place, checked(partial(_conversation, row, place), place, "rollout of NeMo Gym")


def _conversation(row: Mapping[str, Any], place: str) -> Conversation:
    asked, response = row["responses_create_params"], row["response"]
    task, member = row.get("_ng_task_index"), row.get("_ng_rollout_index")
    failure_class = row.get("_ng_failure_class")
    error = failure_class or (response.get("error") or {}).get("message") or ""
    stopped = (response.get("incomplete_details") or {}).get("reason")
    given = asked["input"]
    begin = [{"role": "user", "content": given}] if isinstance(given, str) else given
    system = asked.get("instructions")
    return conversation_of(
        Recorded(
            source=SOURCE,
            family=(row.get("agent_ref") or {}).get("name") or SOURCE,
            key=digest_hex(msgspec.json.encode(asked["input"], order="sorted"))[:16]
            if task is None
            else str(task),
            target=row.get("expected_answer"),
            rollout=place if member is None else f"task {task}, rollout {member}",
            group="" if task is None else str(task),
            rewards={"reward": row["reward"]} if row.get("reward") is not None else {},
            error=str(error),
            truncated=stopped == "max_output_tokens" or row.get("truncated") is True,
            trained=False if failure_class else None,
            more={"fields": _fields(row)},
        ),
        [
            *([Message(content={"role": "system", "content": system})] if system else []),
            *_messages(begin, "responses_create_params.input", sampled=False),
            *_messages(response["output"], "response.output", sampled=True),
        ],
    )


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Further fields of a row: numbers and short texts."""
    return {
        name: value
        for name, value in row.items()
        if name not in KNOWN
        and not name.startswith("_ng_")
        and (isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= LONGEST))
    }


def _messages(items: Sequence[Mapping[str, Any]], key: str, *, sampled: bool) -> list[Message]:
    """Convert items; `sampled`: those of the model are its answers, not part of the prompt."""
    found: list[Message] = []
    part: list[Mapping[str, Any]] = []

    def end() -> None:
        if part:
            found.append(_answer(part, key, sampled=sampled))
            part.clear()

    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind in ("reasoning", "function_call") or (kind == "message" and item["role"] == "assistant"):
            part.append(item)
            if item.get("generation_token_ids"):
                end()
            continue
        end()
        if kind == "function_call_output":
            output = text_of(item["output"], f"{key}[{at}].output", kinds=TEXTS)
            found.append(
                Message(content={"role": "tool", "content": output, "tool_call_id": item["call_id"]})
            )
        elif kind == "message":
            role = "system" if item["role"] == "developer" else item["role"]
            content = text_of(item["content"], f"{key}[{at}].content", kinds=TEXTS)
            found.append(Message(content={"role": role, "content": content}))
        else:
            raise DocumentError(
                f"{key}[{at}]", f"an item of type {kind!r}: messages, reasoning and calls are read"
            )
    end()
    return found


def _answer(items: Sequence[Mapping[str, Any]], key: str, *, sampled: bool) -> Message:
    texts, calls = [], []
    for item in items:
        kind = item.get("type", "message")
        if kind == "reasoning":
            shown = item.get("summary") or item.get("content") or ()
            texts.append(thought("\n".join(part["text"] for part in shown)))
        elif kind == "function_call":
            calls.append(call_of(item["name"], item["arguments"], item["call_id"]))
        else:
            parts = item["content"]
            texts.append(
                "\n".join(part.get("text", part.get("refusal", "")) for part in parts)
                if isinstance(parts, list)
                else text_of(parts, key)
            )
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    last = items[-1]
    return Message(
        content=message | ({"tool_calls": calls} if calls else {}),
        sampled=sampled,
        prompt_ids=tuple(last.get("prompt_token_ids") or ()),
        action_ids=tuple(last.get("generation_token_ids") or ()),
        logprobs=tuple(last.get("generation_log_probs") or ()),
    )


IMPORTER = Importer(reads="rollouts of NeMo Gym (JSONL)", conversations=conversations_of)
