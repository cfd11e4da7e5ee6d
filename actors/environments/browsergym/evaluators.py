"""The verdict on a BrowserGym episode, from its evidence alone: success is a reward above 0, as in BrowserGym."""

from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task


def evaluate(task: Task, evidence: Evidence) -> Judgment:
    """Judge by the task's own reward. Undecided only when the evidence holds none."""
    reward = evidence.probes.get("reward")
    if not isinstance(reward, int | float):
        return Judgment(
            outcome="undecided", reward=0.0, reason=f"{task.family}: the evidence holds no reward"
        )
    words = f"{task.family}: BrowserGym's reward is {reward:g}"
    if reward > 0:
        return Judgment(outcome="success", reward=min(1.0, float(reward)), reason=words)
    if not evidence.probes.get("ended"):
        words = f"{task.family}: the task was not brought to an end"
    return Judgment(outcome="failure", reward=0.0, reason=words)
