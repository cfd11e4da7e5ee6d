"""The judge `inspect`: the score that Inspect gave an imported sample, as `app.imports.inspect_log` left it in the evidence.

It judges by one scorer, so a log with several scorers can be judged again by each of them.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from hindcast.actors.environments.base import decided
from hindcast.actors.judges.base import Verdict, undecided
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.core.domain.evidence import Judgment
from hindcast.events.catalogue.verdict import JudgeIdentity

NAME = "inspect"
SUCCESS = 0.5
"""Value from which a sample is a success."""
GRADES = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""Values of scores that are words, as `inspect_ai.scorer.value_to_float` reads them: correct, partial, incorrect, no answer."""


class InspectOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `judge.options.inspect` may hold."""

    scorer: str = ""
    """Name of the scorer that counts; empty: the first one of the log."""


class InspectScoreJudge:
    """Judges by a recorded score. A value that is no number from 0 to 1 leaves the episode undecided."""

    asks_model = False

    def __init__(self, options: InspectOptions) -> None:
        self._scorer = options.scorer
        self.identity = JudgeIdentity(name=NAME, version=f"1-{options.scorer}" if options.scorer else "1")

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        """See `actors.judges.base.Judge`."""
        scores = episode.evidence.probes.get("scores")
        if not isinstance(scores, Mapping) or not scores:
            return undecided("Inspect gave this episode no score")
        name = self._scorer or str(next(iter(scores)))
        if name not in scores:
            return undecided(f"there is no scorer {name!r}; there are: {', '.join(sorted(scores))}")
        value = scores[name].get("value")
        reward = _number(value)
        if reward is None or not 0.0 <= reward <= 1.0:
            return undecided(f"{name} gave {value!r}, which is no number from 0 to 1")
        judgment = decided(reward >= SUCCESS, f"{name} gave {value!r}; {SUCCESS:g} is a success")
        return Verdict(judgment=Judgment(outcome=judgment.outcome, reward=reward, reason=judgment.reason))


def _number(value: Any) -> float | None:
    """A score as a number; None if it is none."""
    if isinstance(value, str):
        grade = GRADES.get(value.lower())
        if grade is not None:
            return grade
        try:
            value = float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
