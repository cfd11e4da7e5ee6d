"""Evaluations during a run: what the curriculum folds and decides about them, apart from training."""

import asyncio
from collections import Counter
from itertools import chain

import msgspec
import pytest

from fakes.virtual_time import run_virtually
from hindcast.actors.curriculum.evaluation_plan import (
    delays_drain,
    finish_evaluation,
    request_evaluation,
    start_evaluation,
)
from hindcast.actors.curriculum.evaluations import OpenEvaluation
from hindcast.actors.curriculum.pool import configured_pool, held_out_tasks
from hindcast.actors.curriculum.snapshots import curriculum_kind
from hindcast.actors.curriculum.task_pools import held_out
from hindcast.core.domain.arrays import unpack_ids
from hindcast.core.domain.evidence import Judgment
from hindcast.core.domain.task import FIRST_EVALUATION_SEED, Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    BatchPlanned,
    ControlApplied,
    ControlRequested,
    EpisodeCancelled,
    EpisodeJudged,
    EpisodeRequested,
    EvaluationFinished,
    EvaluationStarted,
    RunResumed,
)
from hindcast.events.catalogue.operation import DRAIN, EVALUATE
from stories.curriculum_bench import Bench, ended
from stories.curriculum_story import RULES, SOURCES, Story, applied, published, settings_of

EVERY = {"every": 2, "episodes": 4, "max_running": 3}


def evaluating(**evaluation: object) -> Settings:
    return settings_of(evaluation={**EVERY, **evaluation})


class Evaluated(Story):
    """A story whose evaluations are decided as the curriculum's process decides them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.held_out = held_out(SOURCES, settings, self.pool)

    @property
    def open(self) -> OpenEvaluation:
        found = self.state.evaluations.open
        assert found is not None
        return found

    def begin(self) -> EvaluationStarted | None:
        """Start the evaluation that is due; None: none is."""
        fact = start_evaluation(self.state, settings=self.settings, tasks=self.held_out)
        if fact is not None:
            self.tell(fact)
        return fact

    def ask(self) -> list[EpisodeRequested]:
        """Append the requests of the open evaluation."""
        facts = request_evaluation(self.state, settings=self.settings, sources=SOURCES)
        for fact in facts:
            self.tell(fact)
            self.tasks[fact.episode] = fact.task
        return facts

    def finish(self) -> EvaluationFinished | None:
        """Finish the open evaluation if it is over."""
        fact = finish_evaluation(self.state, settings=self.settings)
        if fact is not None:
            self.tell(fact)
        return fact

    def play(self, *outcomes: str) -> list[EpisodeRequested]:
        """Request, end and judge members of the open evaluation, in order, with these outcomes."""
        played: list[EpisodeRequested] = []
        left = list(outcomes)
        while left and (asked := self.ask()):
            for fact in asked[: len(left)]:
                self.start(fact.episode)
                self.end(fact.episode)
                self.judge(fact.episode, left.pop(0))  # type: ignore[arg-type]
                played.append(fact)
        assert not left, "the evaluation asks for fewer episodes"
        return played

    def whole(self) -> EvaluationFinished:
        """One evaluation from its start to its end, of nothing but failures."""
        assert self.begin() is not None
        self.play(*["failure"] * len(self.open.members))
        finished = self.finish()
        assert finished is not None
        return finished


def a_batch(story: Story) -> BatchPlanned:
    """The next batch that the learner plans, of groups with different rewards."""
    for place, fact in enumerate(story.request()):
        story.end(fact.episode)
        story.judge(fact.episode, "failure" if place % 2 else "success")
    planned = story.plan()
    assert planned is not None
    return planned


def training_part(story: Story) -> object:
    """The state without what evaluations may change."""
    state = story.state
    names = [
        name for name in state.__slots__ if name not in ("evaluations", "position", "last_request", "leases")
    ]
    return msgspec.to_builtins({name: getattr(state, name) for name in names})


def test_the_version_that_a_run_begins_with_is_evaluated_first_on_held_out_tasks() -> None:
    story = Evaluated(evaluating())
    started = story.begin()
    assert started is not None
    assert (started.number, started.version, started.skipped) == (0, 0, ())
    assert started.tasks == tuple(
        f"{family}:{FIRST_EVALUATION_SEED}"
        for family in ("shop/buy", "shop/find", "shop/compare", "forms/fill")
    )
    assert started.temperatures == (0.0, story.settings.actors.temperature)
    assert story.begin() is None, "one at a time"


def test_without_the_setting_nothing_is_evaluated() -> None:
    story = Evaluated(settings_of())
    assert (story.begin(), story.ask(), story.finish()) == (None, [], None)


def test_every_task_is_played_once_at_every_temperature_and_no_more_at_once_than_allowed() -> None:
    story = Evaluated(evaluating())
    story.begin()
    first = story.ask()
    assert len(first) == 3
    assert story.ask() == [], "all places are taken"
    for fact in first:
        story.end(fact.episode)
        story.judge(fact.episode, "failure")
    rest = story.play(*["failure"] * 5)
    played = Counter((fact.task.name, fact.temperature) for fact in [*first, *rest])
    assert set(played.values()) == {1}
    assert len(played) == 8
    assert {fact.origin for fact in [*first, *rest]} == {"evaluation"}
    assert len({fact.episode for fact in [*first, *rest]}) == 8
    assert story.ask() == []


def test_training_neither_sees_nor_counts_the_episodes_of_an_evaluation() -> None:
    alone, story = Evaluated(settings_of()), Evaluated(evaluating())
    story.begin()
    story.play("success", "failure", "undecided")
    (broken, *_) = story.ask()
    story.start(broken.episode)
    story.abandon(broken.episode)
    assert training_part(story) == training_part(alone)
    assert story.wanted() == alone.wanted()
    assert story.buffer.episodes == alone.buffer.episodes == {}
    assert story.buffer.requests == alone.buffer.requests


def test_results_are_counted_by_temperature_and_family() -> None:
    story = Evaluated(evaluating(families=("shop/buy",), episodes=3))
    story.begin()
    # greedy and training temperature in turn, task by task
    story.play("success", "failure", "success", "undecided", "failure", "success")
    finished = story.finish()
    assert finished is not None
    assert [
        (r.family, r.temperature, r.successes, r.failures, r.lost, r.reward) for r in finished.results
    ] == [
        ("shop/buy", 0.0, 2, 1, 0, 2.0),
        ("shop/buy", 1.0, 1, 1, 1, 1.0),
    ]
    assert (finished.version_low, finished.version_high, finished.reason) == (0, 0, "")
    assert finished.share == 1.0
    assert story.state.evaluations.open is None
    assert story.finish() is None


def test_an_episode_that_breaks_is_played_once_more_and_then_lost() -> None:
    story = Evaluated(evaluating(episodes=1, temperatures=("greedy",)))
    story.begin()
    (first,) = story.ask()
    story.start(first.episode)
    story.abandon(first.episode)
    (second,) = story.ask()
    assert (second.group, second.attempt, second.task) == (first.group, 1, first.task)
    story.start(second.episode)
    story.abandon(second.episode)
    assert story.ask() == []
    finished = story.finish()
    assert finished is not None
    assert [(r.successes, r.failures, r.lost) for r in finished.results] == [(0, 0, 1)]


def test_a_request_that_nobody_started_is_no_attempt() -> None:
    story = Evaluated(evaluating(episodes=1, temperatures=("greedy",)))
    story.begin()
    for attempt in range(4):
        (asked,) = story.ask()
        assert asked.attempt == attempt
        story.abandon(asked.episode, reason="lease_expired")


@pytest.mark.parametrize(("reason", "again"), [(DRAIN, 1), ("cancelled", 0)])
def test_a_drain_leaves_an_evaluation_to_go_on_later_and_a_person_cancels_for_good(
    reason: str, again: int
) -> None:
    story = Evaluated(evaluating(episodes=1, temperatures=("greedy",)))
    story.begin()
    (asked,) = story.ask()
    story.tell(EpisodeCancelled(episode=asked.episode, task_id=asked.task.id, reason=reason, detail=""))
    assert len(story.ask()) == again
    assert (story.finish() is None) == bool(again)


def test_the_next_evaluation_is_due_with_the_next_multiple_and_skips_what_passed_meanwhile() -> None:
    story = Evaluated(evaluating(every=2))
    assert story.whole().version == 0
    story.tell(published(1))
    assert story.begin() is None
    story.tell(published(2))
    second = story.begin()
    assert second is not None
    assert (second.number, second.version) == (1, 2)
    for version in (3, 4, 5, 6):
        story.tell(published(version))
    story.play(*["failure"] * 8)
    assert story.finish() is not None
    assert story.begin() is None, "4 and 6 passed while version 2 was evaluated"
    story.tell(published(8))
    third = story.begin()
    assert third is not None
    assert (third.version, third.skipped) == (8, (4, 6))


def test_a_version_that_no_multiple_hits_is_evaluated_when_several_were_published_at_once() -> None:
    story = Evaluated(evaluating(every=2))
    story.whole()
    story.tell(published(3))
    started = story.begin()
    assert started is not None
    assert started.version == 3


def test_verdicts_that_never_come_are_lost_once_the_next_evaluation_is_due() -> None:
    story = Evaluated(evaluating(every=2, episodes=1, temperatures=("greedy",)))
    story.begin()
    (asked,) = story.ask()
    story.tell(published(2))
    assert story.finish() is None, "it is still being played"
    story.end(asked.episode, version=1)
    finished = story.finish()
    assert finished is not None
    assert finished.reason == "1 episodes have no verdict, and policy 2 is to be evaluated"
    assert (finished.version_low, finished.version_high) == (1, 1)
    assert [one.lost for one in finished.results] == [1]


def test_an_evaluation_whose_setting_is_taken_back_ends_at_once() -> None:
    story = Evaluated(evaluating())
    story.begin()
    story.play("success")
    off = finish_evaluation(story.state, settings=settings_of())
    assert off is not None
    assert off.reason == "evaluation.every = 0"
    assert sum(one.successes for one in off.results) == 1
    assert sum(one.lost for one in off.results) == 7


def test_tasks_that_exist_no_more_are_a_worded_error() -> None:
    story = Evaluated(evaluating())
    story.begin()
    with pytest.raises(SettingsError, match="'shop'"):
        request_evaluation(story.state, settings=story.settings, sources={"forms": SOURCES["forms"]})


def test_nothing_is_begun_while_the_run_is_paused() -> None:
    story = Evaluated(evaluating())
    pause = ControlRequested(command="pause", arguments={}, author="me", reason="lunch")
    story.tell(pause)
    assert story.begin() is None
    story.tell(msgspec.structs.replace(pause, command="resume"))
    assert story.begin() is not None
    story.tell(pause)
    assert story.ask() == []


def drain(**arguments: object) -> ControlRequested:
    return ControlRequested(command=DRAIN, arguments=arguments, author="start", reason="goal")


def test_the_last_version_is_evaluated_once_where_a_drain_asks_for_it() -> None:
    story = Evaluated(evaluating(every=10))
    story.whole()
    story.tell(published(3))
    story.tell(drain(**{EVALUATE: True}))
    started = story.begin()
    assert started is not None
    assert (started.version, started.number) == (3, 1)
    story.play(*["failure"] * 8)
    assert story.finish() is not None
    assert story.begin() is None


def test_a_last_version_that_is_about_to_be_published_is_waited_for() -> None:
    story = Evaluated(evaluating())
    story.whole()
    planned = a_batch(story)
    minibatches = len(unpack_ids(planned.minibatches))
    for minibatch in range(minibatches):
        story.tell(applied(planned.batch, minibatch))
    story.tell(drain(**{EVALUATE: True}))
    assert story.begin() is None
    assert delays_drain(story.state, settings=story.settings, tasks=story.held_out)
    story.tell(published(1))
    started = story.begin()
    assert started is not None
    assert started.version == 1


def test_a_batch_that_a_goal_left_unfinished_delays_no_end() -> None:
    story = Evaluated(evaluating())
    story.whole()
    planned = a_batch(story)
    story.tell(applied(planned.batch, 0))
    story.tell(drain(**{EVALUATE: True}))
    assert not delays_drain(story.state, settings=story.settings, tasks=story.held_out)


def test_a_last_version_that_played_all_of_the_evaluation_before_it_needs_no_other() -> None:
    story = Evaluated(evaluating())
    story.whole()
    story.tell(published(1))
    story.tell(drain(**{EVALUATE: True}))
    assert story.begin() is not None
    story.tell(published(2))  # the update under way at the drain was the last of its batch
    story.play(*["failure"] * 8)
    finished = story.finish()
    assert finished is not None
    assert (finished.version, finished.version_low) == (1, 2)
    assert not delays_drain(story.state, settings=story.settings, tasks=story.held_out)


def test_a_drain_that_asks_for_none_begins_nothing() -> None:
    story = Evaluated(evaluating())
    story.begin()
    story.tell(drain())
    assert story.ask() == []
    story.tell(RunResumed(after_position=1, fingerprint=story.history[0].fact.fingerprint, until={}))  # type: ignore[attr-defined]
    assert len(story.ask()) == 3


def test_a_last_version_that_was_evaluated_already_is_not_evaluated_again() -> None:
    story = Evaluated(evaluating())
    story.whole()
    story.tell(drain(**{EVALUATE: True}))
    assert story.begin() is None


def test_a_state_restored_from_a_snapshot_goes_on_where_it_was() -> None:
    story = Evaluated(evaluating())
    story.begin()
    (first, *_) = story.ask()
    story.start(first.episode)
    story.end(first.episode)
    kind = curriculum_kind(story.settings)
    again = kind.decode(kind.encode(story.state))
    assert again.evaluations == story.state.evaluations
    requests = request_evaluation(story.state, settings=story.settings, sources=SOURCES)
    assert request_evaluation(again, settings=story.settings, sources=SOURCES) == requests
    assert len(requests) == 1


def test_the_tasks_of_evaluations_are_none_of_those_trained_on() -> None:
    class Listed:
        """Three tasks in all, again from the first after the last."""

        name = "shop"
        resets = "per_episode"

        def families(self) -> tuple[str, ...]:
            return ("buy",)

        usual = families

        def task(self, family: str, seed: int) -> Task:
            return SOURCES["shop"].task(family, seed % 3)

    settings = settings_of(curriculum={"environments": ("shop",), "task_pool": 2}, evaluation=EVERY)
    sources = {"shop": Listed()}
    pool = configured_pool(sources, settings.curriculum)
    trained = set(chain.from_iterable(tasks for tasks in pool.values()))
    found = held_out_tasks(sources, settings.evaluation, families=("shop/buy",), pool=pool)
    assert [task.name for task in found] == ["shop/buy:2"]
    assert not trained & {task.id for task in found}


class EvaluatedBench(Bench):
    """A curriculum's process with evaluations, on a log in memory."""

    def __init__(self, **evaluation: object) -> None:
        super().__init__()
        self.settings = evaluating(**evaluation).model_copy(update={"log": self.settings.log})
        self._played: set[str] = set()

    async def play(self, *, most: int = 1_000) -> None:
        """End and judge up to so many evaluation episodes, as they are requested, until it is cancelled."""
        while True:
            for request in await self.facts(EpisodeRequested):
                if (
                    request.origin == "evaluation"
                    and request.episode not in self._played
                    and len(self._played) < most
                ):
                    self._played.add(request.episode)
                    judgment = Judgment(outcome="success", reward=1.0, reason="")
                    await self.tell(
                        ended(request),
                        EpisodeJudged(
                            episode=request.episode, task_id=request.task.id, judge=RULES, judgment=judgment
                        ),
                    )
            await asyncio.sleep(0.5)

    async def decide_and_play(self, *names: str, for_s: float, most: int = 1_000) -> None:
        """Run curricula of these names while episodes are played."""
        async with asyncio.TaskGroup() as tasks:
            playing = tasks.create_task(self.play(most=most))
            async with asyncio.TaskGroup() as deciding:
                for name in names:
                    deciding.create_task(self.decide(for_s=for_s, name=name))
            playing.cancel()


def test_a_curriculum_that_is_started_again_goes_on_with_the_evaluation() -> None:
    async def main() -> None:
        bench = EvaluatedBench()
        await bench.decide_and_play("curriculum.1", for_s=5, most=4)
        assert await bench.facts(EvaluationFinished) == []
        await bench.decide_and_play("curriculum.1", for_s=10)
        (started,) = await bench.facts(EvaluationStarted)
        (finished,) = await bench.facts(EvaluationFinished)
        assert len(started.tasks) == 4
        assert sum(result.successes for result in finished.results) == 8
        asked = [fact for fact in await bench.facts(EpisodeRequested) if fact.origin == "evaluation"]
        assert len(asked) == len({fact.episode for fact in asked}) == 8

    run_virtually(main())


def test_two_curricula_at_once_start_and_finish_an_evaluation_once() -> None:
    async def main() -> None:
        bench = EvaluatedBench()
        await bench.decide_and_play("curriculum.1", "curriculum.2", for_s=15)
        assert len(await bench.facts(EvaluationStarted)) == 1
        assert len(await bench.facts(EvaluationFinished)) == 1

    run_virtually(main())


def test_a_drain_is_applied_after_the_evaluation_that_it_asks_for() -> None:
    async def main() -> None:
        bench = EvaluatedBench(every=100)
        await bench.decide_and_play("curriculum.1", for_s=10)
        await bench.tell(published(7), drain(**{EVALUATE: True}))
        await bench.decide(for_s=5)
        assert await bench.facts(ControlApplied) == [], "its evaluation waits to be played"
        await bench.decide_and_play("curriculum.1", for_s=10)
        facts = await bench.facts(EvaluationStarted, EvaluationFinished, ControlApplied)
        assert [type(fact) for fact in facts[2:]] == [EvaluationStarted, EvaluationFinished, ControlApplied]
        assert facts[3].version == 7
        spared = {fact.episode for fact in await bench.facts(EpisodeRequested) if fact.origin == "evaluation"}
        assert spared.isdisjoint(fact.episode for fact in await bench.facts(EpisodeCancelled))

    run_virtually(main())
