"""The judge `strict`: the task is done wholly, the agent ended it, and nothing else was changed.

It starts from the verdict of the rules: their failures and undecided episodes stay so. A success must also be
- whole: a page's partial credit is a failure;
- ended by the agent: a goal reached by chance, and left until the steps ran out, is a failure. A MiniWoB++ page ends the
  episode itself, so this does not apply there;
- ended at its goal: an agent that was to change something in the store stops there. It may see the page with which the
  shop answers the last change; opening another one is a failure, such as the checkout after a task to fill the cart;
- clean: any change in the store that the task did not ask for is a failure (an order, a wish, a review, an address). An
  undone change is no side effect, unless the store remembers it, as it does a cancelled order.

So its successes are a subset of the rules' successes. Version 1 did not check where an episode ended.
"""

from hindcast.actors.environments.plugin import find_environment
from hindcast.actors.judges.rules import RuleJudge
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.events.catalogue.verdict import JudgeIdentity

STRICT = JudgeIdentity(name="strict", version="2")
"""Raise the version whenever it may give another verdict on the same evidence."""


class StrictJudge(RuleJudge):
    """Judges by the rules and the objections of the environment."""

    identity = STRICT

    def evaluate(self, task: Task, evidence: Evidence) -> Judgment:
        """Return success with reward 1, failure with the first objection, or undecided where the rules are.

        Raises:
            JudgeUnavailable: as the rule judge.
            KeyError: a family of the store without an entry in `store.evaluators.CHANGES`.
        """
        judgment = super().evaluate(task, evidence)
        if judgment.outcome != "success":
            return judgment
        objection = find_environment(task.environment).objection(task, evidence, judgment)
        if objection:
            return Judgment(
                outcome="failure", reward=0.0, reason=f"reached ({judgment.reason}), but {objection}"
            )
        return judgment
