"""The rule judge: the evaluator of the task's environment decides, from the stored evidence alone.

A re-score is a replay: evaluators are pure functions of task and evidence. Where they cannot tell, the outcome is
`undecided`, never failure.
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
"""By environment."""

RULES = JudgeIdentity(name="rules", version="2")
"""The version is raised whenever an evaluator may come to another verdict on the same evidence."""


class RuleJudge:
    """Judges by rules."""

    identity = RULES

    def __init__(self, evaluators: Mapping[str, Evaluate] = EVALUATORS) -> None:
        self._evaluators = evaluators

    def judge(self, task: Task, evidence: Evidence) -> Judgment:
        """The evaluator's judgment.

        Raises:
            JudgeUnavailable: nobody knows how to evaluate tasks of this environment.

        """
        evaluate = self._evaluators.get(task.environment)
        if evaluate is None:
            raise JudgeUnavailable(
                f"no evaluator for the environment {task.environment!r}; there are: {', '.join(sorted(self._evaluators))}"
            )
        return evaluate(task, evidence)
