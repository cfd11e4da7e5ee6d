"""Supervised fine-tuning: behaviour cloning of demonstrations alone. A run with `learner.cloning_updates` begins with it."""

from functools import partial

from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits
from hindcast.events.catalogue.curriculum import DEMONSTRATION
from hindcast.learner.algorithms.base import check_demonstrations, cloning_episodes_per_batch
from hindcast.learner.algorithms.cloning import Cloning
from hindcast.learner.planners.cloning import CloningPlanner

ALGORITHM = Algorithm(
    traits=AlgorithmTraits(
        plays_episodes=False, useless_outcome="failure", reuses_episodes=True, sets_reference=True
    ),
    episodes_per_batch=cloning_episodes_per_batch,
    planner=partial(CloningPlanner, origins=frozenset({DEMONSTRATION})),
    loss=Cloning,
    check=check_demonstrations,
)
