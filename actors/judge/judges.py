"""The judges there are."""

from collections.abc import Mapping

from actors.judge.base import AnyJudge
from actors.judge.rules import RuleJudge
from actors.judge.strict import StrictJudge
from core.endpoint import ENDPOINT, FUZZY
from core.errors import SettingsError
from core.states import ORM

JUDGES: dict[str, AnyJudge] = {"rules": RuleJudge(), "strict": StrictJudge()}
"""By the name that `judge.judges` and `hindcast rejudge --judge` use: those that are the same in every run."""


def judge_names() -> tuple[str, ...]:
    """Of all judges, also of that which a run trains itself (`actors.judge.orm`) and of those which ask an endpoint."""
    return tuple(sorted({*JUDGES, ORM, ENDPOINT, FUZZY}))


def judge_named(name: str, judges: Mapping[str, AnyJudge] = JUDGES) -> AnyJudge:
    """A judge that is the same in every run. Raises SettingsError, with the names there are."""
    if name not in judges:
        raise SettingsError(f"there is no judge {name!r}; there are: {', '.join(judge_names())}")
    return judges[name]
