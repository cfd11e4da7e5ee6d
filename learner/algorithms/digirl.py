"""DigiRL (arXiv 2406.11896): REINFORCE with two filters, whose advantages are 1 and 0; cloning of the steps that pass both."""

from collections.abc import Sequence

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits
from hindcast.core.rl.values import progress_weights, surprising
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.learner.algorithms.reinforce import Reinforce
from hindcast.learner.planners.phases import PhasePlanner, check_phases, episodes_per_batch


class DigiRl(Reinforce):
    """The loss of DigiRL."""

    def step_advantages(
        self, planned: Sequence[PlannedEpisode], values: Sequence[Sequence[float]]
    ) -> list[list[float]]:
        """See `Valuing`: 1 for the steps that made progress, in the top share of the batch's episodes by what they brought
        beyond the value of their first state; else 0.
        """
        settings = self._settings
        gains = {one.episode: one.reward - own[0] for one, own in zip(planned, values, strict=True)}
        chosen = dict(zip(gains, surprising(list(gains.values()), share=settings.episode_share), strict=True))
        return [
            progress_weights(own, one.reward, discount=settings.discount)
            if chosen[one.episode]
            else [0.0] * len(own)
            for one, own in zip(planned, values, strict=True)
        ]


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(learns_in_phases=True),
    episodes_per_batch=episodes_per_batch,
    planner=PhasePlanner,
    loss=DigiRl,
    check=check_phases,
)
