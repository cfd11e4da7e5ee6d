"""One file per training algorithm, and the table by which settings name them."""

from hindcast.core.settings.schema import LearnerSettings
from hindcast.learner.algorithms.awr import Awr
from hindcast.learner.algorithms.base import Algorithm, MakeAlgorithm
from hindcast.learner.algorithms.cloning import Cloning
from hindcast.learner.algorithms.dpo import Dpo
from hindcast.learner.algorithms.grpo import Grpo
from hindcast.learner.algorithms.hsl import Hsl
from hindcast.learner.algorithms.reinforce import Reinforce
from hindcast.learner.algorithms.self_imitation import SelfImitation
from hindcast.learner.algorithms.webrl import WebRl

ALGORITHMS: dict[str, MakeAlgorithm] = {
    "grpo": Grpo,
    "cloning": Cloning,
    "sft": Cloning,
    "webrl": WebRl,
    "reinforce": Reinforce,
    "digirl": Reinforce,
    "awr": Awr,
    "filtered_bc": Cloning,
    "self_imitation": SelfImitation,
    "dpo": Dpo,
    "hsl": Hsl,
}


def algorithm_for(settings: LearnerSettings, name: str | None = None) -> Algorithm:
    """The loss of a batch's algorithm; None: of the one that `learner.algorithm` names."""
    return ALGORITHMS[name or settings.algorithm](settings)


__all__ = ["ALGORITHMS", "Algorithm", "algorithm_for"]
