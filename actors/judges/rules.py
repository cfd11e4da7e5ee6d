"""The judge `rules`: the evaluator of the task's environment decides, from the stored evidence alone.

Evaluators are pure functions of task and evidence, so judging again is a replay. Where an evaluator cannot decide, the
outcome is `undecided`, never failure.
"""

import asyncio
from collections.abc import Callable, Mapping

from hindcast.actors.environments.base import NO_ANSWERS
from hindcast.actors.environments.plugin import ENVIRONMENTS, Environment
from hindcast.actors.judges.base import Verdict
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.errors import JudgeUnavailable
from hindcast.core.plugins import PluginTable
from hindcast.events.catalogue.verdict import JudgeIdentity

Evaluate = Callable[[Task, Evidence], Judgment]


def _evaluator(environment: Environment) -> Evaluate:
    return lambda task, evidence: environment.evaluate(task, evidence, NO_ANSWERS)


EVALUATORS: Mapping[str, Evaluate] = PluginTable(ENVIRONMENTS, _evaluator)
"""Evaluators by environment."""

RULES = JudgeIdentity(name="rules", version="2")
"""Raise the version whenever an evaluator may give another verdict on the same evidence."""


class RuleJudge:
    """Judges by the evaluator of the task's environment."""

    identity = RULES
    asks_model = False

    def __init__(self, evaluators: Mapping[str, Evaluate] = EVALUATORS) -> None:
        self._evaluators = evaluators

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        """See `actors.judges.base.Judge`."""
        return Verdict(judgment=await asyncio.to_thread(self.evaluate, episode.task, episode.evidence))

    def evaluate(self, task: Task, evidence: Evidence) -> Judgment:
        """Return the evaluator's judgment.

        Raises:
            JudgeUnavailable: there is no evaluator for this environment.
        """
        if task.environment not in self._evaluators:
            raise JudgeUnavailable(
                f"no evaluator for the environment {task.environment!r}; there are: {', '.join(sorted(self._evaluators))}"
            )
        return self._evaluators[task.environment](task, evidence)
