"""Hindsight supervised learning: its loss against numbers by hand, its weights, its memory and what is drawn from it."""

from collections import Counter
from math import log
from random import Random
from typing import cast

import pytest
from factories import loss_of, terms
from hypothesis import given
from hypothesis import strategies as st

from hindcast.core.rl.advantages import demonstration_weight, drawn
from hindcast.core.rl.loss_normalization import EpisodeTokens
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import BatchPlanned, RunStarted
from hindcast.learner.algorithms import loss_for
from hindcast.learner.algorithms.base import EpisodePart
from hindcast.learner.batch_plan import plan, policy_planner, sweep
from hindcast.learner.buffer.records import Episode, RelabelledDemonstration, Sample
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.sample_terms import SampleTerms
from stories.training_story import settings_with

pytestmark = pytest.mark.torch

LABELS = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=8).filter(any)


def part(*tokens: int, weights: tuple[float, ...] | None = None) -> EpisodePart:
    return EpisodePart(EpisodeTokens("g", tokens), succeeded=True, step_weights=weights)


def shares(*parts: EpisodePart, **learner: object) -> list[float]:
    found, beside = loss_for(settings_with(algorithm="hsl", **learner).learner).shares(parts)
    assert set(beside) == {0.0}
    return found


def of_share(share: float) -> SampleTerms:
    return terms(advantage=0.0, behaviour=[0.5], proximal=[0.5], share=share)


def test_the_loss_by_hand() -> None:
    # one relabelled demonstration of T = 3 actions (4, 2 and 5 tokens), the second irrelevant; one given of T = 1
    found = shares(part(4, 2, 5, weights=(1.0, 0.0, 1.0)), part(2), hsl_mixture=0.3)
    assert found == pytest.approx([0.3 / 3 / 4, 0.0, 0.3 / 3 / 5, 0.7 / 1 / 2])
    probabilities = [[0.5] * 4, [0.9] * 2, [0.8] * 5, [0.25, 0.5]]
    total = 0.0
    for share, own in zip(found, probabilities, strict=True):
        loss, gradient = loss_of(
            own, terms(advantage=0.0, behaviour=own, proximal=own, share=share), algorithm="hsl"
        )
        assert gradient == pytest.approx([-share] * len(own))
        total += float(loss.loss)
    relabelled = (log(2) + 0 + log(1.25)) / 3
    assert total == pytest.approx(0.3 * relabelled + 0.7 * (log(4) + log(2)) / 2, rel=1e-5)


def test_with_the_sum_over_tokens_a_long_action_counts_more() -> None:
    found = shares(part(4, 2, weights=(1.0, 1.0)), hsl_mixture=1.0, hsl_tokens="sum")
    assert found == pytest.approx([1 / 2, 1 / 2])


@given(LABELS, st.integers(1, 5))
def test_an_irrelevant_action_gets_no_gradient_and_lifts_no_other_ones(
    labels: list[float], tokens: int
) -> None:
    masked = shares(part(*[tokens] * len(labels), weights=tuple(labels)), hsl_mixture=1.0)
    whole = shares(part(*[tokens] * len(labels), weights=(1.0,) * len(labels)), hsl_mixture=1.0)
    for label, share, unmasked in zip(labels, masked, whole, strict=True):
        assert share == label * unmasked
    assert [of_share(share).counts for share in masked] == [label > 0 for label in labels]


def test_one_demonstrations_length_moves_no_other_ones_share() -> None:
    short = shares(part(3, weights=(1.0,)), part(2, weights=(1.0,)))
    long = shares(part(3, weights=(1.0,)), part(2, 2, 2, weights=(1.0, 1.0, 1.0)))
    assert short[0] == long[0]


@pytest.mark.parametrize(
    ("labels", "weight"),
    [((1.0,), 1.0), ((1.0, 0.0), 0.5**0.8), ((1.0, 1.0, 0.0, 0.0), 2 * 0.5**0.8), ((0.0, 0.0), 0.0)],
)
def test_the_weight_is_the_papers(labels: tuple[float, ...], weight: float) -> None:
    assert demonstration_weight(labels, alpha=0.8) == pytest.approx(weight)


def test_draws_follow_the_weights_and_nothing_is_drawn_twice() -> None:
    first = Counter(drawn([3.0, 1.0], 1, Random(seed))[0] for seed in range(4000))
    assert first[0] / 4000 == pytest.approx(0.75, abs=0.03)
    assert sorted(drawn([1.0, 2.0, 3.0], 9, Random(1))) == [0, 1, 2]


def buffer(settings: Settings, *labels: tuple[float, ...], outcomes: str = "failure") -> BufferState:
    """A buffer with a relabelled demonstration for each tuple of labels, and one episode collected."""
    state = BufferState(settings=settings, resolved=settings.model_dump(mode="json"))
    state.started = cast("RunStarted", _Started(settings.run.seed))
    for index, relevance in enumerate(labels):
        name = f"ep_{index}"
        one = episode(name, steps=len(relevance), outcome=outcomes)
        state.hindsight.append(RelabelledDemonstration(one, relabel=0, relevance=relevance))
    due = episode("ep_due", steps=0, outcome="failure")
    due.collected = 7
    state.episodes[due.id] = due
    return state


class _Started:
    """What a plan needs to know of the run's beginning."""

    def __init__(self, seed: int) -> None:
        self.run_seed = seed


def episode(name: str, *, steps: int, outcome: str) -> Episode:
    made = Episode(
        id=name, origin="online", family="store/buy", task="t", group=name, member=0, attempt=0, requested=1
    )
    made.ended, made.outcome = True, outcome  # type: ignore[assignment]
    made.samples = [
        Sample(
            position=100 + index,
            digest=bytes(8),
            episode=name,
            prompt_ids=bytes(8),
            action_ids=bytes(8),
            logprobs=bytes(8),
            versions=bytes(8),
            temperature=1.0,
        )
        for index in range(steps)
    ]
    return made


def planned(state: BufferState) -> BatchPlanned:
    found = plan(state, state.settings)
    assert found is not None
    return found


def hsl(**learner: object) -> Settings:
    return settings_with(algorithm="hsl", hsl_episodes=1, **learner)


HEAVY, LIGHT = (1.0,) * 8, (1.0,) + (0.0,) * 7


def drawn_heavy(weighting: str) -> float:
    """How often the heavier of two demonstrations is drawn, of one draw each from 200 batches."""
    state = buffer(hsl(hsl_weighting=weighting, hsl_batch=1), HEAVY, LIGHT)
    count = 0
    for state.batches in range(200):
        count += planned(state).episodes[0].episode == "ep_0"
    return count / 200


def test_the_weight_counts_when_drawing_or_as_a_factor_and_never_both() -> None:
    assert drawn_heavy("sampling") > 0.9
    assert 0.35 < drawn_heavy("factor") < 0.65
    assert 0.35 < drawn_heavy("uniform") < 0.65
    for weighting in ("sampling", "uniform"):
        state = buffer(hsl(hsl_weighting=weighting, hsl_batch=2), HEAVY, LIGHT)
        assert {one.episode: one.step_weights for one in planned(state).episodes} == {
            "ep_0": HEAVY,
            "ep_1": LIGHT,
        }
    state = buffer(hsl(hsl_weighting="factor", hsl_batch=2), HEAVY, LIGHT)
    heavy, light = 8.0, (1 / 8) ** 0.8
    found = {one.episode: one.step_weights for one in planned(state).episodes}
    assert found["ep_0"] == pytest.approx([2 * heavy / (heavy + light)] * 8, abs=1e-6)
    assert found["ep_1"] == pytest.approx([2 * light / (heavy + light)] + [0.0] * 7, abs=1e-6)


def test_without_the_mask_every_action_counts() -> None:
    state = buffer(hsl(hsl_mask=False), LIGHT)
    assert planned(state).episodes[0].step_weights == (1.0,) * 8


def test_of_failures_only_what_did_as_it_was_asked_is_left_out() -> None:
    state = buffer(hsl(hsl_failures_only=True), HEAVY, outcomes="success")
    assert plan(state, state.settings) is None
    (given_up,) = sweep_of(state)
    assert given_up == ("unachieved", ("ep_due",))
    assert planned(buffer(hsl(hsl_failures_only=True), HEAVY)).episodes[0].episode == "ep_0"


def test_where_given_ones_have_no_part_of_the_loss_no_batch_is_made_of_them_alone() -> None:
    for mixture in (1.0, 0.3):
        state = buffer(hsl(hsl_mixture=mixture))
        shown = episode("ep_shown", steps=2, outcome="success")
        shown.origin = "demonstration"
        state.episodes[shown.id] = shown
        if mixture < 1:
            assert [one.episode for one in planned(state).episodes] == ["ep_shown"]
        else:
            assert plan(state, state.settings) is None
            assert ("unachieved", ("ep_due",)) in sweep_of(state)


def sweep_of(state: BufferState) -> list[tuple[str, tuple[str, ...]]]:
    state.groups = dict.fromkeys(("ep_due",))  # type: ignore[misc]
    return [(one.reason, one.episodes) for one in sweep(state, state.settings)]


@given(st.integers(1, 12), st.integers(1, 30))
def test_only_the_latest_are_drawn_from_and_the_oldest_are_let_go_of_once_a_batch_is_planned(
    memory: int, told: int
) -> None:
    state = buffer(hsl(hsl_memory=memory, hsl_batch=50), *[HEAVY] * told)
    fact = planned(state)
    latest = [f"ep_{index}" for index in range(max(0, told - memory), told)]
    assert sorted(one.episode for one in fact.episodes) == sorted(latest)
    assert len(state.hindsight) == told, "nothing leaves before the plan stands in the log"
    assert fact.consumed == ("ep_due",)
    policy_planner("hsl").use_up(state, fact)
    assert [one.episode.id for one in state.hindsight] == latest
