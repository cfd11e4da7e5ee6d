"""Options that select episodes of a run."""

from typing import Annotated

import typer

from hindcast.actors.replay.recorded import EpisodeSelection
from hindcast.core.errors import SettingsError
from hindcast.core.text.nearest import advice

Episode = Annotated[list[str] | None, typer.Option("--episode", help="This episode; repeatable.")]
Episodes = Annotated[int | None, typer.Option("--episodes", min=1, help="Size of a seeded sample.")]
All = Annotated[bool, typer.Option("--all", help="Every episode.")]
Families = Annotated[
    list[str] | None,
    typer.Option("--family", help="Only this family, as find_price or store/find_price; repeatable."),
]
Origin = Annotated[
    str | None, typer.Option("--origin", help="Only online, demonstration or evaluation ones.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the sample.")]

ORIGINS = ("online", "demonstration", "evaluation")


def wanted_of(
    episode: list[str] | None,
    episodes: int | None,
    *,
    every: bool,
    family: list[str] | None,
    origin: str | None,
    seed: int,
    usual: int | None,
) -> EpisodeSelection:
    """The selection that the options ask for. `usual`: size of the sample if no option sets it; None: all.

    Raises:
        SettingsError: the options contradict each other.

    """
    if sum(map(bool, (episode, episodes, every))) > 1:
        raise SettingsError("--episode, --episodes and --all contradict each other: give one")
    if origin is not None and origin not in ORIGINS:
        raise SettingsError(f"--origin {origin!r} is unknown; {advice(origin, ORIGINS)}")
    named = frozenset(episode or ())
    return EpisodeSelection(
        episodes=named,
        families=frozenset(family or ()),
        origin=origin,
        sample=None if named or every else episodes or usual,
        seed=seed,
    )
