"""From a critic's values to the advantages of a batch's steps. Pure."""

from collections.abc import Sequence

from hindcast.core.rl.values import blended_advantages, progress_weights, released_advantages, surprising
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue.training import PlannedEpisode

Values = Sequence[float]


def step_advantages(
    planned: Sequence[PlannedEpisode],
    values: Sequence[Values],
    *,
    algorithm: str,
    settings: LearnerSettings,
) -> list[list[float]]:
    """One list per planned episode, one advantage per step. `values`: of the states, in the same order.

    `digirl` keeps the top share of the batch's episodes by what they brought beyond the value of their first state, and of
    those the steps that made progress: 1, else 0. The others take `learner.advantage`.
    """
    if algorithm == "digirl":
        gains = {one.episode: one.reward - own[0] for one, own in zip(planned, values, strict=True)}
        chosen = dict(zip(gains, surprising(list(gains.values()), share=settings.episode_share), strict=True))
        return [
            progress_weights(own, one.reward, discount=settings.discount)
            if chosen[one.episode]
            else [0.0] * len(own)
            for one, own in zip(planned, values, strict=True)
        ]
    return [
        released_advantages(own, one.reward, discount=settings.discount)
        if settings.advantage == "released"
        else blended_advantages(own, one.reward, blend=settings.advantage_blend, discount=settings.discount)
        for one, own in zip(planned, values, strict=True)
    ]
