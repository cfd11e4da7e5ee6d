"""Branching: advantages of steps from continuations, in place of a critic (VinePPO, arXiv 2410.01679, section 4).

    A(s_t, a_t) = V(s_{t+1}) - V(s_t)        V(s_t): mean reward of the continuations from step t and of the episode itself

A group is a tree: episodes that begin with the task, and continuations of one of them from some of its steps
(`curriculum.branches`). V at the task's beginning is the mean reward of the former; V after the last step is the reward. Steps
without continuations share V(next valued step) - V(the one before): the advantage of a segment in SPO (arXiv 2505.23564). So
an episode without any has that of its group, and continuations from every step give VinePPO.

Deviations from VinePPO: the continuations are trained on too, from their first own step, with reward - V(s_t); the episode's own
reward counts in V; advantages are divided by the deviation of the group's rewards; the loss is M-GRPO's.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import fsum

from hindcast.core.rl.advantages import group_divisor, is_informative
from hindcast.core.rl.algorithm import Algorithm, AlgorithmTraits, options_as
from hindcast.core.rl.algorithm_options import GroupOptions
from hindcast.core.settings.schema import Settings
from hindcast.learner.algorithms.grpo import CHANGEABLE, Grpo, GrpoOptions
from hindcast.learner.algorithms.grpo import check as check_grpo
from hindcast.learner.buffer.groups import GroupSlot
from hindcast.learner.planners.base import BatchEntry
from hindcast.learner.planners.groups import GroupPlanner, episodes_per_batch


def segment_advantages(values: Mapping[int, float], reward: float, *, steps: Sequence[int]) -> list[float]:
    """Compute the advantage of each of an episode's `steps`, given by their indices  # [steps].

    `values`: V by the index of the step; one is known at or before each of `steps`. Each step has the value at the end of its
    segment, which is the reward for the last segment, minus that at its beginning.
    """
    advantages = []
    for step in steps:
        start = max(boundary for boundary in values if boundary <= step)
        end = min((boundary for boundary in values if boundary > step), default=None)
        advantages.append((reward if end is None else values[end]) - values[start])
    return advantages


class BranchPlanner(GroupPlanner):
    """Plans groups as M-GRPO does, with an advantage for every step."""

    def entries(self, slots: Sequence[GroupSlot], options: GroupOptions) -> list[BatchEntry]:
        """See `GroupPlanner.entries`. `advantage` is reward - V where an episode's own steps begin."""
        rewards = {slot.episode.id: slot.reward for slot in slots}
        first_rewards = [slot.reward for slot in slots if slot.episode.branch is None]
        outcomes: dict[tuple[str, int], list[float]] = defaultdict(list)
        for slot in slots:
            if (branch := slot.episode.branch) is not None:
                outcomes[branch.episode, branch.step].append(slot.reward)
        values: dict[str, dict[int, float]] = defaultdict(dict)
        for (source, step), branch_rewards in outcomes.items():
            samples = [*branch_rewards, rewards[source]] if source in rewards else branch_rewards
            values[source][step] = fsum(samples) / len(samples)
        divisor = 1.0
        if is_informative(list(rewards.values())):
            divisor = group_divisor(
                list(rewards.values()), deviation=options.group_deviation, epsilon=options.group_epsilon
            )
        result = []
        for entry, slot in zip(super().entries(slots, options), slots, strict=True):
            branch = slot.episode.branch
            if branch is None:
                first, own_values = 0, {0: fsum(first_rewards) / len(first_rewards)} | values[slot.episode.id]
            else:
                first, own_values = branch.step, {branch.step: values[branch.episode][branch.step]}
            advantages = segment_advantages(
                own_values, slot.reward, steps=[sample.index for sample in slot.episode.samples]
            )
            result.append(
                entry._replace(
                    advantage=(slot.reward - own_values[first]) / divisor,
                    step_advantages=tuple(advantage / divisor for advantage in advantages),
                )
            )
        return result


def check(settings: Settings) -> list[str]:
    """It needs continuations, and stored successes have none."""
    problems = check_grpo(settings)
    if settings.curriculum.branches == 0:
        problems.append(
            "curriculum.branches = 0 leaves learner.algorithm = 'branching' nothing to value steps by: set it to the number of "
            "continuations from a step, such as 2"
        )
    if options_as(settings.learner, GrpoOptions).success_replay != "off":
        problems.append(
            "learner.algorithm = 'branching' needs learner.options.success_replay = 'off': a stored success is no part of the "
            "tree that it would be put into"
        )
    return problems


ALGORITHM = Algorithm(
    traits=AlgorithmTraits(compares="groups", limits_staleness=True, learns_from_branches=True),
    episodes_per_batch=episodes_per_batch,
    planner=BranchPlanner,
    loss=Grpo,
    options=GrpoOptions,
    changeable=CHANGEABLE,
    check=check,
)
