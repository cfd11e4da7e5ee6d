"""The worker of a queue: each fact once, whatever the version of who states it."""

from hindcast.actors.judges.rules import RuleJudge
from hindcast.core.domain.evidence import Judgment
from hindcast.events.catalogue import EpisodeJudged
from hindcast.events.catalogue.verdict import JudgeIdentity
from stories.judge_story import RULES, ended, evaluate, judge_all, requested

OLD = JudgeIdentity(name="rules", version="1")
SAID = Judgment(outcome="failure", reward=0.0, reason="said before")


def verdict(episode: str, judge: JudgeIdentity) -> EpisodeJudged:
    return EpisodeJudged(episode=episode, task_id=requested(episode).task.id, judge=judge, judgment=SAID)


def test_an_end_that_an_older_version_has_judged_is_not_judged_again_where_the_queue_is_new() -> None:
    facts = judge_all(
        requested("ep_a"), ended("ep_a"), requested("ep_b"), ended("ep_b"), verdict("ep_a", OLD)
    )
    assert [(fact.episode, fact.judge) for fact in facts] == [("ep_b", RULES.identity)]  # type: ignore[attr-defined]


def test_a_verdict_of_another_judge_or_episode_does_not_count() -> None:
    other = RuleJudge({"shop": evaluate})
    other.identity = JudgeIdentity(name="rules-2", version="1")  # type: ignore[misc]
    facts = judge_all(
        requested("ep_a"),
        ended("ep_a"),
        verdict("ep_a", other.identity),
        verdict("ep_a1", OLD),
    )
    assert [fact.judge for fact in facts] == [RULES.identity]  # type: ignore[attr-defined]
