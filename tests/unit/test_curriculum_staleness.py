"""Admission, by hand-computed numbers."""

from hindcast.core.rl.staleness import capacity, is_stale, room


def test_room_is_what_the_next_eta_batches_can_still_take() -> None:
    # (2 + 3 + 1) * 32 = 192 in all; 130 accepted, 20 of them lost, 50 under way: 160 are taken.
    assert room(eta=2, version=3, batch=32, accepted=130, discarded=20, running=50) == 32


def test_a_lost_episode_gives_its_room_back_and_a_kept_one_does_not() -> None:
    before = room(eta=0, version=0, batch=8, accepted=8, discarded=0, running=0)
    assert before == 0
    assert room(eta=0, version=0, batch=8, accepted=8, discarded=1, running=0) == 1
    assert room(eta=0, version=0, batch=8, accepted=9, discarded=0, running=0) == -1


def test_a_new_version_makes_room_for_one_batch() -> None:
    old = room(eta=1, version=4, batch=8, accepted=40, discarded=0, running=8)
    assert room(eta=1, version=5, batch=8, accepted=40, discarded=0, running=8) == old + 8


def test_capacity_is_the_smaller_of_free_places_and_room() -> None:
    assert capacity(max_running=4, eta=9, version=0, batch=8, accepted=0, discarded=0, running=3) == 1
    assert capacity(max_running=99, eta=0, version=0, batch=8, accepted=5, discarded=0, running=1) == 2


def test_a_step_is_stale_only_beyond_eta() -> None:
    assert not is_stale(version=5, sampled=3, eta=2)
    assert is_stale(version=6, sampled=3, eta=2)
