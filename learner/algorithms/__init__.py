"""One file per training algorithm: its traits, the planner of its batches, its loss, and what it needs of the settings."""

from hindcast.core.rl.algorithm import find_algorithm
from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.algorithms.base import Loss


def loss_for(settings: LearnerSettings, name: str | None = None) -> Loss:
    """The loss of a batch's algorithm; None: of the one that `learner.algorithm` names."""
    loss = find_algorithm(name or settings.algorithm).loss(settings)
    assert isinstance(loss, Loss)
    return loss


__all__ = ["Loss", "loss_for"]
