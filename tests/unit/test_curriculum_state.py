"""What the curriculum folds: counts, groups, leases."""

import pytest

from hindcast.actors.curriculum.leases import Lease, LeaseTimer
from hindcast.actors.curriculum.pool import configured_pool
from hindcast.core.errors import SettingsError
from hindcast.events.catalogue import (
    ControlApplied,
    ControlRequested,
    EpisodeCancelled,
    EpisodeRequested,
    RunResumed,
    SamplesSwept,
)
from hindcast.events.catalogue.verdict import JudgeIdentity
from stories.curriculum_story import RULES, SECOND, SOURCES, Story, applied, published, settings_of, skipped


def group(story: Story) -> list[str]:
    """Request one group of four and name its episodes by member."""
    facts = story.wanted()
    for fact in facts:
        story.tell(fact)
        story.tasks[fact.episode] = fact.task
    assert [fact.member for fact in facts] == [0, 1, 2, 3]
    return [fact.episode for fact in facts]


def decided(story: Story, *outcomes: str) -> list[str]:
    """One group that ended with these outcomes."""
    episodes = group(story)
    for episode, outcome in zip(episodes, outcomes, strict=True):
        story.end(episode)
        story.judge(episode, outcome)  # type: ignore[arg-type]
    return episodes


def test_requests_are_running_until_their_terminal_fact() -> None:
    story = Story(settings_of())
    episodes = group(story)
    assert story.state.running == 4
    story.start(episodes[0])
    assert story.state.running == 4
    story.end(episodes[0])
    assert story.state.running == 3
    assert story.state.waiting == 1
    assert story.state.accepted(batch=story.batch) == 1


def test_a_group_whose_members_agree_is_discarded_before_any_batch_is_planned() -> None:
    story = Story(settings_of())
    decided(story, "failure", "failure", "failure", "failure")
    assert story.state.groups == {}
    assert (story.state.waiting, story.state.discarded) == (0, 4)


def test_a_group_whose_members_agree_waits_for_the_learner_without_the_filter_of_groups() -> None:
    story = Story(settings_of(learner={"options": {"group_filter": False}, "group_batch": 1}))
    decided(story, "failure", "failure", "failure", "failure")
    assert (story.state.waiting, story.state.discarded) == (4, 0)
    story.sweep()
    assert (story.state.waiting, story.state.discarded) == (4, 0)
    planned = story.plan()
    assert planned is not None
    story.train(planned)
    assert story.state.groups == {}
    assert story.state.discarded == 0


def test_a_lone_member_is_discarded_without_the_filter_of_groups_too() -> None:
    story = Story(settings_of(learner={"options": {"group_filter": False}}))
    decided(story, "failure", "undecided", "undecided", "undecided")
    assert (story.state.waiting, story.state.discarded) == (0, 4)


def test_a_failed_group_waits_for_the_learner_once_its_task_was_won_and_successes_are_replayed() -> None:
    story = Story(
        settings_of(
            curriculum={"families": ("shop/buy",), "task_pool": 1},
            learner={"success_replay": "random", "group_batch": 1},
        )
    )
    decided(story, "failure", "failure", "failure", "failure")
    assert (story.state.waiting, story.state.discarded) == (0, 4)
    decided(story, "success", "success", "success", "success")
    story.sweep()
    failed = decided(story, "failure", "failure", "failure", "failure")
    assert (story.state.waiting, story.state.discarded) == (4, 8)
    planned = story.plan()
    assert planned is not None
    (replay,) = [one for one in planned.episodes if one.replaces is not None]
    assert replay.replaces in failed
    assert (story.state.waiting, story.state.discarded) == (3, 9)
    story.train(planned)
    assert story.state.groups == {}


def test_groups_that_only_their_format_may_tell_apart_wait_for_the_learner_to_say_so() -> None:
    story = Story(settings_of(learner={"format_penalty": 1.0}))
    decided(story, "failure", "failure", "failure", "failure")
    assert (story.state.waiting, story.state.discarded) == (4, 0)
    story.sweep()
    assert (story.state.waiting, story.state.discarded) == (0, 4)


def test_a_group_whose_members_differ_waits_for_the_learner() -> None:
    story = Story(settings_of())
    decided(story, "failure", "success", "failure", "failure")
    assert (story.state.waiting, story.state.discarded) == (4, 0)


def test_an_undecided_member_is_discarded_alone() -> None:
    story = Story(settings_of())
    decided(story, "undecided", "success", "failure", "failure")
    assert (story.state.waiting, story.state.discarded) == (3, 1)


def test_an_abandoned_member_is_tried_again_as_a_new_episode_until_its_attempts_are_used_up() -> None:
    story = Story(settings_of(curriculum={"max_attempts": 2}))
    first = group(story)[0]
    story.start(first)
    story.abandon(first)
    (retry,) = [fact for fact in story.wanted() if fact.attempt]
    assert (retry.member, retry.attempt) == (0, 1)
    assert retry.episode != first
    story.tell(retry)
    story.tasks[retry.episode] = retry.task
    story.start(retry.episode)
    story.abandon(retry.episode)
    assert not [fact for fact in story.wanted() if fact.attempt]
    assert story.state.discarded == 2


def test_a_request_that_nobody_started_is_not_a_try() -> None:
    story = Story(settings_of(curriculum={"max_attempts": 1}))
    first = group(story)[0]
    story.abandon(first, reason="lease_expired")
    (again,) = [fact for fact in story.wanted() if fact.attempt]
    assert (again.member, again.attempt) == (0, 1)


def test_a_cancelled_member_is_not_tried_again() -> None:
    story = Story(settings_of())
    first = group(story)[0]
    story.tell(EpisodeCancelled(episode=first, task_id="", reason="stale", detail=""))
    assert story.state.owed == 0
    assert story.state.discarded == 1


def test_a_drained_run_requests_nothing_until_it_is_resumed() -> None:
    story = Story(settings_of())
    group(story)
    story.tell(ControlRequested(command="drain", arguments={}, author="test", reason="goal reached"))
    assert story.wanted() == []
    assert story.state.draining
    assert not story.state.drained
    story.tell(ControlApplied(command="drain", role="curriculum"))
    assert story.state.drained
    fingerprint = story.history[0].fact.fingerprint  # type: ignore[attr-defined]
    story.tell(RunResumed(after_position=1, fingerprint=fingerprint, until={}))
    assert story.wanted()


def test_only_the_first_judge_of_the_settings_counts() -> None:
    story = Story(settings_of())
    episodes = group(story)
    story.end(episodes[0])
    story.judge(episodes[0], "success", judge=JudgeIdentity(name="second", version="1"))
    assert story.state.tasks[story.tasks[episodes[0]].id].decided == 0
    story.judge(episodes[0], "success")
    story.judge(episodes[0], "failure")
    tally = story.state.tasks[story.tasks[episodes[0]].id]
    assert (tally.decided, tally.reward) == (1, 1.0)


def test_a_second_terminal_fact_changes_nothing() -> None:
    story = Story(settings_of())
    episodes = group(story)
    story.end(episodes[0])
    story.abandon(episodes[0])
    assert (story.state.waiting, story.state.discarded, story.state.owed) == (1, 0, 0)


def test_a_trained_batch_counts_as_a_full_one_however_many_members_its_groups_lost() -> None:
    story = Story(settings_of())
    decided(story, "undecided", "undecided", "failure", "success")
    decided(story, "failure", "success", "failure", "failure")
    planned = story.plan()
    assert planned is not None
    assert story.state.waiting == 6
    story.train(planned)
    state = story.state
    assert (state.waiting, state.version, state.groups) == (0, 1, {})
    assert state.accepted(batch=story.batch) - state.discarded == story.batch


def test_a_batch_whose_updates_were_all_skipped_is_discarded() -> None:
    story = Story(settings_of())
    decided(story, "failure", "success", "failure", "failure")
    decided(story, "failure", "success", "failure", "failure")
    planned = story.plan()
    assert planned is not None
    story.tell(skipped(planned.batch, 0))
    assert story.state.waiting == 8
    story.tell(skipped(planned.batch, 1))
    assert (story.state.waiting, story.state.discarded, story.state.version) == (0, 8, 0)


def test_a_batch_of_which_one_update_was_applied_waits_for_its_weights() -> None:
    story = Story(settings_of())
    decided(story, "failure", "success", "failure", "failure")
    decided(story, "failure", "success", "failure", "failure")
    planned = story.plan()
    assert planned is not None
    story.tell(skipped(planned.batch, 0))
    story.tell(applied(planned.batch, 1))
    assert story.state.waiting == 8
    story.tell(published(1))
    assert (story.state.waiting, story.state.discarded) == (0, 0)


def test_what_is_too_old_for_the_next_batch_gives_its_room_back_unasked() -> None:
    story = Story(settings_of(learner={"max_staleness": 1}))
    decided(story, "failure", "success", "failure", "failure")
    story.tell(published(1))
    assert story.state.waiting == 4
    story.tell(published(2))
    assert (story.state.waiting, story.state.discarded) == (0, 4)


def test_cloning_never_takes_anything_for_too_old_and_keeps_successes_alone() -> None:
    story = Story(settings_of(learner={"algorithm": "cloning", "max_staleness": 0}))
    decided(story, "failure", "success", "failure", "failure")
    story.tell(published(5))
    assert (story.state.waiting, story.state.discarded) == (1, 3)


def test_swept_episodes_are_discarded_once() -> None:
    story = Story(settings_of())
    episodes = decided(story, "failure", "success", "failure", "success")
    for _ in range(2):
        story.tell(SamplesSwept(episodes=(episodes[0],), reason="stale", version=0))
    assert (story.state.waiting, story.state.discarded) == (3, 1)


def test_evaluation_episodes_are_leased_and_nothing_else() -> None:
    story = Story(settings_of())
    fact = story.wanted()[0]
    story.tell(
        EpisodeRequested(
            episode="ep_eval",
            task=fact.task,
            group="g_eval",
            member=0,
            group_size=1,
            attempt=0,
            origin="evaluation",
            temperature=0.0,
            phase=0,
            min_version=0,
            lease_s=5,
        )
    )
    assert "ep_eval" in story.state.leases
    assert (story.state.running, story.state.groups) == (0, {})
    assert story.state.last_request == len(story.history)


def expired(timer: LeaseTimer, story: Story, *, now_s: float) -> dict[str, Lease]:
    """Leases that a reader finds run out, by episode."""
    return {lease.episode: lease for lease in timer.expired(story.state.leases, now_s=now_s)}


def test_a_lease_runs_from_the_request_and_again_from_the_start() -> None:
    story = Story(settings_of(curriculum={"lease_s": 10}))
    first, second = group(story)[:2]
    timer = LeaseTimer()
    assert expired(timer, story, now_s=0) == {}
    story.start(first)
    assert expired(timer, story, now_s=6) == {}
    assert expired(timer, story, now_s=9.9) == {}
    late = expired(timer, story, now_s=10)
    assert first not in late
    assert late[second].describe_expiry() == "no actor started it within 10 s"
    late = expired(timer, story, now_s=16)
    assert late[first].describe_expiry() == "actor.1 started it and did not end it within 10 s"


@pytest.mark.parametrize("jump_s", [86_400, -86_400])
def test_a_wall_clock_that_jumps_a_day_ends_no_lease(jump_s: int) -> None:
    """Events stamped before and after the jump are a day apart; the reader has watched for five seconds."""
    story = Story(settings_of(curriculum={"lease_s": 10}))
    story.now_ns = 10 * 86_400 * SECOND
    first, second = group(story)[:2]
    timer = LeaseTimer()
    assert expired(timer, story, now_s=0) == {}
    story.now_ns += jump_s * SECOND
    story.start(first)
    assert expired(timer, story, now_s=5) == {}
    assert second in expired(timer, story, now_s=10), "and the same bound holds afterwards"
    assert first in expired(timer, story, now_s=15)


def test_leases_follow_from_the_limit_of_an_episode_and_from_the_queue() -> None:
    """17 requests and an evaluation's 4, of which an actor plays 5 at a time: 5 rounds."""
    story = Story(
        settings_of(
            curriculum={"lease_s": 0, "max_running": 17},
            evaluation={"max_running": 4},
            actors={"contexts": 5, "episode_timeout_s": 100},
        )
    )
    first, second = group(story)[:2]
    timer = LeaseTimer()
    story.start(first)
    assert expired(timer, story, now_s=0) == {}
    assert expired(timer, story, now_s=129.9) == {}
    assert set(expired(timer, story, now_s=130)) == {first}, "its actor, if alive, has ended it after 100 s"
    assert second not in expired(timer, story, now_s=5 * 130 - 0.1)
    late = expired(timer, story, now_s=5 * 130)
    assert late[second].describe_expiry() == "no actor started it within 650 s"


def test_a_restarted_reader_grants_a_full_lease() -> None:
    story = Story(settings_of(curriculum={"lease_s": 10}))
    first = group(story)[0]
    story.start(first)
    timer = LeaseTimer()
    assert expired(timer, story, now_s=0) == {}
    again = LeaseTimer()
    assert expired(again, story, now_s=1_000_000) == {}, "another machine's monotonic clock"
    assert expired(again, story, now_s=1_000_009) == {}
    assert first in expired(again, story, now_s=1_000_010)


def test_a_lease_counts_the_steps_and_ends_with_the_episode() -> None:
    story = Story(settings_of())
    first = group(story)[0]
    story.end(first, steps=2)
    assert first not in story.state.leases
    assert first not in {lease.episode for lease in story.state.leases.all_open()}


def test_resuming_a_run_begins_the_leases_of_waiting_requests_anew() -> None:
    story = Story(settings_of(curriculum={"lease_s": 10}))
    started, waiting = group(story)[:2]
    story.start(started)
    timer = LeaseTimer()
    assert expired(timer, story, now_s=0) == {}
    fingerprint = story.history[0].fact.fingerprint  # type: ignore[attr-defined]
    story.tell(RunResumed(after_position=1, fingerprint=fingerprint, until={}))
    late = expired(timer, story, now_s=10)
    assert started in late
    assert waiting not in late
    assert waiting in expired(timer, story, now_s=20)


def test_a_state_folded_again_is_the_same() -> None:
    story = Story(settings_of())
    decided(story, "undecided", "success", "failure", "failure")
    story.abandon(group(story)[2])
    again = Story(settings_of(), task_admitted=False)
    for recorded in story.history[1:]:
        again.tell(recorded.fact)
    assert again.state.groups == story.state.groups
    assert again.state.discarded == story.state.discarded
    assert again.wanted() == story.wanted()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"environments": ("shop", "moon")}, "'moon'; there are: forms, shop"),
        ({"families": ("shop/steal",)}, "'shop/steal', which no environment"),
        ({"environments": ()}, "nothing to attempt"),
    ],
)
def test_a_pool_that_cannot_be_is_a_worded_error(changes: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        configured_pool(SOURCES, settings_of(curriculum=changes).curriculum)


def test_the_rule_judge_is_the_one_the_settings_name() -> None:
    assert settings_of().judge.judges[0] == RULES.name
