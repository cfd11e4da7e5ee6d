"""A state that was kept and read back goes on as one that was folded from the beginning: any log, any cut.

The logs are those that simulated runs left, faults included, and stories of the curriculum.
"""

from collections.abc import Iterator, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hindcast.actors.curriculum.projection import CurriculumProjection
from hindcast.actors.curriculum.snapshots import curriculum_kind
from hindcast.core.settings.schema import Settings
from hindcast.events.envelope import Recorded
from hindcast.events.log.hash_chain import ChainChecker
from hindcast.events.log.projection import fold
from hindcast.learner.batch_plan import plan, sweep
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.buffer.snapshots import LEARNER, FoldedLog
from simulation.schedules import REHEARSING, Outcome, play, stage
from stories.curriculum_story import settings_of
from stories.random_curriculum import SHAPES, Chance

pytestmark = pytest.mark.torch

CUTS = 6
"""Per log."""


def check_learner(history: Sequence[Recorded], cut: int, *, chained: bool) -> None:
    chains = ChainChecker()
    for recorded in history[:cut] if chained else ():
        chains.check(recorded)
    kept = LEARNER.encode(FoldedLog(fold(ReplayBuffer(), history[:cut]), chains.links))
    read_back = LEARNER.decode(kept)
    assert LEARNER.encode(read_back) == kept
    again, whole = fold(ReplayBuffer(), history[cut:], read_back.state), fold(ReplayBuffer(), history)
    assert LEARNER.encode(FoldedLog(again, {})) == LEARNER.encode(FoldedLog(whole, {}))
    assert again.settings == whole.settings
    assert plan(again, again.settings) == plan(whole, whole.settings)
    assert sweep(again, again.settings) == sweep(whole, whole.settings)
    going_on = read_back.chains()
    for recorded in history[cut:] if chained else ():
        going_on.check(recorded)


def check_curriculum(history: Sequence[Recorded], cut: int, chosen: Settings) -> None:
    kind, projection = curriculum_kind(chosen), CurriculumProjection.under(chosen)
    read_back = kind.decode(kind.encode(fold(projection, history[:cut])))
    assert read_back == fold(projection, history[:cut])
    assert fold(projection, history[cut:], read_back) == fold(projection, history)


@pytest.fixture(scope="module")
def outcomes() -> Iterator[list[Outcome]]:
    with stage() as folder:
        yield [play(seed, folder) for seed in (*range(12), *range(REHEARSING, REHEARSING + 4))]


def test_kept_states_go_on_as_if_the_whole_log_of_a_simulated_run_had_been_folded(
    outcomes: list[Outcome],
) -> None:
    random = Random(3)
    for outcome in outcomes:
        history = outcome.history
        for cut in (0, len(history), *(random.randrange(len(history)) for _ in range(CUTS))):
            check_learner(history, cut, chained=True)
            check_curriculum(history, cut, outcome.settings)


@settings(max_examples=30, deadline=None)
@given(shape=SHAPES, seed=st.integers(0, 2**32), moves=st.integers(1, 150), cut=st.floats(0, 1))
def test_kept_states_go_on_as_if_the_whole_story_had_been_folded(
    shape: dict[str, object], seed: int, moves: int, cut: float
) -> None:
    chance = Chance(shape, seed)
    for _ in range(moves):
        chance.move()
    history = chance.story.history
    at = round(cut * len(history))
    check_learner(history, at, chained=False)
    check_curriculum(history, at, chance.story.settings)


def test_a_used_up_group_is_remembered_as_long_as_a_request_may_come_for_it_and_no_longer(
    outcomes: list[Outcome],
) -> None:
    forgotten = 0
    for outcome in outcomes:
        projection, state = ReplayBuffer(), ReplayBuffer().initial()
        used_up: dict[str, int] = {}
        most = outcome.settings.curriculum.max_running
        for recorded in outcome.history:
            state = projection.apply(state, recorded)
            used_up |= state.settled_groups
            recent = {group for group, at in used_up.items() if state.requests - at <= most}
            assert recent <= state.settled_groups.keys()
            assert all(state.requests - at <= most + 1 for at in state.settled_groups.values())
        forgotten += len(used_up) - len(state.settled_groups)
    assert forgotten, "no run was long enough for a group to be forgotten"


def test_settings_that_the_curriculum_depends_on_are_part_of_the_schema() -> None:
    usual = curriculum_kind(settings_of()).schema
    assert usual == curriculum_kind(settings_of(log={"linger_ms": 3})).schema
    assert usual != curriculum_kind(settings_of(learner={"max_staleness": 0})).schema
