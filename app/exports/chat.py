"""An episode as a chat, as most trainers and viewers read it: the page is the user's turn, the answer the assistant's."""

from datetime import UTC, datetime
from typing import Any

from hindcast.app.exports.exporter import ExportSources
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.domain.observation import Page
from hindcast.events.catalogue import StepTaken
from hindcast.events.log.episode_assembler import AssembledEpisode

DECIDED = ("success", "failure")
DELETED = "(the page was deleted)"


def chat_of(played: AssembledEpisode, sources: ExportSources) -> list[dict[str, str]]:
    """Messages with `role` and `content`. The first one starts with the instruction; each page is as the policy reads pages."""
    messages: list[dict[str, str]] = []
    for step in played.steps:
        opening = "" if messages else f"{played.started.instruction}\n\n"
        shown = shown_page(sources.page(step.fact.observation), sources)
        messages.append({"role": "user", "content": opening + shown})
        messages.append({"role": "assistant", "content": step.fact.answer})
    return messages


def shown_page(page: Page | None, sources: ExportSources) -> str:
    """A page as the policy reads pages, or a note that it was deleted."""
    return DELETED if page is None else sources.text(page)


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
