"""One question of an agent to the policy: read from OpenAI's formats, answered in them."""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from hindcast.actors.agents.contexts import turns_of
from hindcast.core.prompts.chat_messages import ChatUnreadable, text_of

_TOOL_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
"""How Qwen's and Hermes' models write a call of a tool."""
MODEL = "policy"
"""Name of the model that the policy is served as."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The policy's answer to a call."""

    text: str
    finish: Literal["stop", "length"]
    prompt_tokens: int
    answer_tokens: int
    version: int
    """Newest policy version that sampled a token of it."""
    number: int = 0
    """Place among the answers of its episode, or of its server: ids in it contain the number."""


class ModelCall:
    """A call that waits for its answer."""

    def __init__(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        prompt_ids: list[int],
        max_tokens: int,
        uses_tools: bool,
    ) -> None:
        """Raises ChatUnreadable."""
        self.text = _new_text(messages)
        """What is new to the policy: the page of the step."""
        self.turns = turns_of(messages)
        self.prompt_ids = prompt_ids
        self.max_tokens = max_tokens
        self.uses_tools = uses_tools
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    @property
    def given_up(self) -> bool:
        """Whether its client left before it was answered."""
        return self.reply.cancelled()


def _new_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The messages since the latest answer, as text. Raises ChatUnreadable."""
    texts: list[str] = []
    for message in reversed(messages):
        if message.get("role") == "assistant":
            break
        texts.append(text_of(message.get("content")))
    return "\n".join(reversed(texts))


UNSUPPORTED_IN_CHAT = ("stop", "logprobs", "functions", "audio")
UNSUPPORTED_IN_RESPONSES = ("previous_response_id", "conversation", "background", "prompt")
"""Parts of a request that would change the answer, and that no policy here heeds."""


def refuse_unsupported(body: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises ChatUnreadable if a request has a part with a name in `names`."""
    for name in names:
        if body.get(name):
            raise ChatUnreadable(f"{name} is {body[name]!r}: the policy is not asked with it. Leave it out.")


def read_chat(body: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Messages and tools of a request to `chat/completions`. Raises ChatUnreadable."""
    refuse_unsupported(body, UNSUPPORTED_IN_CHAT)
    messages, tools = body.get("messages"), body.get("tools") or []
    if not isinstance(messages, list) or not isinstance(tools, list):
        raise ChatUnreadable("a request needs `messages`, a list; `tools` is a list, too")
    if not isinstance(body.get("stream_options") or {}, dict):
        raise ChatUnreadable(
            f"stream_options is {body['stream_options']!r}: expected an object, such as {{'include_usage': true}}"
        )
    form = body.get("response_format") or {"type": "text"}
    schema = form.get("json_schema") if isinstance(form, dict) else None
    return _with_form(messages, form, schema), _offered(body, tools)


def read_response(body: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Messages and tools of a request to `responses`. Raises ChatUnreadable."""
    refuse_unsupported(body, UNSUPPORTED_IN_RESPONSES)
    items, tools = body.get("input"), body.get("tools") or []
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list) or not isinstance(tools, list):
        raise ChatUnreadable("a request needs `input`, a text or a list of messages; `tools` is a list")
    foreign = [tool for tool in tools if not isinstance(tool, dict) or tool.get("type") != "function"]
    if foreign:
        raise ChatUnreadable(
            f"a tool is {foreign[0]!r}: expected the type function; no other tool is offered here"
        )
    opening = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    functions = [{"type": "function", "function": tool} for tool in tools]
    messages = [*opening, *_chat_messages(items)]
    text = body.get("text") or {}
    form = (text.get("format") if isinstance(text, dict) else text) or {"type": "text"}
    return _with_form(messages, form, form), _offered(body, functions)


def _chat_messages(items: Sequence[Any]) -> list[dict[str, Any]]:
    """The messages of a chat for the items of an `input`: messages, calls of tools and their outputs; reasoning is left out.

    Raises ChatUnreadable.
    """
    messages: list[dict[str, Any]] = []
    for item in items:
        match item:
            case {"role": role}:
                messages.append({"role": role, "content": item.get("content")})
            case {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}:
                call = {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                messages[-1]["tool_calls"] = [*messages[-1].get("tool_calls", ()), call]
            case {"type": "function_call_output", "call_id": call_id, "output": output}:
                messages.append({"role": "tool", "tool_call_id": call_id, "content": output})
            case {"type": "reasoning"}:
                continue  # another model's: no answer of the policy has one
            case _:
                kind = item.get("type") if isinstance(item, dict) else item
                raise ChatUnreadable(
                    f"an input has an item of type {kind!r}: expected message, function_call, function_call_output or reasoning"
                )
    return messages


def _offered(body: Mapping[str, Any], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tools that the policy is offered. Raises ChatUnreadable where a call of one is demanded."""
    choice = body.get("tool_choice") or "auto"
    if choice not in ("auto", "none"):
        raise ChatUnreadable(
            f"tool_choice is {choice!r}: no answer is forced to call a tool, so ask with 'auto' or 'none'"
        )
    return tools if choice == "auto" else []


def _with_form(messages: list[Any], form: Any, described: Any) -> list[dict[str, Any]]:
    """The chat with the wanted form of the answer in its system message: the answer is sampled freely, and may miss it.

    `described`: what holds the `schema` of a form `json_schema`. Raises ChatUnreadable.
    """
    chat = [
        message | {"role": "system"}
        if isinstance(message, dict) and message.get("role") == "developer"
        else message
        for message in messages
    ]
    match form, described:
        case {"type": "text"}, _:
            return chat
        case {"type": "json_object"}, _:
            form_text = "Answer with a JSON object and nothing else."
        case {"type": "json_schema"}, {"schema": dict(schema)}:
            form_text = (
                f"Answer with JSON of this schema and nothing else:\n{msgspec.json.encode(schema).decode()}"
            )
        case _:
            raise ChatUnreadable(
                f"the format of the answer is {form!r}: expected the type text, json_object, or json_schema with a schema"
            )
    if chat and isinstance(chat[0], dict) and chat[0].get("role") == "system":
        return [chat[0] | {"content": f"{text_of(chat[0].get('content'))}\n\n{form_text}"}, *chat[1:]]
    return [{"role": "system", "content": form_text}, *chat]


def message_of(reply: Reply, *, uses_tools: bool) -> dict[str, Any]:
    """The assistant's message, with the calls of tools that the answer spells where tools were offered."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    calls = []
    for index, tool_text in enumerate(_TOOL_CALL.findall(reply.text) if uses_tools else ()):
        try:
            call = msgspec.json.decode(tool_text)
            function = {
                "name": str(call["name"]),
                "arguments": msgspec.json.encode(call.get("arguments", {})).decode(),
            }
        except (msgspec.DecodeError, KeyError, TypeError):
            continue
        # nine letters and digits up to a thousand answers, because templates of Mistral's models accept no other ids
        call_id = f"call{reply.number:03}{index:02}"
        calls.append({"id": call_id, "type": "function", "function": function})
    if calls:
        message |= {"content": _TOOL_CALL.sub("", reply.text).strip() or None, "tool_calls": calls}
    return message


def chat_completion(reply: Reply, *, uses_tools: bool) -> dict[str, Any]:
    """The body of an answer to `chat/completions`."""
    message = message_of(reply, uses_tools=uses_tools)
    finish = "tool_calls" if "tool_calls" in message else reply.finish
    return {
        "id": f"chatcmpl-{time.time_ns()}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": f"{MODEL}-{reply.version}",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": _usage(reply, "prompt_tokens", "completion_tokens"),
    }


def chat_chunks(reply: Reply, *, uses_tools: bool, with_usage: bool) -> list[dict[str, Any]]:
    """The events of a streamed answer. It is streamed once it is complete: an answer is one step."""
    full_answer = chat_completion(reply, uses_tools=uses_tools)
    choice, usage = full_answer["choices"][0], full_answer.pop("usage")
    head = full_answer | {"object": "chat.completion.chunk"}
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(delta["tool_calls"])]
    last = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    chunks = [
        head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        head | {"choices": [last]},
    ]
    return [*chunks, head | {"choices": [], "usage": usage}] if with_usage else chunks


def response(reply: Reply, *, uses_tools: bool) -> dict[str, Any]:
    """The body of an answer to `responses`."""
    message = message_of(reply, uses_tools=uses_tools)
    output: list[dict[str, Any]] = []
    if message["content"] is not None:
        part = {"type": "output_text", "text": message["content"], "annotations": []}
        output.append(
            {"id": f"msg_{reply.number}", "type": "message", "role": "assistant"}
            | {"status": "completed", "content": [part]}
        )
    output += [
        {"id": call["id"], "type": "function_call", "call_id": call["id"], "status": "completed"}
        | call["function"]
        for call in message.get("tool_calls", ())
    ]
    return {
        "id": f"resp-{time.time_ns()}",
        "object": "response",
        "created_at": int(time.time()),
        "model": f"{MODEL}-{reply.version}",
        "status": "completed" if reply.finish == "stop" else "incomplete",
        "incomplete_details": None if reply.finish == "stop" else {"reason": "max_output_tokens"},
        "error": None,
        "instructions": None,
        "metadata": {},
        "output": output,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": _usage(reply, "input_tokens", "output_tokens")
        | {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}},
    }


def response_events(reply: Reply, *, uses_tools: bool) -> list[dict[str, Any]]:
    """The events of a streamed answer to `responses`, each named by its `type`. It is streamed once it is complete."""
    full_response = response(reply, uses_tools=uses_tools)
    started = full_response | {
        "status": "in_progress",
        "incomplete_details": None,
        "output": [],
        "usage": None,
    }
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": started},
        {"type": "response.in_progress", "response": started},
    ]
    for index, item in enumerate(full_response["output"]):
        position = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            (text_part,) = item["content"]
            empty_fields: dict[str, Any] = {"content": []}
            position |= {"content_index": 0}
            item_events = [
                {"type": "response.content_part.added", **position, "part": text_part | {"text": ""}},
                {
                    "type": "response.output_text.delta",
                    **position,
                    "delta": text_part["text"],
                    "logprobs": [],
                },
                {"type": "response.output_text.done", **position, "text": text_part["text"], "logprobs": []},
                {"type": "response.content_part.done", **position, "part": text_part},
            ]
        else:
            empty_fields, kind, spelled = (
                {"arguments": ""},
                "response.function_call_arguments",
                item["arguments"],
            )
            item_events = [
                {"type": f"{kind}.delta", **position, "delta": spelled},
                {"type": f"{kind}.done", **position, "name": item["name"], "arguments": spelled},
            ]
        started_item = item | {"status": "in_progress"} | empty_fields
        events += [
            {"type": "response.output_item.added", "output_index": index, "item": started_item},
            *item_events,
            {"type": "response.output_item.done", "output_index": index, "item": item},
        ]
    events.append({"type": f"response.{full_response['status']}", "response": full_response})
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


def _usage(reply: Reply, prompt: str, answer: str) -> dict[str, Any]:
    return {
        prompt: reply.prompt_tokens,
        answer: reply.answer_tokens,
        "total_tokens": reply.prompt_tokens + reply.answer_tokens,
    }
