"""The judge: one verdict per episode and judge, undecided rather than wrong."""

import asyncio
from collections.abc import Callable

import pytest

from fakes.virtual_time import clock_s, run_virtually
from hindcast.actors.environments.miniwob.tasks import evaluate as evaluate_miniwob
from hindcast.actors.environments.store.evaluators import evaluate as evaluate_store
from hindcast.actors.judges.base import Verdict, reach_verdict
from hindcast.actors.judges.judged_episode import JudgedEpisode
from hindcast.actors.judges.role import configured_judges, run_judge
from hindcast.actors.judges.rules import RuleJudge
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.errors import BrokerUnreachable, CorruptEvent, JudgeUnavailable, SettingsError
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeJudged,
    WaitExceeded,
)
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import Fact
from hindcast.events.log.memory import MemoryLog
from hindcast.events.log.reader import read
from hindcast.events.log.work_queue import MAX_TRIES
from stories.curriculum_story import SOURCES, settings_of
from stories.judge_story import (
    NO_BLOBS,
    RULES,
    TASK,
    ended,
    evaluate,
    judge_all,
    judged_episode,
    publisher,
    requested,
)


def only(facts: list[Fact]) -> Judgment:
    (fact,) = facts
    assert isinstance(fact, EpisodeJudged)
    return fact.judgment


def test_every_ended_episode_gets_the_verdict_of_its_own_task() -> None:
    other = SOURCES["shop"].task("buy", 4)
    facts = judge_all(requested("ep_a"), requested("ep_b", other), ended("ep_a"), ended("ep_b", task=other))
    assert {(fact.episode, fact.judgment.outcome) for fact in facts} == {  # type: ignore[attr-defined]
        ("ep_a", "success"),
        ("ep_b", "failure"),
    }


def test_abandoned_episodes_get_no_verdict() -> None:
    gone = EpisodeAbandoned(episode="ep_a", task_id=TASK.id, reason="error", detail="", steps=0)
    assert judge_all(requested("ep_a"), gone) == []


def test_an_end_delivered_again_changes_nothing() -> None:
    assert only(judge_all(requested("ep_a"), ended("ep_a"), times=3)).outcome == "success"


def test_every_judge_of_the_settings_speaks_once() -> None:
    second = RuleJudge({"shop": lambda task, evidence: Judgment(outcome="failure", reward=0.0, reason="no")})
    second.identity = JudgeIdentity(name="second", version="2")  # type: ignore[misc]
    facts = judge_all(requested("ep_a"), ended("ep_a"), judges={"rules": RULES, "second": second}, times=2)
    assert [(fact.judge.name, fact.judgment.outcome) for fact in facts] == [  # type: ignore[attr-defined]
        ("rules", "success"),
        ("second", "failure"),
    ]


def test_an_evaluator_that_fails_leaves_the_episode_undecided() -> None:
    judgment = only(
        judge_all(requested("ep_a"), ended("ep_a", Evidence(answer="x", final_url="", probes={})))
    )
    assert (judgment.outcome, judgment.reward) == ("undecided", 0.0)
    assert "KeyError" in judgment.reason


def test_an_episode_whose_task_nobody_requested_is_undecided() -> None:
    judgment = only(judge_all(ended("ep_a")))
    assert judgment.outcome == "undecided"
    assert "does not stand in the log before its end" in judgment.reason


def test_an_environment_without_evaluator_is_undecided() -> None:
    judgment = only(judge_all(requested("ep_a"), ended("ep_a"), judges={"rules": RuleJudge({})}))
    assert judgment.outcome == "undecided"
    assert "no evaluator for the environment 'shop'" in judgment.reason


def test_an_end_that_was_handed_out_in_vain_too_often_is_given_up_as_undecided() -> None:
    async def main() -> list[Fact]:
        log = MemoryLog("r", clock=clock_s)
        async with publisher(log, "story") as story:
            await story.publish(requested("ep_a"), entity="ep_a")
            await story.publish(ended("ep_a"), entity="ep_a")
        queue = await log.open_queue("judges", family="episode_end")
        for _ in range(MAX_TRIES - 1):  # a judge that dies each time
            assert await queue.fetch(1, wait_s=120)
        stop = asyncio.Event()
        async with publisher(log, "judge.1") as mine, asyncio.TaskGroup() as tasks:
            tasks.create_task(
                run_judge(
                    log=log,
                    publisher=mine,
                    queue=queue,
                    settings=settings_of(),
                    blobs=NO_BLOBS,
                    stop=stop,
                    judges={"rules": RULES},
                )
            )
            await asyncio.sleep(120)
            stop.set()
        return [recorded.fact async for recorded in read(log, after=2)]

    judgment = only(run_virtually(main()))
    assert judgment.outcome == "undecided"
    assert "came to nothing" in judgment.reason


async def test_a_judge_that_hangs_is_undecided_and_the_wait_stands_in_the_log() -> None:
    release = asyncio.Event()

    class Hanging(RuleJudge):
        def evaluate(self, task: Task, evidence: Evidence) -> Judgment:
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result(10)
            return super().evaluate(task, evidence)

    loop = asyncio.get_running_loop()
    log = MemoryLog("r")
    settings = settings_of(judge={"timeout_s": 0.05})
    stop = asyncio.Event()
    async with publisher(log, "story") as story:
        await story.publish(requested("ep_a"), entity="ep_a")
        await story.publish(ended("ep_a"), entity="ep_a")
    async with publisher(log, "judge.1") as mine, asyncio.TaskGroup() as tasks:
        queue = await log.open_queue("judges", family="episode_end")
        judges = {"rules": Hanging({"shop": evaluate})}
        tasks.create_task(
            run_judge(
                log=log,
                publisher=mine,
                queue=queue,
                settings=settings,
                blobs=NO_BLOBS,
                stop=stop,
                judges=judges,
            )
        )
        await log.wait_for_growth(3, timeout_s=10)
        release.set()
        stop.set()
    exceeded, judged = [recorded.fact async for recorded in read(log, after=2)]
    assert isinstance(exceeded, WaitExceeded)
    assert (exceeded.setting, exceeded.limit_s) == ("judge.timeout_s", 0.05)
    assert isinstance(judged, EpisodeJudged)
    assert judged.judgment.outcome == "undecided"


class Saying:
    """A judge that says one thing, or raises it."""

    identity = JudgeIdentity(name="saying", version="1")
    asks_model = False

    def __init__(self, what: Judgment | Exception) -> None:
        self._what = what

    async def judge(self, episode: JudgedEpisode) -> Verdict:
        if isinstance(self._what, Exception):
            raise self._what
        return Verdict(judgment=self._what)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (Judgment(outcome="success", reward=1.5, reason=""), "gave the reward 1.5"),
        (Judgment(outcome="success", reward=float("nan"), reason=""), "gave the reward nan"),
        (JudgeUnavailable("the endpoint is down"), "the endpoint is down"),
        (TimeoutError("read timed out"), "read timed out"),
        (RecursionError("too deep"), "RecursionError"),
    ],
)
async def test_what_is_no_judgment_is_undecided(what: Judgment | Exception, words: str) -> None:
    judgment = (await reach_verdict(Saying(what), judged_episode(), timeout_s=5)).judgment
    assert (judgment.outcome, judgment.reward) == ("undecided", 0.0)
    assert words in judgment.reason


async def test_undecided_never_carries_a_reward() -> None:
    what = Judgment(outcome="undecided", reward=0.7, reason="cannot tell")
    assert (await reach_verdict(Saying(what), judged_episode(), timeout_s=5)).judgment.reward == 0.0


@pytest.mark.parametrize("trouble", [BrokerUnreachable("away"), CorruptEvent("torn")])
async def test_a_log_that_cannot_be_read_is_no_verdict(trouble: Exception) -> None:
    with pytest.raises(type(trouble)):
        await reach_verdict(Saying(trouble), judged_episode(), timeout_s=5)


@pytest.mark.parametrize("evaluate_real", [evaluate_store, evaluate_miniwob])
def test_the_real_evaluators_are_undecided_without_evidence(
    evaluate_real: Callable[[Task, Evidence], Judgment],
) -> None:
    empty = Evidence(answer="yes", final_url="http://127.0.0.1/", probes={})
    assert evaluate_real(TASK, empty).outcome == "undecided"


@pytest.mark.parametrize(("names", "words"), [(("oracle",), "'oracle'; there are: rules"), ((), "is empty")])
def test_judges_that_do_not_exist_are_a_worded_error(names: tuple[str, ...], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        configured_judges(settings_of(judge={"judges": names}), {"rules": RULES})
