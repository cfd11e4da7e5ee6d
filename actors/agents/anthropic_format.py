"""Anthropic's format of messages: requests read into a chat in OpenAI's format, and answers written from replies."""

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from hindcast.actors.agents.model_call import MODEL, Reply, message_of, refuse_unsupported
from hindcast.core.prompts.chat_messages import ChatUnreadable, text_of

UNSUPPORTED = ("stop_sequences", "thinking", "output_config", "output_format", "mcp_servers", "container")
"""Parts of a request that would change the answer, and that no policy here heeds."""
STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}
ERROR_TYPES = {404: "not_found_error", 410: "not_found_error", 413: "request_too_large"}
"""Names of errors by status; others are an `invalid_request_error`."""


def read_messages(body: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Messages and tools of a request to `messages`, in OpenAI's format. Raises ChatUnreadable."""
    refuse_unsupported(body, UNSUPPORTED)
    request_messages, tools = body.get("messages"), body.get("tools") or []
    if not isinstance(request_messages, list) or not isinstance(tools, list):
        raise ChatUnreadable("a request needs `messages`, a list; `tools` is a list, too")
    messages = [{"role": "system", "content": text_of(body["system"])}] if body.get("system") else []
    for message in request_messages:
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            raise ChatUnreadable("every message needs the role user or assistant, and a content")
        messages += _chat_messages(message["role"], message.get("content"))
    choice = body.get("tool_choice") or {"type": "auto"}
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if kind not in ("auto", "none"):
        raise ChatUnreadable(
            f"tool_choice is {kind!r}: no answer is forced to call a tool, so ask with 'auto' or 'none'"
        )
    return messages, [_function(tool) for tool in tools] if kind == "auto" else []


def _chat_messages(role: str, content: Any) -> list[dict[str, Any]]:
    """A message as one of the chat, after one for each result of a tool in it."""
    blocks = content if isinstance(content, list) else [{"type": "text", "text": text_of(content)}]
    texts: list[Any] = []
    calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for block in blocks:
        match block:
            case {"type": "tool_use", "id": str(call), "name": str(name)} if role == "assistant":
                function = {
                    "name": name,
                    "arguments": msgspec.json.encode(block.get("input") or {}).decode(),
                }
                calls.append({"id": call, "type": "function", "function": function})
            case {"type": "tool_result", "tool_use_id": str(call)} if role == "user":
                result_text = text_of(block.get("content"))
                results.append({"role": "tool", "tool_call_id": call, "content": result_text})
            case _:
                texts.append(block)
    if not texts and not calls:
        return results
    chat_message: dict[str, Any] = {"role": role, "content": text_of(texts)}
    return [*results, chat_message | {"tool_calls": calls} if calls else chat_message]


def _function(tool: Any) -> dict[str, Any]:
    match tool:
        case {"name": str(name), "input_schema": dict(schema)}:
            described = {"name": name, "description": tool.get("description") or "", "parameters": schema}
            return {"type": "function", "function": described}
    raise ChatUnreadable(
        f"a tool is {tool!r}: expected a name and an input_schema; tools that a server runs are not offered here"
    )


def message(reply: Reply, *, uses_tools: bool) -> dict[str, Any]:
    """The body of an answer to `messages`."""
    chat_message = message_of(reply, uses_tools=uses_tools)
    calls = chat_message.get("tool_calls", ())
    content: list[dict[str, Any]] = (
        [{"type": "text", "text": chat_message["content"]}] if chat_message["content"] else []
    )
    for call in calls:
        arguments = msgspec.json.decode(call["function"]["arguments"])
        content.append(
            {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments}
        )
    return {
        "id": f"msg_{time.time_ns()}",
        "type": "message",
        "role": "assistant",
        "model": f"{MODEL}-{reply.version}",
        "content": content,
        "stop_reason": "tool_use" if calls else STOP_REASONS[reply.finish],
        "stop_sequence": None,
        "usage": {"input_tokens": reply.prompt_tokens, "output_tokens": reply.answer_tokens},
    }


def message_events(reply: Reply, *, uses_tools: bool) -> list[dict[str, Any]]:
    """The events of a streamed answer, each named by its `type`. It is streamed once it is complete."""
    full_message = message(reply, uses_tools=uses_tools)
    ending = {"stop_reason": full_message["stop_reason"], "stop_sequence": None}
    started = full_message | {
        "content": [],
        "stop_reason": None,
        "usage": full_message["usage"] | {"output_tokens": 0},
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": started}]
    for index, block in enumerate(full_message["content"]):
        if block["type"] == "text":
            empty_block, delta = block | {"text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            spelled = msgspec.json.encode(block["input"]).decode()
            empty_block, delta = block | {"input": {}}, {"type": "input_json_delta", "partial_json": spelled}
        events += [
            {"type": "content_block_start", "index": index, "content_block": empty_block},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    return [
        *events,
        {"type": "message_delta", "delta": ending, "usage": full_message["usage"]},
        {"type": "message_stop"},
    ]


def error_body(status: int, text: str) -> dict[str, Any]:
    """The body of a refusal."""
    return {
        "type": "error",
        "error": {"type": ERROR_TYPES.get(status, "invalid_request_error"), "message": text},
    }
