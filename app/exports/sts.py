"""`hindcast export --format sts`: Session Trace Simple Format of the Hugging Face Hub, `EPISODE.jsonl` for each episode.

A header line, then a line for each message (huggingface.co/docs/hub/session-traces-format, as of 2026-07): the
instruction by the user, answers with their thought and their action as a tool call, pages as the results of the calls.
"""

from typing import Any, Literal

import msgspec

from hindcast.app.exports.chat import policy_name
from hindcast.app.exports.exporter import EpisodeFile, Exporter, ExportSources
from hindcast.app.exports.functions import arguments_of, function_name
from hindcast.core.grammar.answer_parser import split_form
from hindcast.events.envelope import BlobRef
from hindcast.events.log.episode_assembler import AssembledEpisode

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


def session_of(played: AssembledEpisode, sources: ExportSources) -> list[dict[str, Any]]:
    """Convert an episode to the lines of a session."""
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


def _messages(played: AssembledEpisode, sources: ExportSources) -> list[StsMessage]:
    steps, base = played.steps, sources.origin.settings.policy.base
    told = [StsMessage(role="user", content=played.started.instruction, timestamp=_ms(played.started_ns))]
    if steps:
        told.append(StsMessage(role="system", content=_text(steps[0].fact.observation, sources)))
    for number, step in enumerate(steps):
        fact = step.fact
        thought, answer = split_form(fact.answer)
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
                model=policy_name(fact, base),
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


def _text(ref: BlobRef | None, sources: ExportSources) -> str:
    page = sources.page(ref)
    return MISSING if page is None else sources.text(page)


def _ms(ns: int) -> int:
    return ns // 1_000_000


def _content(played: AssembledEpisode, sources: ExportSources) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in session_of(played, sources))


EXPORTER = Exporter(
    writes="a session in Hugging Face's Session Trace Simple Format for each episode",
    episode_file=EpisodeFile(suffix="jsonl", media_type="application/jsonl", content=_content),
)
