"""What is requested next, and for which task."""

from collections import Counter

import pytest

from hindcast.actors.curriculum.pool import preference
from hindcast.actors.curriculum.requests import finished
from stories.curriculum_story import Story, published, settings_of


def families(story: Story, groups: int, rates: dict[str, float]) -> Counter[str]:
    """Families of the next groups, each ending with its family's success rate."""
    seen: Counter[str] = Counter()
    for _ in range(groups):
        facts = story.wanted()
        task = facts[0].task
        seen[task.family] += 1
        for fact in facts:
            story.tell(fact)
            story.tasks[fact.episode] = fact.task
        for index, fact in enumerate(facts):
            story.end(fact.episode)
            good = index < round(rates[task.family] * len(facts))
            story.judge(fact.episode, "success" if good else "failure")
        story.tell(published(story.state.version + 9))  # too old at once: room for the next
    return seen


def test_a_group_is_requested_whole_and_only_when_there_is_room_for_all_of_it() -> None:
    story = Story(settings_of(curriculum={"max_running": 100}, learner={"max_staleness": 0}))
    facts = story.request()
    assert [fact.member for fact in facts] == [0, 1, 2, 3] * 2
    assert story.wanted() == []


def test_no_more_run_than_may() -> None:
    story = Story(settings_of(curriculum={"max_running": 6}))
    facts = story.request()
    assert len(facts) == 6
    assert story.state.owed == 2
    story.end(facts[5].episode)
    (owed,) = story.wanted()
    assert (owed.group, owed.member, owed.attempt) == (facts[4].group, 2, 0)


def test_what_open_groups_are_owed_comes_before_a_new_group() -> None:
    story = Story(settings_of(curriculum={"max_running": 8}))
    facts = story.request()
    story.abandon(facts[3].episode)
    story.end(facts[0].episode)
    assert [(fact.group, fact.member, fact.attempt) for fact in story.wanted()] == [(facts[3].group, 3, 1)]


def test_groups_larger_than_the_number_that_may_run_are_completed_all_the_same() -> None:
    story = Story(settings_of(curriculum={"max_running": 1, "group_size": 4}))
    played = []
    for _ in range(4):
        (fact,) = story.request()
        story.end(fact.episode)
        story.judge(fact.episode, "failure")
        played.append((fact.group, fact.member))
    assert played == [(played[0][0], member) for member in range(4)]


def test_demonstrations_come_first_over_all_families_and_are_not_counted() -> None:
    story = Story(settings_of(curriculum={"demonstrations": 5, "max_running": 3}))
    facts = story.request()
    for fact in facts[:]:
        story.end(fact.episode, version=-1)
        facts += story.request()
        assert fact.origin == "demonstration"
    demonstrated = [fact.task.family for fact in facts if fact.origin == "demonstration"]
    assert Counter(demonstrated) == Counter(buy=2, find=1, compare=1, fill=1)
    assert [fact.origin for fact in facts[:5]] == ["demonstration"] * 5
    assert facts[5].origin == "online"
    assert story.state.accepted(batch=story.batch) == 0


def test_every_family_is_tried_before_any_is_preferred() -> None:
    story = Story(settings_of())
    seen = families(story, 4, {"buy": 1.0, "find": 0.0, "compare": 0.5, "fill": 0.5})
    assert seen == Counter(buy=1, find=1, compare=1, fill=1)


def test_families_whose_groups_differ_come_more_often_and_none_is_forgotten() -> None:
    story = Story(settings_of(curriculum={"task_pool": 8}))
    seen = families(story, 120, {"buy": 1.0, "find": 0.0, "compare": 0.5, "fill": 1.0})
    assert seen["compare"] > 2 * max(seen["buy"], seen["find"], seen["fill"])
    assert min(seen.values()) >= 10


def test_a_task_is_not_attempted_twice_at_the_same_time_while_others_are_free() -> None:
    story = Story(
        settings_of(
            curriculum={"families": ("shop/buy",), "task_pool": 4, "max_running": 16},
            learner={"max_staleness": 9},
        )
    )
    tasks = Counter(fact.task.id for fact in story.request())
    assert sorted(tasks.values()) == [4, 4, 4, 4]


def test_equal_histories_lead_to_equal_requests_and_another_seed_to_others() -> None:
    assert Story(settings_of()).request() == Story(settings_of()).request()
    other = Story(settings_of(run={"seed": 2})).request()
    assert {fact.episode for fact in other}.isdisjoint(f.episode for f in Story(settings_of()).request())


def test_a_request_asks_for_a_policy_that_will_not_be_too_old() -> None:
    story = Story(settings_of(learner={"max_staleness": 1}))
    assert story.wanted()[0].min_version == 0
    story.tell(published(5))
    assert story.wanted()[0].min_version == 4


def test_a_finite_run_stops_requesting_and_ends_with_its_last_episode() -> None:
    story = Story(settings_of())
    goal = 5
    requested = []
    while facts := story.wanted(until_episodes=goal):
        for fact in facts:
            story.tell(fact)
            story.tasks[fact.episode] = fact.task
        requested += facts
    assert len(requested) == 8, "groups are requested whole"
    for fact in requested:
        assert not finished(story.state, goal)
        story.end(fact.episode)
    assert finished(story.state, goal)
    assert story.wanted(until_episodes=goal) == []


def test_preference_is_highest_where_outcomes_are_most_uncertain_and_never_nothing() -> None:
    rates = [0.0, 0.25, 0.5, 0.75, 1.0]
    values = [preference(rate) for rate in rates]
    assert values[0] == values[4] > 0
    assert values[1] == values[3] < values[2] == 1.0


def test_a_share_of_the_demonstrators_is_in_haste_whatever_else_happens() -> None:
    """The draw depends on the run's seed and the demonstration's number alone."""
    shares = {}
    for share in (0.0, 0.6, 1.0):
        story = Story(
            settings_of(curriculum={"demonstrations": 200, "max_running": 200, "hasty_share": share})
        )
        facts = story.request()
        shares[share] = sum(fact.hasty for fact in facts if fact.origin == "demonstration") / 200
        assert not any(fact.hasty for fact in facts if fact.origin != "demonstration")
    assert shares == {0.0: 0.0, 0.6: pytest.approx(0.6, abs=0.1), 1.0: 1.0}


def test_uniform_sampling_prefers_nothing() -> None:
    rates = {"buy": 1.0, "find": 0.0, "compare": 0.5, "fill": 0.5}
    drawn = {}
    for sampling in ("uniform", "learnable"):
        drawn[sampling] = families(Story(settings_of(curriculum={"sampling": sampling})), 400, rates)
    assert set(drawn["uniform"]) == set(rates)
    assert min(drawn["uniform"].values()) > 70, drawn["uniform"]
    assert max(drawn["uniform"].values()) < 130, drawn["uniform"]
    assert drawn["learnable"]["compare"] > 1.5 * drawn["learnable"]["buy"]


BRANCHING = {"group_size": 2, "branches": 2, "branch_steps": 2, "max_running": 6}


def branching(**curriculum: object) -> Story:
    """A story with room for one tree: two episodes, and two continuations from each of two steps of the first."""
    learner = {"algorithm": "branching", "group_batch": 1, "max_staleness": 0}
    return Story(settings_of(curriculum={**BRANCHING, **curriculum}, learner=learner))


def test_continuations_are_requested_once_the_first_episode_has_ended() -> None:
    story = branching()
    first, second = story.request()
    assert [(one.group_size, one.branch) for one in (first, second)] == [(6, None)] * 2
    story.end(second.episode, steps=3)
    assert story.wanted() == []
    story.end(first.episode, steps=5)
    requested = story.request()
    assert [one.member for one in requested] == [2, 3, 4, 5]
    assert {one.origin for one in requested} == {"online"}
    points = [one.branch for one in requested]
    assert all(point is not None and point.episode == first.episode for point in points)
    steps = [point.step for point in points if point is not None]
    assert steps[0] == steps[1] != steps[2] == steps[3]
    assert set(steps) < {1, 2, 3, 4}
    before_its_steps = next(one.position for one in story.history if one.fact == first)
    assert {point.after for point in points if point is not None} == {before_its_steps}
    assert story.wanted() == [], "a second group has no room before this one is used up"


def test_the_steps_to_branch_at_do_not_depend_on_the_outcome() -> None:
    found = []
    for outcome in ("success", "failure"):
        story = branching()
        first, _ = story.request()
        story.end(first.episode, steps=6)
        story.judge(first.episode, outcome)
        found.append([one.branch for one in story.request()])
    assert found[0] == found[1]


def test_members_that_have_no_step_to_branch_at_begin_with_the_task() -> None:
    story = branching()
    first, _ = story.request()
    story.end(first.episode, steps=2)
    assert [one.branch and one.branch.step for one in story.request()] == [1, 1, None, None]
    lost = branching(max_attempts=1)
    first, _ = lost.request()
    lost.start(first.episode)
    lost.abandon(first.episode)
    assert [one.branch for one in lost.request()] == [None] * 4


def test_a_lost_continuation_is_repeated_from_the_same_step() -> None:
    story = branching()
    first, _ = story.request()
    story.end(first.episode, steps=5)
    lost = story.request()[0]
    story.abandon(lost.episode)
    (again,) = story.request()
    assert (again.member, again.attempt, again.branch) == (lost.member, 1, lost.branch)
