"""What `hindcast watch` shows: shares of time, success, and the bottleneck in words, from events at known times."""

import os
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from fakes.bare_step import bare_step
from hindcast.app.watch.rendering import as_line, as_screen
from hindcast.app.watch.state import Spans, WatchFold, covered_ns, total_ns
from hindcast.app.watch.view import ActorView, EpisodeView, RunView, bottleneck
from hindcast.core.domain.arrays import pack_floats, pack_ids
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.events.catalogue import (
    BatchPlanned,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    EvaluationFinished,
    RunResumed,
    SamplesSwept,
    UpdateApplied,
    WaitExceeded,
    WeightsAdopted,
)
from hindcast.events.catalogue.run import Fingerprint
from hindcast.events.catalogue.training import PlannedEpisode, SampleReport
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import Envelope, Fact, Recorded
from stories.synthetic_run import recorded_run

SECOND_NS = 1_000_000_000
START_NS = 1_700_000_000 * SECOND_NS
RULES = JudgeIdentity(name="rules", version="1")
TASK = Task(environment="store", family="find_price", seed=1, instruction="i", goal={}, max_steps=8)


class Story:
    """Facts at seconds after the start, told to a watch."""

    def __init__(self) -> None:
        self.watch = WatchFold(judge="rules", group_size=2, window_s=100)
        self.position = 0

    def tell(self, at_s: float, producer: str, fact: Fact) -> None:
        self.position += 1
        envelope = Envelope(
            id=str(self.position),
            type="any",
            version=1,
            run="tale",
            entity="e",
            ordinal=0,
            causation=None,
            correlation=None,
            producer=producer,
            incarnation=producer,
            producer_seq=0,
            prev_hash=b"",
            occurred_ns=START_NS + int(at_s * SECOND_NS),
            policy_version=None,
            code_rev="t",
            payload=msgspec.Raw(b""),
        )
        self.watch.apply(Recorded(self.position, envelope, fact, b""))

    def request(self, at_s: float, name: str, origin: str = "online") -> None:
        fact = EpisodeRequested(
            episode=name,
            task=TASK,
            group="g",
            member=0,
            group_size=2,
            attempt=0,
            origin=origin,
            temperature=1.0,
            phase=0,
            min_version=0,
            lease_s=60,
        )
        self.tell(at_s, "curriculum.1", fact)

    def begin(self, at_s: float, name: str, actor: str = "actor.1") -> None:
        fact = EpisodeStarted(episode=name, actor=actor, instruction="i", renderer="lines/1")
        self.tell(at_s, actor, fact)

    def step(self, at_s: float, name: str, index: int) -> None:
        fact = bare_step(name, index, observe_ms=100, generate_ms=300, act_ms=100)
        self.tell(at_s, "actor.1", fact)

    def end(self, at_s: float, name: str, actor: str = "actor.1", version: int = 3) -> None:
        fact = EpisodeEnded(
            episode=name,
            task_id="t",
            actor=actor,
            reason="exit",
            steps=2,
            evidence=Evidence(answer=None, final_url="", probes={}),
            final_observation=None,
            policy_versions=(version, version),
            duration_ms=1.0,
        )
        self.tell(at_s, actor, fact)

    def judge(self, at_s: float, name: str, outcome: str, judge: JudgeIdentity = RULES) -> None:
        judgment = Judgment(outcome=outcome, reward=float(outcome == "success"), reason="r")  # type: ignore[arg-type]
        self.tell(at_s, "judge.1", EpisodeJudged(episode=name, task_id="t", judge=judge, judgment=judgment))

    def plan(self, at_s: float, updates: int, *, model: str = "policy") -> None:
        episodes = tuple(
            PlannedEpisode(
                episode=name, group=group, reward=1.0, advantage=1.0, samples=1, rehearsed=group == "old"
            )
            for name, group in (("a", "g"), ("b", "g"), ("c", "old"))
        )
        fact = BatchPlanned(
            batch=0,
            algorithm="grpo",
            as_of=1,
            log_digest=b"",
            positions=b"",
            sample_digests=b"",
            minibatches=pack_ids([1] * updates),
            episodes=episodes,
            consumed=(),
            seed=1,
            version=3,
            reference_version=None,
            proximal_version=None,
            critic_version=None,
            config_digest="",
            model=model,
        )
        self.tell(at_s, "learner.1", fact)

    def update(self, at_s: float, number: int, *, model: str = "policy") -> None:
        none = pack_floats([])
        fact = UpdateApplied(
            update=number,
            model=model,
            batch=0,
            minibatch=0,
            before="",
            after="",
            inputs="",
            metrics={"loss": 0.5, "staleness_mean": 1.25},
            samples=SampleReport(advantages=none, weights=none, ratios=none, masks=none),
            duration_ms=1.0,
            cpu_ms=1.0,
        )
        self.tell(at_s, "learner.1", fact)

    def view(self, at_s: float, *, up: bool = True) -> RunView:
        return self.watch.view(START_NS + int(at_s * SECOND_NS), up=up)


@pytest.fixture
def story() -> Story:
    return Story()


def test_stretches_are_clipped_to_the_window_and_their_union_counts_no_moment_twice() -> None:
    spans = Spans()
    for began, ended in ((0, 10), (5, 20), (30, 40)):
        spans.add(began, ended, keep_ns=100)
    inside = spans.within((8, 50), under_way=[45])
    assert inside == [(8, 10), (8, 20), (30, 40), (45, 50)]
    assert (total_ns(inside), covered_ns(inside)) == (29, 27)
    spans.add(200, 210, keep_ns=100)
    assert list(spans.over) == [(200, 210)]


def test_an_actor_is_idle_while_it_has_no_episode(story: Story) -> None:
    story.tell(0, "learner.1", RunResumed(after_position=0, fingerprint=FINGERPRINT, until={}))
    story.tell(0, "actor.1", WeightsAdopted(actor="actor.1", version=4, load_ms=1.0))
    for at, name in ((0, "a"), (10, "b")):
        story.request(at, name)
        story.begin(at, name)
    story.step(15, "b", 0)
    story.end(20, "a")
    (actor,) = story.view(25).actors
    assert [(one.episode, one.family, one.step, one.age_s) for one in actor.episodes] == [
        ("b", "store/find_price", 1, 15.0)
    ]
    assert (actor.policy_version, actor.idle, actor.idle_s, actor.quiet_s) == (4, 0.0, 0.0, 5.0)
    story.end(30, "b")
    (actor,) = story.view(40).actors
    assert (actor.idle, actor.idle_s, actor.episodes) == (0.25, 10.0, ())


def test_success_is_that_of_training_episodes_by_the_training_judge(story: Story) -> None:
    other = JudgeIdentity(name="second", version="1")
    for number in range(10):
        name = f"e{number}"
        story.request(0, name, "evaluation" if number == 9 else "online")
        story.begin(0, name)
        story.end(1, name, version=number % 2)
        story.judge(2, name, "failure", other)
        story.judge(2, name, "undecided" if number == 8 else "success" if number < 3 else "failure")
    rates = {rate.of: (round(rate.rate * rate.n), rate.n) for rate in story.view(3).success}
    assert rates == {"last 8": (3, 8), "policy 1": (1, 4), "policy 0": (2, 4)}


def test_a_learner_computes_from_a_plan_to_the_last_of_its_updates(story: Story) -> None:
    story.plan(10, updates=2)
    story.update(20, 1)
    assert story.view(30).learner.busy == pytest.approx(20 / 100)
    story.update(40, 2)
    learner = story.view(110).learner
    assert learner.busy == pytest.approx(30 / 100)
    assert (learner.updates, learner.loss, learner.staleness, learner.quiet_s) == (2, 0.5, 1.25, 70.0)


def test_updates_of_other_models_are_counted_apart_and_computing_them_is_computing(story: Story) -> None:
    story.plan(10, updates=2, model="critic")
    story.update(20, 1, model="critic")
    story.update(30, 2, model="critic")
    view = story.view(60)
    learner = view.learner
    assert (learner.updates, learner.beside, learner.loss) == (0, {"critic": 2}, None)
    assert learner.busy == pytest.approx(20 / 100)
    assert "2 of the critic" in as_line(view)
    story.plan(70, updates=1)
    story.update(80, 1)
    assert (story.view(80).learner.updates, story.view(80).learner.beside) == (1, {"critic": 2})


def test_a_restart_ends_what_was_under_way(story: Story) -> None:
    story.request(0, "a")
    story.begin(0, "a")
    story.plan(0, updates=9)
    story.tell(50, "bus.1", RunResumed(after_position=3, fingerprint=FINGERPRINT, until={}))
    view = story.view(60)
    assert (view.actors, view.running, view.learner.busy, view.window_s) == ((), 0, 0.0, 10.0)


FINGERPRINT = Fingerprint(
    cpu_capability="AVX2", threads=1, blas="b", torch="2", transformers="5", python="3", platform="linux"
)


def test_the_learner_is_the_bottleneck_when_it_computes_most_of_the_time(story: Story) -> None:
    story.plan(0, updates=9)
    story.tell(80, "actor.1", WeightsAdopted(actor="actor.1", version=1, load_ms=1.0))
    assert story.view(100).bottleneck.startswith(
        "the learner is the bottleneck: it computes 100% of the time"
    )


def test_actors_are_the_bottleneck_when_the_learner_waits_for_them(story: Story) -> None:
    story.plan(0, updates=1)
    story.update(30, 1)
    story.request(0, "a")
    story.begin(0, "a")
    story.step(90, "a", 0)
    said = story.view(100).bottleneck
    assert (
        said == "the learner waits 70% of the time: actors are the bottleneck (60% of a step is the policy)"
    )
    story.tell(95, "learner.1", SamplesSwept(episodes=("x",) * 8, reason="agreed", version=0))
    assert "80% of the groups agreed and taught nothing" in story.view(100).bottleneck


def test_the_judge_is_the_bottleneck_when_verdicts_are_late(story: Story) -> None:
    for name in "ab":
        story.request(0, name)
        story.begin(0, name)
        story.end(50, name)
    said = story.view(75).bottleneck
    assert said.endswith("the judge is the bottleneck, 2 episodes want a verdict, one for 25 s")


def test_the_curriculum_is_the_bottleneck_when_actors_idle(story: Story) -> None:
    story.request(0, "a")
    story.begin(0, "a")
    story.end(20, "a")
    story.judge(90, "a", "success")
    assert "actors idle 80%, the curriculum asks for too little" in story.view(100).bottleneck


def test_silence_and_a_system_that_is_down_are_said(story: Story) -> None:
    story.request(0, "a")
    assert story.view(45).bottleneck == "nothing has been recorded for 45 s"
    assert story.view(0, up=False).bottleneck == "nothing runs. Run: hindcast start tale"
    assert "starting" in bottleneck(story.view(1))


def test_a_view_is_shown_as_a_line_and_on_a_screen(story: Story) -> None:
    story.request(0, "a")
    story.begin(0, "a")
    story.end(1, "a")
    story.judge(2, "a", "success")
    story.tell(3, "actor.1", WaitExceeded(setting="actors.page_timeout_s", limit_s=15, waited_for="[a page]"))
    view = story.view(4)
    assert "success last 1 100% [21%, 100%] n=1" in as_line(view)
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(as_screen(view))
    shown = console.export_text()
    console.file.close()
    for words in (
        "actor.1",
        "policy 3",
        "[21%, 100%]",
        "waited longer than actors.page_timeout_s",
        view.bottleneck,
    ):
        assert words in shown
    assert msgspec.json.decode(msgspec.json.encode(view), type=RunView) == view


def test_a_family_is_text_whatever_its_author_called_it() -> None:
    one = EpisodeView(episode="a", family="store/[/b]\x1b[2J", step=1, age_s=1.0)
    actor = ActorView(name="actor.1", policy_version=1, episodes=(one,), idle=0.0, idle_s=0.0, quiet_s=0.0)
    view = msgspec.structs.replace(WatchFold(judge="rules", group_size=2).view(0, up=True), actors=(actor,))
    with Path(os.devnull).open("w") as nowhere:
        console = Console(width=160, record=True, file=nowhere)
        console.print(as_screen(view))
        assert "store/[/b]␛[2J" in console.export_text()


async def test_the_newest_evaluation_stands_on_a_line_with_its_gain_since_the_first() -> None:
    fold = WatchFold(judge="rules", group_size=4)
    lines = []
    for recorded in (await recorded_run(4, groups=12))[1]:
        fold.apply(recorded)
        if isinstance(recorded.fact, EvaluationFinished):
            lines.append(as_line(fold.view(0)))
    assert "held out policy 0: greedy 33% [16%, 56%]; at 1 22% [9%, 45%] · policy" in lines[0]
    assert "held out policy 1: greedy 50% [29%, 71%] +17; at 1 39% [20%, 61%] +17 · policy" in lines[1]
