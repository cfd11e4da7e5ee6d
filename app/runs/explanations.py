"""Explanations of a run's updates (`hindcast why`), and where a run keeps them: they take minutes to compute.

They follow from the log and can be computed again at any time, so they are files next to it and no events.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import msgspec

from hindcast.app.system.processes import write_json
from hindcast.core.errors import SettingsError
from hindcast.core.structs import decode_json

FOLDER = "why"
"""Folder of a run's explanations, below its own."""


class MovingStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that the policy was trained on, and what it did to it, over all of the updates. See `learner.explanation`."""

    position: int
    """Of its step.taken."""
    step: int
    """Its index in the episode."""
    answer: str
    """As it was trained on: the recorded one, or one that a relabeler wrote."""
    share: float
    pull: float | None


class MovingEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """An episode that the policy was trained on, and what it did to it. See `learner.explanation`."""

    episode: str
    group: str
    family: str
    origin: str
    reward: float | None
    """None: the training judge has not decided."""
    rehearsed: bool
    advantage: float
    """Mean of its steps."""
    share: float
    """Of the gradient; the shares of all episodes sum to 1, as mean over the updates."""
    pull: float | None
    """On the family's success rate, in [-1, 1] for small changes; None: no family was asked about."""
    steps: tuple[MovingStep, ...]


class TokenChange(msgspec.Struct, frozen=True, kw_only=True):
    """A token of a recorded answer, and how likely the policy finds it before and after."""

    episode: str
    position: int
    """Of its step.taken."""
    step: int
    """Index of the step in its episode."""
    context: str
    """The end of the answer before it."""
    token: str
    before: float
    after: float
    others: int
    """Steps that gave the same answer up to here to the same prompt."""


class VersionSuccess(msgspec.Struct, frozen=True, kw_only=True):
    """Success of the family's episodes that a version began."""

    version: int
    episodes: int
    successes: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a policy changed."""

    run: str
    question: str
    """As in `policy 3`, or `store/buy, policy 3 to 5`."""
    first_update: int
    last_update: int
    first_version: int
    """The policy version that the updates began with."""
    episodes: tuple[MovingEpisode, ...]
    """Those with the largest part first."""
    tokens: tuple[TokenChange, ...]
    """Those whose probability changed most, the largest change first."""
    family: str
    """The family asked about; empty: none."""
    probe_origin: str
    """`evaluation` or `training`: the episodes of the family by which updates are judged."""
    probe_episodes: int
    success: tuple[VersionSuccess, ...]
    """Success of the family by the version that played it."""
    recomputed: int
    """Updates that were recomputed, from the checkpoint before on; all came out as recorded."""


class FamilyPart(msgspec.Struct, frozen=True, kw_only=True):
    """What all trained episodes of one family did."""

    family: str
    episodes: int
    share: float
    pull: float | None
    """None: no family was asked about."""


def parts_by_family(episodes: Sequence[MovingEpisode]) -> list[FamilyPart]:
    """The families trained on: that with the lowest pull first, without pulls that with the largest share."""
    members = defaultdict[str, list[MovingEpisode]](list)
    for one in episodes:
        members[one.family].append(one)
    found = [
        FamilyPart(
            family=name,
            episodes=len(own),
            share=sum(one.share for one in own),
            pull=None if own[0].pull is None else sum(one.pull or 0.0 for one in own),
        )
        for name, own in members.items()
    ]
    return sorted(found, key=lambda one: -one.share if one.pull is None else one.pull)


def largest_steps(found: Explanation) -> list[tuple[MovingEpisode, MovingStep]]:
    """Steps of the updates, that with the largest part first: by pull where a family was asked about, else by share."""
    steps = [(episode, step) for episode in found.episodes for step in episode.steps]
    return sorted(steps, key=lambda one: -abs(one[1].share if one[1].pull is None else one[1].pull))


class EpisodePart(msgspec.Struct, frozen=True, kw_only=True):
    """What one explanation says about one episode."""

    name: str
    """Name of the explanation."""
    question: str
    first_update: int
    last_update: int
    family: str
    """The family asked about; empty: none."""
    episode: MovingEpisode


class _Asked(msgspec.Struct):
    question: str


def save_explanation(run_folder: Path, found: Explanation) -> None:
    """Keep an explanation with its run; it replaces an earlier one of the same question."""
    write_json(run_folder / FOLDER / f"{name_of(found.question)}.json", msgspec.to_builtins(found))


def list_explanations(run_folder: Path) -> dict[str, str]:
    """The questions whose explanations a run keeps, by the explanation's name, the latest first. Others are left out."""
    found: dict[str, str] = {}
    for file in sorted((run_folder / FOLDER).glob("*.json"), key=lambda one: -one.stat().st_mtime):
        with suppress(OSError, msgspec.MsgspecError):
            found[file.stem] = decode_json(file.read_bytes(), _Asked).question
    return found


def load_explanation(run_folder: Path, name: str) -> Explanation:
    """One of `list_explanations`. Raises SettingsError if it cannot be read, or has the form of another version."""
    file = run_folder / FOLDER / f"{name}.json"
    try:
        return decode_json(file.read_bytes(), Explanation)
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError(
            f"{file} cannot be read as an explanation ({error}). Delete it and ask again: hindcast why"
        ) from None


MOST_SEARCHED = 32
"""Number of newest explanations that are searched for an episode."""


def parts_of_episode(run_folder: Path, episode: str) -> list[EpisodePart]:
    """What the newest kept explanations say about an episode, the latest first. Unreadable ones are left out."""
    found = []
    for name in list(list_explanations(run_folder))[:MOST_SEARCHED]:
        with suppress(OSError, SettingsError):
            changed_ns = (run_folder / FOLDER / f"{name}.json").stat().st_mtime_ns
            one = _loaded(run_folder, name, changed_ns)
            found += [
                EpisodePart(
                    name=name,
                    question=one.question,
                    first_update=one.first_update,
                    last_update=one.last_update,
                    family=one.family,
                    episode=moving,
                )
                for moving in one.episodes
                if moving.episode == episode
            ]
    return found


@lru_cache(maxsize=MOST_SEARCHED)
def _loaded(run_folder: Path, name: str, _changed_ns: int) -> Explanation:
    return load_explanation(run_folder, name)


def name_of(question: str) -> str:
    """The question as a file's name."""
    return re.sub(r"[^\w.]+", "-", question)
