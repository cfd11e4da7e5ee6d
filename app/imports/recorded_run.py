"""What the readers of other systems' runs share: lines of JSON, messages, and the conversation made of them."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hindcast.actors.episodes.answerers import NO_VERSION
from hindcast.app.imports.conversation import Conversation, Turn
from hindcast.app.imports.decoder import LARGEST, DocumentError
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.task import FIRST_EVALUATION_SEED, Task
from hindcast.core.ids import digest_hex
from hindcast.core.structs import decode_json

MAX_STEPS = 10_000
"""Step limit of a task whose log sets none. Tasks are identified by content, so it is the same for all episodes."""
Located = Iterator[tuple[str, Conversation]]
"""Conversations with their place in the file."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message, and the tokens of an answer."""

    content: dict[str, Any]
    """The message in OpenAI's format, with its content as text."""
    sampled: bool = False
    """Whether the recorded model answered it."""
    prompt_ids: tuple[int, ...] = ()
    action_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout of another system, in the terms that all of them share."""

    source: str
    """Format that it was read from."""
    family: str
    """Name of its environment or agent."""
    key: str
    """Name of its task within the family."""
    target: Any = None
    """Expected answer, where the log has one."""
    rollout: str
    """Name of the rollout in its log."""
    group: str = ""
    version: int = NO_VERSION
    trainer_version: int | None = None
    """Newest policy version when it began; None: unknown."""
    rewards: Mapping[str, float | None] = {}
    """Rewards by name, the one that counts first."""
    error: str = ""
    """Error that ended it; empty: none did."""
    truncated: bool = False
    """Whether a limit of steps or tokens ended it."""
    trained: bool | None = None
    """Whether the other system trained on it; None: the log does not say."""
    more: Mapping[str, Any] = {}
    """Further fields for judges."""
    duration_s: float = 0.0


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object of a JSONL file with its place. Raises DocumentError and OSError."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line, parse_constant=lambda _: None, parse_int=integer)
            except (ValueError, RecursionError) as error:
                raise DocumentError(f"line {number}", f"it is no JSON: {error}") from error
            if not isinstance(found, dict):
                raise DocumentError(f"line {number}", "expected an object")
            yield f"line {number}", found


def integer(text: str) -> int:
    """Read an integer. Raises ValueError if a column of the read model cannot hold it."""
    number = int(text)
    if not -LARGEST <= number <= LARGEST:
        raise ValueError("an integer does not fit into 64 bits with a sign")
    return number


def seed_of(name: int | str) -> int:
    """Seed of a task: its name if that is a small number, else a number made from it."""
    if isinstance(name, int) and 0 <= name < FIRST_EVALUATION_SEED:
        return name
    return int(digest_hex(str(name).encode())[:12], 16) % FIRST_EVALUATION_SEED


def family_of(name: str, otherwise: str) -> str:
    """Name of a family: letters, digits, `_`, `.` and `-`."""
    return re.sub(r"[^\w.-]", "_", name) or otherwise


def text_of(content: Any, key: str, *, kinds: Sequence[str] = ("text",)) -> str:
    """The text of a message's content. Raises DocumentError for anything but text."""
    if content is None or isinstance(content, str):
        return content or ""
    for at, part in enumerate(content):
        if part["type"] not in kinds:
            raise DocumentError(f"{key}[{at}]", f"a part of type {part['type']!r}: only text can be imported")
    return "\n".join(part["text"] for part in content)


def thought(text: str) -> str:
    """Reasoning, as models write it before their answer."""
    return f"<think>{text}</think>\n" if text else ""


def call_of(name: str, arguments: str, identifier: str) -> dict[str, Any]:
    """A call of a tool in OpenAI's format."""
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversation_of(found: Recorded, messages: Sequence[Message]) -> Conversation:
    """Build the conversation of a rollout whose messages follow each other."""
    turns, new = [], list[dict[str, Any]]()
    for message in messages:
        if not message.sampled:
            new.append(message.content)
            continue
        turns.append(
            Turn(
                new=tuple(new),
                answer=message.content,
                prompt_ids=message.prompt_ids,
                action_ids=message.action_ids,
                logprobs=message.logprobs,
            )
        )
        new = []
    return conversation_of_turns(found, turns, rest=new)


def conversation_of_turns(
    found: Recorded, turns: Sequence[Turn], *, rest: Sequence[dict[str, Any]] = ()
) -> Conversation:
    """Build the conversation of a rollout. One without an answer, or with an error and no reward, does not count."""
    first = turns[0].new if turns else rest
    asked = next((one["content"] for one in reversed(first) if one["role"] == "user"), "")
    failure = "" if turns else found.error or "the log has no answer of the model"
    if not any(value is not None for value in found.rewards.values()):
        failure = failure or found.error
    return Conversation(
        task=Task(
            environment="agent",
            family=family_of(found.family, found.source),
            seed=seed_of(int(found.key) if found.key.isdecimal() else found.key),
            instruction=asked,
            goal={"source": found.source, "task": found.family, "sample": found.key, "target": found.target},
            max_steps=MAX_STEPS,
        ),
        turns=tuple(turns),
        rest=tuple(rest),
        reason="max_steps" if found.truncated else "done",
        failure=failure,
        evidence=Evidence(
            answer=turns[-1].text if turns else None,
            final_url="",
            probes={
                "source": found.source,
                "rollout": found.rollout,
                "error": found.error,
                "trained": found.trained,
                "trainer_version": found.trainer_version,
                "scores": {name: {"value": value} for name, value in found.rewards.items()},
                **found.more,
            },
        ),
        duration_ms=1000.0 * found.duration_s,
        group=found.group,
        version=found.version,
    )


def checked(convert: Callable[[], Conversation], place: str, what: str) -> Conversation:
    """Convert a rollout and check all its types. Raises DocumentError with the place.

    Encoding and decoding also refuses half a surrogate pair, which JSON can spell and which is no text.
    """
    try:
        return decode_json(msgspec.json.encode(convert()), Conversation, strict=True)
    except DocumentError as error:
        raise DocumentError(place, str(error)) from error
    except (LookupError, TypeError, AttributeError, ValueError, msgspec.MsgspecError) as error:
        raise DocumentError(place, f"it is no {what} ({error!r})") from error
