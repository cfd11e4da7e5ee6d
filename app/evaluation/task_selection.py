"""Selects tasks that a policy can learn from: those that it solves at least once in N attempts (ARPO, arXiv 2505.16282).

A task without any success has no group with different outcomes and no success to replay. The kept tasks are split by the
run's seed into
tasks to train on (in-domain) and tasks held out (out-of-domain); each part is a settings file that names its tasks.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from hindcast.app.evaluation.evaluation import FamilyResult, OutcomeTally, plan_attempts, play
from hindcast.core.domain.task import Task
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.schema import Settings
from hindcast.core.text.toml import as_toml


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """Results of the attempts at one task."""

    task: str
    """The task as `curriculum.tasks` names it."""
    successes: int
    attempts: int
    """Attempts with a verdict."""
    kept: bool
    held_out: bool


class TaskSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Results of every task, and the success rates of both parts with 95 % Wilson intervals."""

    tasks: tuple[TaskResult, ...]
    in_domain: FamilyResult
    out_of_domain: FamilyResult
    lost: int
    """Attempts without a verdict."""

    def names(self, *, held_out: bool) -> list[str]:
        """The tasks of one part."""
        return [one.task for one in self.tasks if one.kept and one.held_out == held_out]


async def select_tasks(
    tasks: Sequence[Task],
    *,
    attempts: int,
    held_out: float,
    folder: Path,
    settings: Settings,
    said: Callable[[int, int], None],
) -> TaskSelection:
    """Attempt every task at the training temperature. `held_out`: share of kept tasks that is set apart."""
    requests = plan_attempts(
        tasks,
        attempts=attempts,
        temperature=settings.actors.temperature,
        lease_s=settings.episode_lease_s,
    )
    tally = await play(requests, folder=folder, weights=None, settings=settings, said=said)
    tally.require_verdicts(f"{len(tasks)} tasks")
    return divide(tasks, tally, held_out=held_out, run_seed=settings.run.seed)


def divide(tasks: Sequence[Task], tally: OutcomeTally, *, held_out: float, run_seed: int) -> TaskSelection:
    """Keep the tasks solved at least once, and set a seeded share of them apart."""
    kept = [task for task in tasks if any(tally.by_task.get(task.id, ()))]
    drawn = sorted(kept, key=lambda task: derive_seed(run_seed, "held out", task.id))
    apart = {task.id for task in drawn[: round(held_out * len(kept))]}
    names = {task.id for task in kept}
    return TaskSelection(
        tasks=tuple(
            TaskResult(
                task=task.name,
                successes=sum(tally.by_task.get(task.id, ())),
                attempts=len(tally.by_task.get(task.id, ())),
                kept=task.id in names,
                held_out=task.id in apart,
            )
            for task in tasks
        ),
        in_domain=tally.count(task for task in kept if task.id not in apart),
        out_of_domain=tally.count(task for task in kept if task.id in apart),
        lost=tally.lost,
    )


def settings_file(names: Sequence[str], *, recipe: str) -> str:
    """A settings file that names these tasks, for a run or for `hindcast eval --tasks`."""
    listed = "".join(f"    {as_toml(name)},\n" for name in names)
    return f"recipe = {as_toml(recipe)}\n\n[curriculum]\ntasks = [\n{listed}]\n"


def held_out_file(path: Path) -> Path:
    """Path of the held-out tasks of a selection: `tasks.toml` -> `tasks.held_out.toml`."""
    return path.with_suffix(f".held_out{path.suffix}")
