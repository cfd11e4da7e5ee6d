"""The replay buffer as a fold: what becomes trainable, when a group is complete, what is let go of."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fakes.tiny_policy import write_tiny_policy
from hindcast.core.domain.task import Task
from hindcast.core.errors import CorruptEvent, SettingsError
from hindcast.events.catalogue import EpisodeCancelled, EpisodeJudged, RecipeChanged, SamplesSwept, StepTaken
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.log.memory import MemoryLog
from hindcast.learner.batch_plan import plan, sweep
from hindcast.learner.buffer.state import BufferState
from hindcast.storage.blobs.store import BlobStore
from stories.training_story import RUN, Member, Story, Told, folded, informative, settings_with, tell

pytestmark = pytest.mark.torch

TASK = Task(environment="store", family="find", seed=1, instruction="find it", goal={}, max_steps=9)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("policy"))


class Desk:
    """Tells a story into a fresh log and shows the buffer that follows from it."""

    def __init__(self, folder: Path, policy: Path, **learner: object) -> None:
        self.story = Story(policy)
        self.settings = settings_with(**learner)
        self.log = MemoryLog(RUN)
        self.opening = [self.story.start(BlobStore(folder), self.settings)]

    async def after(self, told: Sequence[Told]) -> BufferState:
        await tell(self.log, [*self.opening, *told])
        self.opening = []
        return await folded(self.log)

    def reasons(self, state: BufferState) -> dict[str, tuple[str, ...]]:
        return {fact.reason: fact.episodes for fact in sweep(state, state.settings)}


@pytest.fixture
def desk(tmp_path: Path, policy: Path) -> Desk:
    return Desk(tmp_path, policy)


async def test_a_group_is_complete_when_its_last_verdict_is_in(desk: Desk) -> None:
    told = desk.story.group(*informative())
    state = await desk.after(told[:-1])
    assert not state.complete
    state = await desk.after(told[-1:])
    assert list(state.complete) == ["group_0"]
    assert [len(e.samples) for e in state.episodes.values()] == [2, 3, 2, 4]


async def test_samples_are_the_recorded_arrays_with_their_positions(desk: Desk) -> None:
    told = desk.story.group(*informative())
    state = await desk.after(told)
    steps = [(at, t.fact) for at, t in enumerate(told, 2) if isinstance(t.fact, StepTaken)]
    samples = [sample for episode in state.episodes.values() for sample in episode.samples]
    assert [(s.position, s.prompt_ids, s.action_ids, s.logprobs) for s in samples] == [
        (at, step.prompt_ids, step.action_ids, step.logprobs) for at, step in steps
    ]


def without_place(state: BufferState) -> dict[str, object]:
    """The state without how far the log is folded."""
    places = {"position", "latest", "digest"}
    return {name: getattr(state, name) for name in state.__slots__ if name not in places}


async def test_evaluation_episodes_leave_no_trace_in_the_buffer(tmp_path: Path, policy: Path) -> None:
    every_model = {"orm_every": 1, "relabeler_every": 1, "orm_held_out": 0.0, "relabeler_held_out": 0.0}
    desk = Desk(tmp_path, policy, **every_model)
    before = await desk.after(desk.story.group(*informative()))
    evaluated = [member._replace(origin="evaluation") for member in informative()]
    after = await desk.after(desk.story.group(*evaluated))
    assert after.position > before.position
    assert without_place(after) == without_place(before)
    trained = await desk.after(desk.story.group(*informative()))
    assert without_place(trained) != without_place(before), "episodes of training do leave one"


@pytest.mark.parametrize(("algorithm", "kept"), [("grpo", 0), ("cloning", 3)])
async def test_demonstrations_are_kept_where_they_are_cloned(
    tmp_path: Path, policy: Path, algorithm: str, kept: int
) -> None:
    desk = Desk(tmp_path, policy, algorithm=algorithm)
    state = await desk.after(desk.story.group(Member(1.0, 3, origin="demonstration", version=-1)))
    assert sum(len(e.samples) for e in state.episodes.values()) == kept


async def test_an_abandoned_member_is_left_out_and_its_steps_are_let_go_of(desk: Desk) -> None:
    lost = Member(0.0, 2, abandoned=True)
    state = await desk.after(desk.story.group(Member(1.0, 2), Member(0.0, 2), lost, Member(0.0, 1)))
    assert state.episodes["ep_group_0_2"].samples == []
    made = plan(state, settings_with(group_batch=1))
    assert made is not None
    assert [e.episode for e in made.episodes] == ["ep_group_0_0", "ep_group_0_1", "ep_group_0_3"]
    assert made.episodes[0].advantage == pytest.approx((2 / 3) / ((2 / 9) ** 0.5 + 1e-4))


async def test_a_retry_takes_the_place_of_the_attempt_that_was_lost(tmp_path: Path, policy: Path) -> None:
    desk = Desk(tmp_path, policy)
    story = desk.story
    desk.settings = settings_with().model_copy(
        update={"curriculum": desk.settings.curriculum.model_copy(update={"max_attempts": 2})}
    )
    desk.opening = [story.start(BlobStore(tmp_path), desk.settings)]
    state = await desk.after(story.group(Member(1.0, 1), Member(0.0, 2, abandoned=True)))
    assert not state.complete
    retry = Member(0.0, 1)
    told = [
        story.request(TASK, "group_0", 1, 2, retry, attempt=1),
        *story.episode(TASK, "ep_group_0_1_1", retry),
    ]
    state = await desk.after(told[:1])
    assert "ep_group_0_1" not in state.episodes
    state = await desk.after(told[1:])
    assert list(state.complete) == ["group_0"]
    assert state.groups["group_0"].members == {0: "ep_group_0_0", 1: "ep_group_0_1_1"}


async def test_a_cancelled_member_is_not_waited_for(desk: Desk) -> None:
    story = desk.story
    told = story.group(Member(1.0, 1), Member(0.0, 1), Member(0.0, 1))[:-3]  # the third never starts
    cancelled = EpisodeCancelled(episode="ep_group_0_2", task_id=TASK.id, reason="stale", detail="")
    state = await desk.after([t for t in told if "0_2" not in t.entity or t.role == "curriculum"])
    assert not state.complete
    state = await desk.after([Told("curriculum", "ep_group_0_2", cancelled)])
    assert list(state.complete) == ["group_0"]


async def test_undecided_is_not_failure(desk: Desk) -> None:
    undecided = Member(0.0, 2, outcome="undecided")
    state = await desk.after(desk.story.group(Member(1.0, 1), Member(0.0, 1), undecided))
    assert desk.reasons(state) == {"undecided": ("ep_group_0_2",)}
    made = plan(state, settings_with(group_batch=1))
    assert made is not None
    assert ([e.reward for e in made.episodes], made.consumed) == ([1.0, 0.0], ("ep_group_0_2",))


async def test_the_first_verdict_of_the_training_judge_counts(desk: Desk) -> None:
    told = desk.story.group(*informative())
    verdict = told[-1].fact
    assert isinstance(verdict, EpisodeJudged)
    other = EpisodeJudged(
        episode=verdict.episode,
        task_id=verdict.task_id,
        judge=JudgeIdentity(name="second", version="1"),
        judgment=verdict.judgment,
    )
    state = await desk.after([*told[:-1], Told("judge", "second", other)])
    assert state.episodes[verdict.episode].outcome is None
    state = await desk.after(told[-1:])
    assert state.episodes[verdict.episode].outcome == "failure"


async def test_groups_that_agree_or_have_one_member_left_are_swept(desk: Desk) -> None:
    agreed = desk.story.group(Member(1.0, 1), Member(1.0, 2))
    alone = desk.story.group(Member(1.0, 1), Member(0.0, 2, abandoned=True))
    state = await desk.after(agreed + alone)
    assert desk.reasons(state) == {"agreed": ("ep_group_0_0", "ep_group_0_1"), "alone": ("ep_group_1_0",)}
    swept = [Told("learner", "samples", fact) for fact in sweep(state, state.settings)]
    state = await desk.after(swept)
    assert not state.episodes
    assert not state.groups
    assert sweep(state, state.settings) == []


async def test_a_swept_episode_holds_no_arrays_and_completes_its_group(desk: Desk) -> None:
    told = desk.story.group(*informative())
    await desk.after(told[:-1])  # the last verdict is missing
    fact = SamplesSwept(episodes=("ep_group_0_3", "ep_group_0_0"), reason="stale", version=0)
    state = await desk.after([Told("learner", "samples", fact)])
    assert state.episodes["ep_group_0_0"].samples == []
    assert list(state.complete) == ["group_0"]


async def test_an_episode_that_ends_after_its_group_was_used_up_is_swept_as_late(desk: Desk) -> None:
    state = await desk.after(desk.story.group(Member(1.0, 1), Member(1.0, 2)))
    await desk.after([Told("learner", "samples", fact) for fact in sweep(state, state.settings)])
    late = Member(0.0, 1)
    request = desk.story.request(TASK, "group_0", 1, 2, late, attempt=1)
    state = await desk.after([request, *desk.story.episode(TASK, "ep_group_0_1_1", late)])
    assert desk.reasons(state) == {"late": ("ep_group_0_1_1",)}
    assert state.episodes["ep_group_0_1_1"].samples == []


async def test_steps_that_follow_an_abandonment_are_ignored(desk: Desk) -> None:
    lost = Member(0.0, 1, abandoned=True)
    told = desk.story.group(Member(1.0, 1), lost, Member(0.0, 1))
    step = Told("actor", "ep_group_0_1", desk.story.step("ep_group_0_1", 1, lost))
    state = await desk.after([*told, step])
    assert state.episodes["ep_group_0_1"].samples == []


async def test_steps_out_of_order_are_a_worded_error(desk: Desk) -> None:
    told = desk.story.group(*informative())
    skipped = [t for t in told if not (isinstance(t.fact, StepTaken) and t.fact.index == 1)]
    with pytest.raises(
        CorruptEvent, match=r"episode ep_group_0_1 got step 2 where step 1 was due \(position 1\d\)"
    ):
        await desk.after(skipped)


async def test_changed_settings_hold_from_their_event_on(desk: Desk) -> None:
    state = await desk.after(desk.story.group(*informative()))
    assert plan(state, state.settings) is None
    change = RecipeChanged(author="me", reason="", changes={"learner": {"options": {"group_batch": 1}}})
    state = await desk.after([Told("app", RUN, change)])
    assert plan(state, state.settings) is not None
    assert state.settings.learner.learning_rate == 3e-3


async def test_settings_of_another_hindcast_are_a_worded_error(desk: Desk) -> None:
    change = RecipeChanged(author="me", reason="", changes={"learner": {"magic": 1}})
    with pytest.raises(
        SettingsError, match=r"position 2 do not fit this Hindcast: learner\.magic: .* code test"
    ):
        await desk.after([Told("app", RUN, change)])
