"""Tasks varied from failed ones (WebRL, arXiv 2411.02337, section 2.2), as pure functions of the curriculum's state.

Candidate k of a phase follows from the run's seed, the phase, k, the failed tasks of the phase before and the tasks
proposed so far. A curriculum that dies in between proposes the same ones again, and none twice. It proposes at once as
many as are still to be admitted, so that the last candidate does not depend on interruptions.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from random import Random
from typing import NamedTuple

from hindcast.actors.curriculum.phases import goal_digest, wording
from hindcast.actors.curriculum.pool import family_of
from hindcast.actors.curriculum.state import CurriculumState
from hindcast.actors.environments.base import GoalSpace
from hindcast.core.domain.task import Task
from hindcast.core.seeds import derive_seed
from hindcast.core.settings.endpoint import ENDPOINT
from hindcast.core.settings.schema import EvolutionSettings
from hindcast.events.catalogue import TaskAdmitted, TaskChecked, TaskProposed, TaskRejected

EMBEDDED = "embedded/1"
CANDIDATES_PER_TASK = 4
"""Most candidates per wanted task: a critic may find everything too hard."""
CHUNK = 16
"""Candidates proposed, or decided on, at a time."""
DRAWS = 32
"""Draws for one candidate until it is new."""
TOO_HARD, TOO_EASY, UNREACHABLE, UNCHECKED = "too hard", "too easy", "unreachable", "unchecked"
"""Reasons of `task.rejected`; the last two are followed by a detail."""


def candidate_count(state: CurriculumState, settings: EvolutionSettings) -> int:
    """How many candidates to propose now; 0 while proposed ones are undecided."""
    phases = state.phases
    if not settings.generator or not state.phase or undecided(state):
        return 0
    missing_tasks = settings.tasks_per_phase - sum(
        phases.phase_of.get(name) == state.phase for name in phases.candidates
    )
    candidates_left = CANDIDATES_PER_TASK * settings.tasks_per_phase - len(phases.candidates)
    return max(0, min(missing_tasks, candidates_left, CHUNK))


def undecided(state: CurriculumState) -> list[Task]:
    """Candidates of the phase that are neither admitted nor rejected, in their order, at most `CHUNK`."""
    phases = state.phases
    waiting = (
        name for name in phases.candidates if name not in state.admitted and name not in state.rejected
    )
    return [phases.generated[name] for name, _ in zip(waiting, range(CHUNK), strict=False)]


class VariationBasis(NamedTuple):
    """What candidates follow from, copied from the changing state."""

    phase: int
    first: int
    """Number of the next candidate."""
    failed: tuple[Task, ...]
    """Failed tasks of the phase before."""
    proposed_digests: frozenset[str]
    """Wordings and meanings of all tasks ever proposed."""


def basis_of(state: CurriculumState, *, families: Collection[str]) -> VariationBasis:
    """The basis of candidates now. `families`: those that the settings name; failures of others are not varied."""
    phases = state.phases
    failed = tuple(task for task in phases.seeds if family_of(task) in families)
    return VariationBasis(state.phase or 0, len(phases.candidates), failed, frozenset(phases.asked))


def embedded_candidates(
    basis: VariationBasis,
    *,
    count: int,
    spaces: Mapping[str, GoalSpace],
    families: Mapping[str, Collection[str]],
    run_seed: int,
) -> list[TaskProposed]:
    """The next `count` candidates that vary a failed goal; fewer where no new one can be found.

    `spaces` and `families` (those of the run) by environment.
    """
    phase = basis.phase
    seeds = [task for task in basis.failed if task.environment in spaces]
    seeds.sort(key=lambda task: derive_seed(run_seed, "evolution", phase, task.id))
    known_digests = set(basis.proposed_digests)
    candidates: list[TaskProposed] = []
    for number in range(basis.first, basis.first + count):
        proposed = _candidate(
            number, seeds, known_digests, phase, spaces=spaces, families=families, run_seed=run_seed
        )
        if proposed is None:
            break
        known_digests |= {wording(proposed.task), goal_digest(proposed.task)}
        candidates.append(proposed)
    return candidates


def _candidate(
    number: int,
    seeds: Sequence[Task],
    known_digests: Set[str],
    phase: int,
    *,
    spaces: Mapping[str, GoalSpace],
    families: Mapping[str, Collection[str]],
    run_seed: int,
) -> TaskProposed | None:
    for draw in range(DRAWS if seeds else 0):
        parent = seeds[(number + draw) % len(seeds)]
        random = Random(derive_seed(run_seed, "evolution", phase, number, draw))
        variant = spaces[parent.environment].vary(
            parent, families=families[parent.environment], random=random
        )
        if variant is not None and known_digests.isdisjoint(
            (wording(variant.task), goal_digest(variant.task))
        ):
            return TaskProposed(
                task=variant.task,
                source="generated",
                parents=(parent.id,),
                phase=phase,
                generator=EMBEDDED,
                change=variant.change,
            )
    return None


def outside(value: float | None, settings: EvolutionSettings) -> str:
    """Why a value is outside the window; empty where it is inside, or where there is none."""
    if value is None or settings.value_low <= value <= settings.value_high:
        return ""
    return TOO_EASY if value > settings.value_high else TOO_HARD


def verdict_on(
    task: Task,
    *,
    value: float | None,
    checked: TaskChecked | None,
    phase: int,
    settings: EvolutionSettings,
    spaces: Mapping[str, GoalSpace],
) -> TaskAdmitted | TaskRejected:
    """Decide on a candidate: first by the critic's value, where there is one, then by feasibility.

    `checked`: a model's answer about feasibility, where one is to be asked.
    """
    reason = outside(value, settings) or _infeasible(task, checked, settings, spaces)
    if reason:
        return TaskRejected(task_id=task.id, reason=reason, value=value)
    return TaskAdmitted(task_id=task.id, phase=phase, value=value)


def _infeasible(
    task: Task,
    checked: TaskChecked | None,
    settings: EvolutionSettings,
    spaces: Mapping[str, GoalSpace],
) -> str:
    """Why a candidate cannot be done; empty where it can, or where feasibility is not checked."""
    if settings.feasibility == ENDPOINT:
        if checked is None or checked.feasible is None:
            return f"{UNCHECKED}: {checked.reason if checked else 'nobody was asked'}"
        return "" if checked.feasible else f"{UNREACHABLE}: {checked.reason}"
    if settings.feasibility == "none":
        return ""
    space = spaces.get(task.environment)
    reason = f"{task.environment} cannot say whether" if space is None else space.why_unreachable(task)
    return f"{UNREACHABLE}: {reason}" if reason else ""
