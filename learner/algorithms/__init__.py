"""One file per training algorithm, and the table by which settings name them."""

from core.settings.schema import LearnerSettings
from learner.algorithms.awr import Awr
from learner.algorithms.base import Algorithm, MakeAlgorithm
from learner.algorithms.cloning import Cloning
from learner.algorithms.dpo import Dpo
from learner.algorithms.grpo import Grpo
from learner.algorithms.hsl import Hsl
from learner.algorithms.reinforce import Reinforce
from learner.algorithms.self_imitation import SelfImitation
from learner.algorithms.webrl import WebRl

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
