"""Brevity: a judge as a plugin. It agrees with the rules, and calls a success that took a long answer a failure."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from hindcast.actors.judges.plugin import JudgeContext, JudgePlugin
from hindcast.actors.judges.rules import RULES, RuleJudge
from hindcast.api import JudgedEpisode, Judgment, Verdict, events


class BrevityOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """This judge's entry of `judge.options`."""

    most: int = 80
    """Most characters of an answer."""


class BrevityJudge(RuleJudge):
    """Judges by the rules and by the length of the answer."""

    def __init__(self, name: str, most: int) -> None:
        super().__init__()
        self.identity = events.JudgeIdentity(name=name, version=f"1-{RULES.version}-{most}")
        self._most = most

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        """See `hindcast.api.Judge`."""
        verdict = await super().judge(episode)
        length = len(episode.evidence.answer or "")
        if verdict.judgment.outcome != "success" or length <= self._most:
            return verdict
        reason = f"the answer has {length} characters, more than {self._most}"
        return Verdict(judgment=Judgment(outcome="failure", reward=0.0, reason=reason))


@asynccontextmanager
async def _open(context: JudgeContext) -> AsyncIterator[BrevityJudge]:
    yield BrevityJudge(context.name, context.options.most)


JUDGE = JudgePlugin(open=_open, options=BrevityOptions)
