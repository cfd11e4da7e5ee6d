"""What the curriculum decides about evaluations: when one starts, what it requests, when it is finished. Pure functions.

- An evaluation starts with the version that the run begins with, and again when a version that is a multiple of
  `evaluation.every` is published. Versions that become due while one is open are skipped, so evaluations that take long
  never use more than `evaluation.max_running` episodes at a time.
- A drain that asks for it (`EVALUATE`) evaluates the newest version before the run ends; the learner trains no further.
- Episodes of evaluations are no part of admission, staleness, tallies or phases (`state`), and the learner ignores them.

Why an evaluation always finishes: a member broken twice is lost, and one whose verdict never comes is lost once the next
evaluation is due.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from hindcast.actors.curriculum.evaluations import EVALUATION, EvaluationMember, OpenEvaluation
from hindcast.actors.curriculum.pool import family_of_name, named_task
from hindcast.actors.curriculum.state import CurriculumState
from hindcast.actors.environments.base import TaskSource
from hindcast.core.domain.task import Task
from hindcast.core.seeds import derive_id
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import EpisodeRequested, EvaluationFinished, EvaluationStarted
from hindcast.events.catalogue.evaluation import EvaluationResult

SECOND_NS = 1_000_000_000


def start_evaluation(
    state: CurriculumState, *, settings: Settings, tasks: Sequence[Task]
) -> EvaluationStarted | None:
    """The evaluation to start now; None while none is due. `tasks`: the held-out ones."""
    evaluations, every = state.evaluations, settings.evaluation.every
    if evaluations.open is not None or not every or not tasks or state.leases.pauses:
        return None
    if state.draining:
        if not state.ending or state.is_publishing or evaluations.covered >= state.version:
            return None
    elif evaluations.begun and state.version // every <= evaluations.passed // every:
        return None
    temperatures = {"greedy": 0.0, "training": settings.actors.temperature}
    passed_numbers = (
        range(evaluations.version // every + 1, evaluations.passed // every + 1) if evaluations.begun else ()
    )
    return EvaluationStarted(
        number=evaluations.begun,
        version=state.version,
        tasks=tuple(task.name for task in tasks),
        temperatures=tuple(dict.fromkeys(temperatures[name] for name in settings.evaluation.temperatures)),
        skipped=tuple(number * every for number in passed_numbers),
    )


def delays_drain(state: CurriculumState, *, settings: Settings, tasks: Sequence[Task]) -> bool:
    """Whether the drain is not to be reported as applied yet, because the newest version is evaluated first."""
    evaluation = state.evaluations.open or start_evaluation(state, settings=settings, tasks=tasks)
    return state.ending and (state.is_publishing or evaluation is not None)


def request_evaluation(
    state: CurriculumState, *, settings: Settings, sources: Mapping[str, TaskSource]
) -> list[EpisodeRequested]:
    """Requests of the open evaluation to append now, in order; empty when nothing may be begun.

    Raises SettingsError where one of its tasks does not exist any more.
    """
    evaluation = state.evaluations.open
    if evaluation is None or (state.draining and not state.ending) or state.leases.pauses:
        return []
    free = max(0, settings.evaluation.max_running - len(evaluation.standing("running")))
    owed = evaluation.standing("owed")[:free]
    return [_request(state, evaluation, index, settings=settings, sources=sources) for index in owed]


def _request(
    state: CurriculumState,
    evaluation: OpenEvaluation,
    index: int,
    *,
    settings: Settings,
    sources: Mapping[str, TaskSource],
) -> EpisodeRequested:
    name, temperature = evaluation.at(index)
    attempt, seed = evaluation.members[index].attempt, settings.run.seed
    group = derive_id("group", seed, EVALUATION, evaluation.number, index)
    return EpisodeRequested(
        episode=derive_id("ep", seed, group, 0, attempt),
        task=named_task(sources, name),
        group=group,
        member=0,
        group_size=1,
        attempt=attempt,
        origin=EVALUATION,
        temperature=temperature,
        phase=state.phase or 0,
        min_version=evaluation.version,
        lease_s=settings.episode_lease_s,
        request_lease_s=settings.request_lease_s,
    )


def finish_evaluation(
    state: CurriculumState, *, settings: Settings, broken: str = ""
) -> EvaluationFinished | None:
    """The end of the open evaluation, if it is over now. `broken`: why it cannot go on."""
    evaluation = state.evaluations.open
    if evaluation is None:
        return None
    reason = ""
    if evaluation.standing("owed", "running", "ended"):
        reason = broken or _cut_short(state, evaluation, settings)
        if not reason:
            return None
    return EvaluationFinished(
        number=evaluation.number,
        version=evaluation.version,
        version_low=evaluation.version_low,
        version_high=evaluation.version_high,
        results=_results(evaluation),
        seconds=round((evaluation.judged_ns - evaluation.started_ns) / SECOND_NS, 3),
        share=state.evaluations.requested / max(1, state.evaluations.requested_in_all),
        reason=reason,
    )


def _cut_short(state: CurriculumState, evaluation: OpenEvaluation, settings: Settings) -> str:
    """Why an evaluation whose members lack outcomes ends now; empty: it continues."""
    every = settings.evaluation.every
    if not every:
        return "evaluation.every = 0"
    if evaluation.standing("owed", "running") or state.version // every <= evaluation.version // every:
        return ""
    waiting = len(evaluation.standing("ended"))
    return f"{waiting} episodes have no verdict, and policy {state.version} is to be evaluated"


def _results(evaluation: OpenEvaluation) -> tuple[EvaluationResult, ...]:
    """Outcomes by temperature and family."""
    members: dict[tuple[float, str], list[EvaluationMember]] = {}
    for temperature in evaluation.temperatures:
        for name in evaluation.tasks:
            members[temperature, family_of_name(name)] = []
    for index, member in enumerate(evaluation.members):
        name, temperature = evaluation.at(index)
        members[temperature, family_of_name(name)].append(member)
    return tuple(_result(*key, played) for key, played in members.items())


def _result(temperature: float, family: str, played: Sequence[EvaluationMember]) -> EvaluationResult:
    standings = Counter(member.standing for member in played)
    successes, failures = standings["success"], standings["failure"]
    return EvaluationResult(
        temperature=temperature,
        family=family,
        successes=successes,
        failures=failures,
        lost=len(played) - successes - failures,
        reward=sum((episode.reward for episode in played if episode.standing in ("success", "failure")), 0.0),
    )
