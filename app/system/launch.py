"""Which run the processes of a home work on, and until when: one small file that `honcho start` and we both read."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hindcast.app.system.processes import read_json, write_json
from hindcast.core.errors import SettingsError
from hindcast.core.rl.algorithm import traits_of
from hindcast.core.settings.schema import Settings
from hindcast.core.structs import convert
from hindcast.core.text.nearest import advice, nearest

CURRENT = "current.json"
MINUTES = "minutes"
GOALS = ("updates", "episodes", MINUTES)
MOST = 1_000_000_000
"""No run gets so far."""
ALLOWED = f"Give updates=N or episodes=N with a whole number N from 1 to {MOST}, or minutes=N with N above 0, up to {MOST}"


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What the next start of the system is to do."""

    run: str
    until: dict[str, float] = {}
    """Goal by name (`updates`, `episodes`, `minutes`); empty: until somebody stops it."""
    actors: int = 1
    without: tuple[str, ...] = ()
    """Roles that play on other machines alone."""

    def reached(self, updates: int, episodes: int, elapsed_s: float) -> str:
        """Which goal is reached, in words; empty when none is."""
        done = {"updates": float(updates), "episodes": float(episodes), "minutes": elapsed_s / 60}
        for name, goal in self.until.items():
            if done[name] >= goal:
                return f"{name}={goal:g}"
        return ""


def parse_until(texts: list[str]) -> dict[str, float]:
    """`updates=5` and the like; raises SettingsError naming what is allowed."""
    goals: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if name not in GOALS:
            near = nearest(name, GOALS)
            raise SettingsError(
                f"--until {text!r} is not a goal{f'; the nearest is {near[0]}=N' if near else ''}. {ALLOWED}"
            )
        if not 0 < value <= MOST or (name != MINUTES and value != int(value)):
            raise SettingsError(f"--until {text!r} is not a goal. {ALLOWED}")
        if name in goals:
            raise SettingsError(f"--until {name}=N is given twice: leave one out")
        goals[name] = value
    return goals


def require_reachable(goals: Mapping[str, float], settings: Settings) -> None:
    """Raise SettingsError where a run never reaches a goal, whatever it does."""
    if "episodes" in goals and not traits_of(settings.learner.algorithm).plays_episodes:
        raise SettingsError(
            f"--until episodes=N counts what the policy plays, and learner.algorithm = {settings.learner.algorithm!r} plays nothing "
            "but demonstrations: give --until updates=N or minutes=N"
        )


def write_launch(home: Path, launch: Launch) -> None:
    """Make `launch` what the home's processes do next."""
    write_json(home / CURRENT, msgspec.to_builtins(launch))


def read_launch(home: Path) -> Launch | None:
    """What was launched last, or None in a new home."""
    content = read_json(home / CURRENT)
    try:
        return None if content is None else convert(content, Launch)
    except msgspec.ValidationError as error:
        raise SettingsError(
            f"{home / CURRENT} does not say which run this home works on: {error}. Delete it, and name the run at the next start."
        ) from error


LEAVABLE = ("curriculum", "judge", "relabeler", "learner", "projector", "page")
"""Roles that another machine may have instead. The bus opens the run, the store serves this machine's own actors, and the
archiver, whose folder is here, has no work where nobody asks for it; of actors there may be none (`--actors 0`)."""


def elsewhere(roles: Sequence[str], settings: Settings) -> tuple[str, ...]:
    """Roles that a start leaves out; raises SettingsError where nobody else could have them."""
    unknown = [role for role in roles if role not in LEAVABLE]
    if unknown:
        raise SettingsError(
            f"--without {unknown[0]}: another machine cannot have this role; {advice(unknown[0], LEAVABLE)}; actors are left "
            "out with --actors 0"
        )
    if roles and not settings.log.url:
        raise SettingsError(
            f"--without {roles[0]}: log.url is empty, so the log is on this machine's own loopback, where no other machine can "
            "join. Have a NATS server that others run, and set log.url to it (docs/scale.md)."
        )
    return tuple(dict.fromkeys(roles))
