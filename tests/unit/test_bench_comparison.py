"""Comparisons of benchmarks: ratios of pairs, not of averages."""

import pytest

from bench.comparison import compare, summarise


def test_the_ratio_is_that_of_pairs_so_a_machine_that_slows_down_changes_nothing() -> None:
    pairs = [(200.0, 100.0), (20.0, 10.0), (2.0, 1.0)]
    found = summarise(pairs, figure="f", unit="x/s", peer_name="peer", goal=1.5)
    assert (found.ratio, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    assert (found.ours, found.peer) == (20.0, 10.0)


def test_the_interval_holds_the_ratio_and_comes_out_the_same_again() -> None:
    pairs = [(100.0, 100.0), (150.0, 100.0), (225.0, 100.0), (90.0, 100.0)]
    first, second = (summarise(pairs, figure="f", unit="x/s", peer_name="peer", goal=None) for _ in range(2))
    assert first == second
    assert first.low < first.ratio < first.high
    assert first.low >= 0.9
    assert first.high <= 2.25


async def test_the_two_take_turns_and_the_first_turn_alternates() -> None:
    turns: list[str] = []

    async def ours() -> float:
        turns.append("ours")
        return 4.0

    async def peer() -> float:
        turns.append("peer")
        return 2.0

    said: list[str] = []
    found = await compare(
        ours, peer, figure="f", unit="x/s", peer_name="peer", goal=2.0, repeats=3, said=said.append
    )
    assert turns == ["ours", "peer", "peer", "ours", "ours", "peer"]
    assert found.ratio == pytest.approx(2.0)
    assert len(said) == 3
