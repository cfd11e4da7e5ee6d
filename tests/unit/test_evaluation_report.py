"""The report of an evaluation: a rate where episodes were played, and the reasons where none was."""

import pytest

from hindcast.app.evaluation.evaluation import NothingPlayed, OutcomeTally, plan_attempts
from hindcast.core.domain.evidence import Judgment, Outcome
from hindcast.core.rl.statistics import (
    Confusion,
    Interval,
    majority_baseline,
    of_failures,
    of_successes,
    plain_accuracy,
    proportion,
)
from hindcast.events.catalogue import EpisodeAbandoned, EpisodeJudged
from hindcast.events.catalogue.verdict import JudgeIdentity
from stories.curriculum_story import SOURCES

pytestmark = pytest.mark.torch

RULES = JudgeIdentity(name="rules", version="1")
TASKS = [SOURCES["shop"].task("buy", seed) for seed in range(3)]


def abandon(tally: OutcomeTally, episode: str) -> None:
    """Lose an episode for good: its second try is abandoned as well."""
    for name in (episode, f"{episode}_again"):
        fact = EpisodeAbandoned(episode=name, task_id="", reason="browser_died", detail="no sandbox", steps=0)
        tally.apply(fact)


def judge(tally: OutcomeTally, episode: str, outcome: Outcome, reason: str = "") -> None:
    judgment = Judgment(outcome=outcome, reward=float(outcome == "success"), reason=reason)
    tally.apply(EpisodeJudged(episode=episode, task_id="", judge=RULES, judgment=judgment))


def test_an_evaluation_without_a_verdict_has_no_rate_but_counted_reasons() -> None:
    requests = plan_attempts(TASKS[:3], attempts=1, temperature=0.0, lease_s=1.0)
    tally = OutcomeTally(requests)
    for request in requests[:2]:
        abandon(tally, request.episode)
    judge(tally, requests[2].episode, "undecided", "the judge is out of reach")
    assert tally.done == tally.lost == 3
    with pytest.raises(NothingPlayed) as caught:
        tally.report(suite="store", policy="base")
    for part in (
        "policy base on store",
        "no episode could be played",
        "2 × browser_died: no sandbox",
        "1 × undecided",
    ):
        assert part in str(caught.value)
    assert caught.value.exit_code == 1


def test_one_verdict_makes_a_rate_and_the_reasons_of_the_others_stay() -> None:
    requests = plan_attempts(TASKS[:2], attempts=1, temperature=0.0, lease_s=1.0)
    tally = OutcomeTally(requests)
    abandon(tally, requests[0].episode)
    judge(tally, requests[1].episode, "failure")
    report = tally.report(suite="store", policy="base")
    assert (report.rate, report.episodes, report.lost) == (0.0, 1, 1)
    assert report.lost_because == {"browser_died: no sandbox": 1}


def test_a_share_of_nothing_is_no_rate() -> None:
    assert proportion(0, 0) is None
    assert isinstance(proportion(0, 1), Interval)
    empty = Confusion()
    assert [of(empty) for of in (of_successes, of_failures, plain_accuracy, majority_baseline)] == [None] * 4
