"""The judge `recorded`: the reward that another system gave an imported episode, as `app.imports` left it in the evidence.

A reward outside [0, 1] is cut to that range, as events hold it; the reason names the recorded value. An episode that an error
ended is undecided, whatever its reward: its agent did not fail.
"""

import math
from collections.abc import Mapping

import msgspec

from hindcast.actors.environments.base import decided
from hindcast.actors.judges.base import Verdict, undecided
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.core.domain.evidence import Judgment
from hindcast.events.catalogue.verdict import JudgeIdentity

NAME = "recorded"


class RecordedOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `judge.options.recorded` may hold."""

    reward: str = ""
    """Name of the reward that counts; empty: the first one, which is the other system's sum."""
    success: float = 0.5
    """Recorded value from which an episode is a success."""


class RecordedRewardJudge:
    """Judges by a recorded reward. An episode without one is undecided."""

    asks_model = False

    def __init__(self, options: RecordedOptions) -> None:
        self._options = options
        suffix = "" if options == RecordedOptions() else f"-{options.reward}>={options.success:g}"
        self.identity = JudgeIdentity(name=NAME, version=f"1{suffix}")

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        """See `actors.judges.base.Judge`."""
        probes, success = episode.evidence.probes, self._options.success
        rewards = probes.get("scores")
        if probes.get("error"):
            return undecided(f"an error ended it: {probes['error']}")
        if not isinstance(rewards, Mapping) or not rewards:
            return undecided("no reward was recorded")
        name = self._options.reward or str(next(iter(rewards)))
        if name not in rewards:
            return undecided(f"there is no reward {name!r}; there are: {', '.join(sorted(rewards))}")
        value = rewards[name].get("value")
        if not isinstance(value, int | float) or not math.isfinite(value):
            return undecided(f"{name} is {value!r}, which is no finite number")
        judgment = decided(value >= success, f"{name} is {value:g}; {success:g} is a success")
        reward = min(1.0, max(0.0, float(value)))
        return Verdict(judgment=Judgment(outcome=judgment.outcome, reward=reward, reason=judgment.reason))
