"""When the learned relabeler's batches are due."""

from hindcast.core.settings.schema import LearnerSettings, Settings
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.auxiliary import RelabelerPlanner


def test_lessons_that_were_counted_and_let_go_of_since_make_no_batch() -> None:
    """As in a fork that trains the model again, of one that did not: the count of new ones is left over."""
    state = BufferState()
    state.lessons.fresh = 5
    settings = Settings(learner=LearnerSettings(relabeler_every=4))
    assert RelabelerPlanner().plan(state, settings) is None
