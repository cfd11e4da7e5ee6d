"""`hindcast export --format sts`: Session Trace Simple Format of the Hugging Face Hub, `EPISODE.jsonl` for each episode.

A header line, then a line for each message (huggingface.co/docs/hub/session-traces-format, as of 2026-07): the
instruction by the user, answers with their thought and their action as a tool call, pages as the results of the calls.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from hindcast.app.exports.episodes import AssembledEpisode
from hindcast.app.exports.functions import arguments_of, function_name
from hindcast.app.exports.output_folder import file_name
from hindcast.app.exports.writer import Sources
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.grammar.answer_form import split_form
from hindcast.events.envelope import BlobRef, Recorded

HARNESS = "hindcast"
MISSING = "(this page was not recorded, or was deleted)"


class StsFunction(msgspec.Struct, frozen=True, kw_only=True):
    """Function of a call."""

    name: str
    arguments: str
    """A JSON object."""


class StsCall(msgspec.Struct, frozen=True, kw_only=True):
    """One action."""

    id: str
    function: StsFunction


class StsMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of the session."""

    role: Literal["user", "assistant", "system", "tool"]
    content: str
    reasoningContent: str | None = None  # the format's name
    toolCalls: list[StsCall] | None = None
    toolCallId: str | None = None
    timestamp: int | None = None
    """Milliseconds since 1970."""
    model: str | None = None


def session_of(played: AssembledEpisode, sources: Sources) -> list[dict[str, Any]]:
    """Lines of an episode's session."""
    task, ended = played.request.task, played.ended
    header = {
        "type": "session",
        "harness": HARNESS,
        "id": ended.episode,
        "name": played.started.instruction,
        "run": sources.origin.run,
        "task": f"{task.environment}/{task.family}",
        "policy_versions": list(ended.policy_versions),
        "outcome": sources.chosen[ended.episode].outcome,
    }
    messages = _messages(played, sources)
    return [header, *({"type": "message", "message": msgspec.to_builtins(one)} for one in messages)]


def _messages(played: AssembledEpisode, sources: Sources) -> list[StsMessage]:
    steps, base = played.steps, sources.origin.settings.policy.base
    told = [StsMessage(role="user", content=played.started.instruction, timestamp=_ms(played.started_ns))]
    if steps:
        told.append(StsMessage(role="system", content=_text(steps[0].fact.observation, sources)))
    for number, step in enumerate(steps):
        fact = step.fact
        thought, answer = split_form(fact.answer)
        versions = unpack_ids(fact.versions).tolist()
        call = f"step_{fact.index}"
        calls = None
        if fact.action is not None:
            arguments = msgspec.json.encode(arguments_of(fact.action)).decode()
            calls = [
                StsCall(
                    id=call, function=StsFunction(name=function_name(fact.action.name), arguments=arguments)
                )
            ]
        told.append(
            StsMessage(
                role="assistant",
                content=answer,
                reasoningContent=thought or None,
                toolCalls=calls,
                timestamp=_ms(step.occurred_ns),
                model=f"{base}@{max(versions)}" if versions and max(versions) >= 0 else None,
            )
        )
        last = number + 1 == len(steps)
        page = _text(played.ended.final_observation if last else steps[number + 1].fact.observation, sources)
        seen = page if fact.result in ("ok", "exit") else f"{fact.result}: {fact.detail}\n{page}"
        told.append(
            StsMessage(role="tool", content=seen, toolCallId=call)
            if calls
            else StsMessage(role="system", content=seen)
        )
    return told


def _text(ref: BlobRef | None, sources: Sources) -> str:
    page = sources.page(ref)
    return MISSING if page is None else sources.text(page)


def _ms(ns: int) -> int:
    return ns // 1_000_000


class StsWriter:
    """Writes sessions; see `app.exports.writer.Writer`."""

    def __init__(self, folder: Path, sources: Sources) -> None:
        self._folder = folder
        self._sources = sources
        self._episodes = 0

    def fact(self, recorded: Recorded) -> None:
        """Ignore single events: a session is a whole episode."""

    def episode(self, played: AssembledEpisode) -> None:
        """Write a file."""
        lines = [msgspec.json.encode(line) for line in session_of(played, self._sources)]
        (self._folder / file_name(played.ended.episode, "jsonl")).write_bytes(b"\n".join(lines) + b"\n")
        self._episodes += 1

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Nothing left to write."""
        return {"episodes": self._episodes}
