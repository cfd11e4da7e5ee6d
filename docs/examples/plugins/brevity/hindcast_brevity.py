"""Brevity: a judge as a plugin. It agrees with the rules, and calls a success that took a long answer a failure."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from hindcast.actors.judges.plugin import JudgeContext, JudgePlugin
from hindcast.actors.judges.rules import RULES, RuleJudge
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.events.catalogue.verdict import JudgeIdentity


class BrevityOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """This judge's entry of `judge.options`."""

    most: int = 80
    """Most characters of an answer."""


class BrevityJudge:
    """Judges by the rules and by the length of the answer."""

    def __init__(self, name: str, most: int) -> None:
        self.identity = JudgeIdentity(name=name, version=f"1-{RULES.version}-{most}")
        self._most = most
        self._rules = RuleJudge()

    def judge(self, task: Task, evidence: Evidence) -> Judgment:
        """See `hindcast.actors.judges.base.Judge`."""
        judgment = self._rules.judge(task, evidence)
        length = len(evidence.answer or "")
        if judgment.outcome != "success" or length <= self._most:
            return judgment
        reason = f"the answer has {length} characters, more than {self._most}"
        return Judgment(outcome="failure", reward=0.0, reason=reason)


@asynccontextmanager
async def _open(context: JudgeContext) -> AsyncIterator[BrevityJudge]:
    yield BrevityJudge(context.name, context.options.most)


JUDGE = JudgePlugin(open=_open, options=BrevityOptions)
