"""The judges there are."""

from collections.abc import Mapping

from actors.judge.base import Judge
from actors.judge.rules import RuleJudge
from actors.judge.strict import StrictJudge
from core.errors import SettingsError

JUDGES: dict[str, Judge] = {"rules": RuleJudge(), "strict": StrictJudge()}
"""By the name that `judge.judges` and `hindcast rejudge --judge` use."""


def judge_named(name: str, judges: Mapping[str, Judge] = JUDGES) -> Judge:
    """A judge by its name. Raises SettingsError, with the names there are."""
    if name not in judges:
        raise SettingsError(f"there is no judge {name!r}; there are: {', '.join(sorted(judges))}")
    return judges[name]
