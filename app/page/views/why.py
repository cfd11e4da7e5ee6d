"""Why the policy changed: how a family's success changed, and the explanations that `hindcast why` kept, with their steps' pages."""

from contextlib import suppress

import msgspec

from hindcast.app.page.runs import PageQuery
from hindcast.app.page.views.episode import Frame, with_frames
from hindcast.app.page.views.family import FamilyChange, family_change
from hindcast.app.runs.explanations import (
    Explanation,
    FamilyPart,
    MovingEpisode,
    MovingStep,
    largest_steps,
    list_explanations,
    load_explanation,
    parts_by_family,
)
from hindcast.storage.readmodel.episode_queries import show_episode
from hindcast.storage.readmodel.query_parts import NotInReadModel

MOST_STEPS = 24
MOST_TOKENS = 40


class ExplainedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step with a large part, and what it looked like."""

    episode: MovingEpisode
    step: MovingStep
    frame: Frame | None
    """The page before the step; None: no picture was taken of it."""


class WhyPage(msgspec.Struct, frozen=True, kw_only=True):
    """The page's values."""

    kept: dict[str, str]
    """The questions that were asked, by the name of their explanation, the latest first."""
    chosen: str
    """Name of the explanation that is shown; empty: none is kept."""
    found: Explanation | None
    families: list[FamilyPart]
    steps: list[ExplainedStep]
    change: FamilyChange | None
    """Of the chosen family, by default of the one that fell most; None: no two versions played one."""


def why(ask: PageQuery) -> WhyPage:
    """The chosen family's change and the chosen explanation, by default the latest. Raises NotInReadModel, SettingsError."""
    folder = ask.run.folder
    kept = list_explanations(folder)
    chosen = ask.word("of") or next(iter(kept), "")
    change = family_change(ask)
    if not chosen:
        return WhyPage(kept={}, chosen="", found=None, families=[], steps=[], change=change)
    if chosen not in kept:
        raise NotInReadModel(
            f"there is no explanation {chosen!r} of run {ask.run.name}. Run: hindcast why policy=last"
        )
    found = load_explanation(folder, chosen)
    largest = largest_steps(found)[:MOST_STEPS]
    frames = _frames(ask, {episode.episode for episode, _ in largest})
    return WhyPage(
        kept=kept,
        chosen=chosen,
        found=msgspec.structs.replace(found, tokens=found.tokens[:MOST_TOKENS]),
        families=parts_by_family(found.episodes),
        steps=[
            ExplainedStep(episode=episode, step=step, frame=frames.get((episode.episode, step.step)))
            for episode, step in largest
        ],
        change=change,
    )


def _frames(ask: PageQuery, episodes: set[str]) -> dict[tuple[str, int], Frame]:
    """The pictures that there are of the pages before the episodes' steps."""
    found: dict[tuple[str, int], Frame] = {}
    for name in episodes:
        with suppress(NotInReadModel):
            detail = show_episode(ask.connection, name, as_of=ask.position)
            for frame in with_frames(detail, ask.run).frames:
                if frame.step is not None and frame.shows == "before" and frame.sha256 is not None:
                    found[name, frame.step] = frame
    return found
