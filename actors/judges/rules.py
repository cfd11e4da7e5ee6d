"""The judge `rules`: the evaluator of the task's environment decides, from the stored evidence alone.

Evaluators are pure functions of task and evidence, so judging again is a replay. Where an evaluator cannot decide, the
outcome is `undecided`, never failure.
"""

from collections.abc import Callable, Mapping

from hindcast.actors.environments.browsergym.evaluators import evaluate as evaluate_browsergym
from hindcast.actors.environments.miniwob.evaluators import evaluate as evaluate_miniwob
from hindcast.actors.environments.store.evaluators import evaluate as evaluate_store
from hindcast.actors.environments.web.evaluators import evaluate as evaluate_web
from hindcast.actors.environments.webarena.evaluators import evaluate as evaluate_webarena
from hindcast.actors.environments.webshop.evaluators import evaluate as evaluate_webshop
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.errors import JudgeUnavailable
from hindcast.events.catalogue.verdict import JudgeIdentity

Evaluate = Callable[[Task, Evidence], Judgment]

EVALUATORS: dict[str, Evaluate] = {
    "store": evaluate_store,
    "miniwob": evaluate_miniwob,
    "web": evaluate_web,
    "webarena": evaluate_webarena,
    "webshop": evaluate_webshop,
    "browsergym": evaluate_browsergym,
}
"""Evaluators by environment."""

RULES = JudgeIdentity(name="rules", version="2")
"""Raise the version whenever an evaluator may give another verdict on the same evidence."""


class RuleJudge:
    """Judges by the evaluator of the task's environment."""

    identity = RULES

    def __init__(self, evaluators: Mapping[str, Evaluate] = EVALUATORS) -> None:
        self._evaluators = evaluators

    def judge(self, task: Task, evidence: Evidence) -> Judgment:
        """Return the evaluator's judgment.

        Raises:
            JudgeUnavailable: there is no evaluator for this environment.
        """
        evaluate = self._evaluators.get(task.environment)
        if evaluate is None:
            raise JudgeUnavailable(
                f"no evaluator for the environment {task.environment!r}; there are: {', '.join(sorted(self._evaluators))}"
            )
        return evaluate(task, evidence)
