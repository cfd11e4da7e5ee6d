"""What a plan may name: the episodes in the buffer, by model, and their steps by position."""

from collections.abc import Mapping, Sequence

from hindcast.core.rl.combined_state import ORM, RELABELER
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.learner.buffer.records import Episode, Sample
from hindcast.learner.buffer.state import BufferState


class Plannable:
    """Finds the episodes that a plan names."""

    def __init__(self, state: BufferState, model: str, planned: Sequence[PlannedEpisode]) -> None:
        """`planned`: the plan's episodes, whose model is `model`."""
        self._known = _known_to(state, model)
        self._steps = {
            sample.position: sample
            for episode in planned
            if episode.relabel is None and episode.episode in self._known
            for sample in self._known[episode.episode].samples
        }
        self._relabelled = {
            (demonstration.episode.id, demonstration.relabel): demonstration
            for demonstration in state.hindsight
        }

    def find(self, planned: PlannedEpisode) -> tuple[Episode | None, Mapping[int, Sample]]:
        """A planned episode, and steps by position, among them all of its own. None: the buffer does not have it."""
        if planned.relabel is None:
            return self._known.get(planned.episode), self._steps
        demonstration = self._relabelled.get((planned.episode, planned.relabel))
        if demonstration is None:
            return None, {}
        return demonstration.episode, {sample.position: sample for sample in demonstration.with_stop}


def _known_to(state: BufferState, model: str) -> dict[str, Episode]:
    """Episodes that a plan for a model may name."""
    if model == ORM:
        return state.outcomes.known()
    if model == RELABELER:
        return {episode.id: episode for episode in state.lessons.known}
    return _plannable(state)


def _plannable(state: BufferState) -> dict[str, Episode]:
    """Episodes that a plan for the policy may name: those not used up, and those remembered or stored.

    An episode swept from a group that is not used up is in both; only the remembered copy still has its steps.
    """
    remembered = (*state.successes.values(), *state.stored.values(), state.earlier.values())
    return state.episodes | {episode.id: episode for latest in remembered for episode in latest}
