"""An episode as a chat, as most trainers and viewers read it: the page is the user's turn, the answer the assistant's."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from hindcast.app.exports.exporter import ExportSources, RecordedPages
from hindcast.app.runs.sources import open_source
from hindcast.core.domain.arrays import unpack_ids
from hindcast.events.catalogue import StepTaken
from hindcast.events.envelope import BlobRef
from hindcast.events.log.episode_assembler import AssembledEpisode

DECIDED = ("success", "failure")
DELETED = "(the page was deleted)"


def chat_of(played: AssembledEpisode, sources: ExportSources) -> list[dict[str, str]]:
    """Messages with `role` and `content`. The first one starts with the instruction; each page is as the policy reads pages."""
    turns = ((shown_page(step.fact.observation, sources), step.fact.answer) for step in played.steps)
    return messages_of(played.started.instruction, turns)


def messages_of(instruction: str, turns: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    """The chat of an episode from its steps: the text of each page, and the answer to it."""
    messages: list[dict[str, str]] = []
    for page, answer in turns:
        opening = "" if messages else f"{instruction}\n\n"
        messages.append({"role": "user", "content": opening + page})
        messages.append({"role": "assistant", "content": answer})
    return messages


def shown_page(ref: BlobRef | None, pages: RecordedPages) -> str:
    """A recorded page as the policy reads pages, or a note that it was deleted."""
    page = pages.page(ref)
    return DELETED if page is None else pages.text(page)


def page_text(run: str, ref: BlobRef | None) -> str:
    """A recorded page of a run of this home, by `shown_page`. Raises NoSuchRun."""
    return shown_page(ref, _pages_of(run))


@cache
def _pages_of(run: str) -> RecordedPages:
    source = open_source(run)
    return RecordedPages(source.blobs, source.settings)


def reward_of(outcome: str | None, reward: float | None) -> float | None:
    """The reward of a sure verdict; None: there is no verdict, or it is undecided."""
    return reward if outcome in DECIDED else None


def policy_name(step: StepTaken, base: str) -> str | None:
    """The base policy and the version that sampled the answer, as `base@7`; None: a demonstrator gave it."""
    version = max(unpack_ids(step.versions).tolist(), default=-1)
    return None if version < 0 else f"{base}@{version}"


def moment(ns: int) -> str:
    """A time in nanoseconds since 1970, in ISO 8601."""
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat()


def provenance_of(played: AssembledEpisode) -> dict[str, Any]:
    """The columns that say which episode a row comes from."""
    return {
        "episode": played.name,
        "group": played.request.group,
        "task": played.task.name,
        "family": played.family,
        "origin": played.request.origin,
    }
