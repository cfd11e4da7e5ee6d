"""Which run the processes of a home work on, and until when: one small file that `honcho start` and we both read."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from app.processes import read_json, write_json
from core.errors import SettingsError
from core.settings import Settings

CURRENT = "current.json"
GOALS = ("updates", "episodes", "minutes")


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What the next start of the system is to do."""

    run: str
    until: dict[str, float] = {}
    """Goal by name (`updates`, `episodes`, `minutes`); empty: until somebody stops it."""
    actors: int = 1

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
            value = -1.0
        if name not in GOALS or value <= 0:
            allowed = ", ".join(f"{goal}=N" for goal in GOALS)
            raise SettingsError(f"--until {text!r} is not a goal. Give one of {allowed}, with N above 0.")
        goals[name] = value
    return goals


def require_reachable(goals: Mapping[str, float], settings: Settings) -> None:
    """Raise SettingsError where a run never reaches a goal, whatever it does."""
    if "episodes" in goals and settings.learner.algorithm == "sft":
        raise SettingsError(
            "--until episodes=N counts what the policy plays, and learner.algorithm = 'sft' plays nothing but "
            "demonstrations: give --until updates=N or minutes=N"
        )


def write_launch(home: Path, launch: Launch) -> None:
    """Make `launch` what the home's processes do next."""
    write_json(home / CURRENT, msgspec.to_builtins(launch))


def read_launch(home: Path) -> Launch | None:
    """What was launched last, or None in a new home."""
    content = read_json(home / CURRENT)
    return None if content is None else msgspec.convert(content, Launch)
