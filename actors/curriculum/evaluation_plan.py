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
    before, every = state.evaluations, settings.evaluation.every
    if before.open is not None or not every or not tasks or state.leases.pauses:
        return None
    if state.draining:
        if not state.ending or state.is_publishing or before.covered >= state.version:
            return None
    elif before.begun and state.version // every <= before.passed // every:
        return None
    temperatures = {"greedy": 0.0, "training": settings.actors.temperature}
    due = range(before.version // every + 1, before.passed // every + 1) if before.begun else ()
    return EvaluationStarted(
        number=before.begun,
        version=state.version,
        tasks=tuple(task.name for task in tasks),
        temperatures=tuple(dict.fromkeys(temperatures[name] for name in settings.evaluation.temperatures)),
        skipped=tuple(number * every for number in due),
    )


def delays_drain(state: CurriculumState, *, settings: Settings, tasks: Sequence[Task]) -> bool:
    """Whether the drain is not to be reported as applied yet, because the newest version is evaluated first."""
    one = state.evaluations.open or start_evaluation(state, settings=settings, tasks=tasks)
    return state.ending and (state.is_publishing or one is not None)


def request_evaluation(
    state: CurriculumState, *, settings: Settings, sources: Mapping[str, TaskSource]
) -> list[EpisodeRequested]:
    """Requests of the open evaluation to append now, in order; empty when nothing may be begun.

    Raises SettingsError where one of its tasks does not exist any more.
    """
    one = state.evaluations.open
    if one is None or (state.draining and not state.ending) or state.leases.pauses:
        return []
    free = max(0, settings.evaluation.max_running - len(one.standing("running")))
    owed = one.standing("owed")[:free]
    return [_request(state, one, place, settings=settings, sources=sources) for place in owed]


def _request(
    state: CurriculumState,
    one: OpenEvaluation,
    place: int,
    *,
    settings: Settings,
    sources: Mapping[str, TaskSource],
) -> EpisodeRequested:
    name, temperature = one.at(place)
    attempt, seed = one.members[place].attempt, settings.run.seed
    group = derive_id("group", seed, EVALUATION, one.number, place)
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
        min_version=one.version,
        lease_s=settings.episode_lease_s,
        request_lease_s=settings.request_lease_s,
    )


def finish_evaluation(
    state: CurriculumState, *, settings: Settings, broken: str = ""
) -> EvaluationFinished | None:
    """The end of the open evaluation, if it is over now. `broken`: why it cannot go on."""
    one = state.evaluations.open
    if one is None:
        return None
    reason = ""
    if one.standing("owed", "running", "ended"):
        reason = broken or _cut_short(state, one, settings)
        if not reason:
            return None
    return EvaluationFinished(
        number=one.number,
        version=one.version,
        version_low=one.version_low,
        version_high=one.version_high,
        results=_results(one),
        seconds=round((one.judged_ns - one.started_ns) / SECOND_NS, 3),
        share=state.evaluations.requested / max(1, state.evaluations.requested_in_all),
        reason=reason,
    )


def _cut_short(state: CurriculumState, one: OpenEvaluation, settings: Settings) -> str:
    """Why an evaluation whose members lack outcomes ends now; empty: it continues."""
    every = settings.evaluation.every
    if not every:
        return "evaluation.every = 0"
    if one.standing("owed", "running") or state.version // every <= one.version // every:
        return ""
    waiting = len(one.standing("ended"))
    return f"{waiting} episodes have no verdict, and policy {state.version} is to be evaluated"


def _results(one: OpenEvaluation) -> tuple[EvaluationResult, ...]:
    """Outcomes by temperature and family."""
    members: dict[tuple[float, str], list[EvaluationMember]] = {}
    for temperature in one.temperatures:
        for name in one.tasks:
            members[temperature, family_of_name(name)] = []
    for place, member in enumerate(one.members):
        name, temperature = one.at(place)
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
        reward=sum((one.reward for one in played if one.standing in ("success", "failure")), 0.0),
    )
