"""Reads ATIF trajectories of any agent as conversations: a file with one, or a folder of such files.

A step of the agent is an answer: its reasoning, its message and its calls of tools. Results of the calls are messages of their
tools, other observations messages of the user. Steps that called no model, or that were copied from an earlier trajectory, are
part of the prompt. Pictures are named, not read. ATIF has no reward; a number in the document's `extra.reward` counts as one.

Source: RFC 0001 of harbor-framework/harbor, versions 1.0 to 1.8 (`app.exports.atif_format`). Hindcast's own trajectories also
hold the pages; `app.imports.atif` reads those as demonstrations.
"""

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from hindcast.app.exports.atif_format import READ, ContentPart, Step, Trajectory
from hindcast.app.imports.conversation import Conversation
from hindcast.app.imports.decoder import DocumentError, decoded
from hindcast.app.imports.importer import Importer
from hindcast.app.imports.recorded_run import (
    Located,
    Message,
    Recorded,
    call_of,
    checked,
    conversation_of,
    thought,
)
from hindcast.core.ids import digest_hex

SOURCE = "atif"


def conversations_of(path: Path) -> Located:
    """Yield every trajectory with its file.

    Raises:
        DocumentError: a file is no trajectory, or has parts that are not read (subagents, continuations, audio).
        OSError: a file cannot be read.

    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise DocumentError("", f"{path} holds no trajectory (*.json)")
    for file in files:
        place = file.name
        try:
            found = decoded(file.read_bytes(), Trajectory)
        except DocumentError as error:
            raise DocumentError(place, str(error)) from error
        if found.schema_version not in READ:
            raise DocumentError(
                f"{place}, schema_version", f"{found.schema_version!r} is not one of {', '.join(READ)}"
            )
        yield place, checked(partial(_conversation, found, place), place, "trajectory")


def _conversation(found: Trajectory, place: str) -> Conversation:
    reward = (found.extra or {}).get("reward")
    rewards = (
        {"reward": float(reward)} if isinstance(reward, int | float) and not isinstance(reward, bool) else {}
    )
    messages = [message for step in found.steps for message in _messages(step)]
    asked = next((one.content["content"] for one in messages if one.content["role"] == "user"), "")
    return conversation_of(
        Recorded(
            source=SOURCE,
            family=found.agent.name,
            key=digest_hex(asked.encode())[:16],
            rollout=found.trajectory_id or found.session_id or place,
            rewards=rewards,
            more={"fields": {"model": found.agent.model_name, "agent_version": found.agent.version}},
            duration_s=_duration_s(found.steps),
        ),
        messages,
    )


def _messages(step: Step) -> list[Message]:
    role = "assistant" if step.source == "agent" else step.source
    content: dict[str, Any] = {
        "role": role,
        "content": thought(step.reasoning_content or "") + _text(step.message),
    }
    if step.tool_calls:
        content["tool_calls"] = [
            call_of(call.function_name, msgspec.json.encode(call.arguments).decode(), call.tool_call_id)
            for call in step.tool_calls
        ]
    metrics = step.metrics
    sampled = step.source == "agent" and not step.is_copied_context and step.llm_call_count != 0
    found = [
        Message(
            content=content,
            sampled=sampled,
            prompt_ids=tuple(metrics.prompt_token_ids or ()) if metrics else (),
            action_ids=tuple(metrics.completion_token_ids or ()) if metrics else (),
            logprobs=tuple(metrics.logprobs or ()) if metrics else (),
        )
    ]
    for result in step.observation.results if step.observation else ():
        caller = result.source_call_id
        of = {"role": "tool", "tool_call_id": caller} if caller else {"role": "user"}
        found.append(Message(content={**of, "content": _text(result.content)}))
    return found


def _text(content: str | list[ContentPart] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(
        part.text or "" if part.type == "text" else f"[picture {part.source.path if part.source else ''}]"
        for part in content
    )


def _duration_s(steps: list[Step]) -> float:
    times = [datetime.fromisoformat(step.timestamp) for step in steps if step.timestamp]
    return max(0.0, (times[-1] - times[0]).total_seconds()) if times else 0.0


IMPORTER = Importer(reads="ATIF trajectories of any agent", conversations=conversations_of)
