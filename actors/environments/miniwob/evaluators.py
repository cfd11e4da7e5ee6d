"""The verdict on a MiniWoB++ episode, from its evidence alone: success is a raw reward above 0, as in BrowserGym.

The raw reward has no time penalty. Some pages give part of it for a part of the task. That counts as success in
BrowserGym too, and the reward shows how much.
"""

from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task


def evaluate(task: Task, evidence: Evidence) -> Judgment:
    """Judge by the page's own reward. Undecided only when the evidence holds none."""
    raw = evidence.probes.get("raw_reward")
    if not isinstance(raw, int | float):
        return Judgment(
            outcome="undecided", reward=0.0, reason=f"{task.family}: the evidence holds no raw reward"
        )
    if not evidence.probes.get("done"):
        return Judgment(
            outcome="failure", reward=0.0, reason=f"{task.family}: the page was not brought to an end"
        )
    reason = evidence.probes.get("reason")
    words = f"{task.family}: the page's raw reward is {raw:g}" + (f" ({reason})" if reason else "")
    if raw > 0:
        return Judgment(outcome="success", reward=min(1.0, float(raw)), reason=words)
    return Judgment(outcome="failure", reward=0.0, reason=words)
