"""An episode as a chat, as most trainers and viewers read it: the page is the user's turn, the answer the assistant's."""

from typing import Any

from hindcast.app.exports.exporter import ExportSources
from hindcast.core.domain.observation import Page
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


def provenance_of(played: AssembledEpisode) -> dict[str, Any]:
    """The columns that say which episode a row comes from."""
    return {
        "episode": played.name,
        "group": played.request.group,
        "task": played.task.name,
        "family": played.family,
        "origin": played.request.origin,
    }
