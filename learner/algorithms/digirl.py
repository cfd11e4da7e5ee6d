"""DigiRL (arXiv 2406.11896): REINFORCE with two filters, whose advantages are 1 and 0; cloning of the steps that pass both."""

from collections.abc import Sequence

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_as
from hindcast.core.rl.algorithm_options import PhaseOptions, Share
from hindcast.core.rl.values import progress_weights, surprising
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.learner.algorithms.reinforce import Reinforce
from hindcast.learner.planners.phases import CHANGEABLE, PhasePlanner, check_phases, episodes_per_batch


class DigiRlOptions(PhaseOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of DigiRL."""

    episode_share: Share = 0.1
    """Share of a batch's episodes that are kept: those with the highest return minus value of the first state."""


class DigiRl(Reinforce):
    """The loss of DigiRL."""

    def step_advantages(
        self, planned: Sequence[PlannedEpisode], values: Sequence[Sequence[float]]
    ) -> list[list[float]]:
        """See `Valuing`: 1 for the steps that made progress, in the top share of the batch's episodes by what they brought
        beyond the value of their first state; else 0.
        """
        options = options_as(self._settings, DigiRlOptions)
        gains = {
            episode.episode: episode.reward - step_values[0]
            for episode, step_values in zip(planned, values, strict=True)
        }
        is_selected = dict(
            zip(gains, surprising(list(gains.values()), share=options.episode_share), strict=True)
        )
        return [
            progress_weights(step_values, episode.reward, discount=options.discount)
            if is_selected[episode.episode]
            else [0.0] * len(step_values)
            for episode, step_values in zip(planned, values, strict=True)
        ]


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(learns_in_phases=True),
    episodes_per_batch=episodes_per_batch,
    planner=PhasePlanner,
    loss=DigiRl,
    options=DigiRlOptions,
    changeable=CHANGEABLE | {"episode_share"},
    check=check_phases,
)
