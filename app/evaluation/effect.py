"""What leaving data out does: two policies play the same held-out tasks, and are compared task by task."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import aclosing

import msgspec

from hindcast.app.evaluation.evaluation import OutcomeTally, plan_requests, play
from hindcast.app.runs.runs import RunHandle
from hindcast.app.system.sites import task_sources
from hindcast.core.errors import SettingsError
from hindcast.core.models.folders import policy_folder
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.rl.statistics import paired_difference
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import EpisodeRequested, WeightsPublished
from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.events.log.reader import read


class FamilyEffect(msgspec.Struct, frozen=True, kw_only=True):
    """Two policies' success on the same tasks; rates and their difference, paired by task, with its 95 % interval."""

    parent: float
    derived: float
    difference: float
    low: float
    high: float
    tasks: int
    """Tasks that both were judged on."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Effect of what a derived run leaves out."""

    judge: str
    temperature: float
    whole: FamilyEffect
    by_family: dict[str, FamilyEffect]


async def families_played(run: RunHandle) -> list[str]:
    """Families of the tasks that a run's policy played, as `environment/family`, sorted."""
    found: set[str] = set()
    async with run.connect_log() as log, aclosing(read(log, after=0, strict=False)) as recordeds:
        async for recorded in recordeds:
            fact = recorded.fact
            if isinstance(fact, EpisodeRequested) and fact.origin == ONLINE:
                found.add(f"{fact.task.environment}/{fact.task.family}")
    return sorted(found)


def held_out(settings: Settings, families: Sequence[str], *, episodes: int) -> list[EpisodeRequested]:
    """Held-out tasks of families in turn, at the temperature of training."""
    sources = task_sources(settings)
    by_environment: dict[str, list[str]] = defaultdict(list)
    for family in families:
        environment, _, name = family.partition("/")
        by_environment[environment].append(name)
    planned: list[EpisodeRequested] = []
    for environment, names in by_environment.items():
        if environment not in sources:
            raise SettingsError(
                f"the families of {environment} cannot be played here: {environment} is not configured"
            )
        planned += plan_requests(
            sources[environment],
            episodes=-(-episodes * len(names) // len(families)),
            families=names,
            temperature=settings.actors.temperature,
            lease_s=settings.episode_lease_s,
        )
    return planned


async def play_latest(
    run: RunHandle,
    requests: Sequence[EpisodeRequested],
    settings: Settings,
    *,
    said: Callable[[int, int], None] = lambda _done, _successes: None,
) -> OutcomeTally:
    """Play tasks with a run's latest policy, under `settings`."""
    latest: WeightsPublished | None = None
    async with run.connect_log() as log, aclosing(read(log, after=0, strict=False)) as recordeds:
        async for recorded in recordeds:
            fact = recorded.fact
            if isinstance(fact, WeightsPublished) and fact.model == POLICY:
                latest = fact
    if latest is None:
        raise SettingsError(f"run {run.name} has published no policy. Run: hindcast policy list {run.name}")
    folder = policy_folder(run.settings.policy.base)
    return await play(
        requests, folder=folder, weights=run.blobs.path(latest.weights), settings=settings, said=said
    )


def effect_of(
    requests: Sequence[EpisodeRequested], parent: OutcomeTally, derived: OutcomeTally, settings: Settings
) -> Effect:
    """Compare what two policies did at the same tasks.

    Raises:
        NothingPlayed: one of them got no verdict.
    """
    parent.require_verdicts("the parent's policy on held-out tasks")
    derived.require_verdicts("the derived policy on held-out tasks")
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for task in {request.task.id: request.task for request in requests}.values():
        then, now = parent.by_task.get(task.id), derived.by_task.get(task.id)
        if then and now:
            pairs[f"{task.environment}/{task.family}"].append((sum(now) / len(now), sum(then) / len(then)))
    return Effect(
        judge=settings.judge.judges[0],
        temperature=settings.actors.temperature,
        whole=_compared([pair for one in pairs.values() for pair in one]),
        by_family={family: _compared(one) for family, one in sorted(pairs.items())},
    )


def _compared(pairs: Sequence[tuple[float, float]]) -> FamilyEffect:
    apart, count = paired_difference(pairs), max(1, len(pairs))
    return FamilyEffect(
        parent=sum(then for _, then in pairs) / count,
        derived=sum(now for now, _ in pairs) / count,
        difference=apart.rate,
        low=apart.low,
        high=apart.high,
        tasks=len(pairs),
    )
