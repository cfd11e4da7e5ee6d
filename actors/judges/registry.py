"""Registry of judges by name."""

from collections.abc import Mapping

from hindcast.actors.judges.base import AnyJudge
from hindcast.actors.judges.rules import RuleJudge
from hindcast.actors.judges.strict import StrictJudge
from hindcast.core.errors import SettingsError
from hindcast.core.prompts.webrl_verdict_prompt import WEBRL_ORM
from hindcast.core.rl.combined_state import ORM
from hindcast.core.settings.endpoint import ENDPOINT, FUZZY
from hindcast.core.text.nearest import advice

JUDGES: dict[str, AnyJudge] = {"rules": RuleJudge(), "strict": StrictJudge()}
"""Judges that are the same in every run, by the name that `judge.judges` and `hindcast rejudge --judge` use."""


def judge_names() -> tuple[str, ...]:
    """Names of all judges, including those that read with a model or ask an endpoint."""
    return tuple(sorted({*JUDGES, ORM, WEBRL_ORM, ENDPOINT, FUZZY}))


def judge_named(name: str, judges: Mapping[str, AnyJudge] = JUDGES) -> AnyJudge:
    """A judge that is the same in every run. Raises SettingsError, which lists the known names."""
    if name not in judges:
        raise SettingsError(f"there is no judge {name!r}; {advice(name, judge_names())}")
    return judges[name]
