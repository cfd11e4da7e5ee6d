"""Tasks of MiniWoB++: a family and a seed; the page gives the instruction and, at the end, the reward.

A success is a raw reward above 0, as in BrowserGym. The raw reward has no time penalty. Some pages give part of it for a
part of the task. That counts as success in BrowserGym too, and the reward shows how much.
"""

from hindcast.actors.environments.base import TaskSource, decided, undecided
from hindcast.actors.environments.miniwob.families import FAMILIES, USUAL, why_not
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError


class MiniwobTasks(TaskSource):
    """The `TaskSource` of MiniWoB++; needs no browser."""

    name = "miniwob"

    def families(self) -> tuple[str, ...]:
        """Family names in the order of the table."""
        return tuple(FAMILIES)

    def usual(self) -> tuple[str, ...]:
        """Families that the base policy was trained on."""
        return USUAL

    def task(self, family: str, seed: int) -> Task:
        """The task of a family and seed. Raises SettingsError for an unknown family, with the reason."""
        if family not in FAMILIES:
            raise SettingsError(why_not(family))
        return Task(
            environment="miniwob",
            family=family,
            seed=seed,
            instruction="",
            goal={},
            max_steps=FAMILIES[family].max_steps,
        )


def evaluate(task: Task, evidence: Evidence) -> Judgment:
    """Judge by the page's own reward. Undecided only when the evidence holds none."""
    raw = evidence.probes.get("raw_reward")
    if not isinstance(raw, int | float):
        return undecided(f"{task.family}: the evidence holds no raw reward")
    if not evidence.probes.get("done"):
        return Judgment(
            outcome="failure", reward=0.0, reason=f"{task.family}: the page was not brought to an end"
        )
    reason = evidence.probes.get("reason")
    verdict_text = f"{task.family}: the page's raw reward is {raw:g}" + (f" ({reason})" if reason else "")
    if raw > 0:
        return Judgment(outcome="success", reward=min(1.0, float(raw)), reason=verdict_text)
    return decided(False, verdict_text)
