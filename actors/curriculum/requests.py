"""What to request next: a deterministic function of the curriculum's state.

1. What open groups are owed (members not requested yet, tries to repeat): a group's room is set aside when it is
   opened, so this needs a free place among the running and nothing else.
2. Demonstrations, until the settings' number of them has been begun.
3. Nothing else as long as the run begins with cloning (`learner.cloning_updates`), or where it does nothing else.
4. A new group, when admission has room for all of its members.

Continuations (`curriculum.branches`) are the last members of a group. They are owed from its opening on, and are due as soon
as its first episode has ended, or is lost for good.

Why this cannot stall, whatever is lost: a member that is lost for good gives its room back, and so does a group that
nobody will train on. Then what takes up room is running, owed (served first), waiting for a judge, or stands in fewer
than a batch of groups worth training on, which leave room for another group: `eta >= 0`.
"""

from collections.abc import Iterator

from hindcast.actors.curriculum.pool import Pool, choose_demonstration, choose_task, drawn_from, is_hasty
from hindcast.actors.curriculum.state import CurriculumState, Group, Member
from hindcast.core.rl.algorithm import find_algorithm, traits_of
from hindcast.core.rl.staleness import capacity, room
from hindcast.core.seeds import derive_id, derive_seed
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import BranchPoint, EpisodeRequested
from hindcast.events.catalogue.curriculum import DEMONSTRATION, ONLINE


def next_requests(
    state: CurriculumState,
    *,
    settings: Settings,
    pool: Pool,
    demonstrable: Pool,
    until_episodes: int | None = None,
) -> list[EpisodeRequested]:
    """Requests to append now, in order; empty when nothing may be begun. `demonstrable`: what can be shown of the pool.

    At most one new group of online episodes: the next follows from the state after this one.
    """
    free = settings.curriculum.max_running - state.running
    if free <= 0 or state.draining or state.leases.pauses:
        return []
    owed = list(_owed(state, settings))
    if owed:
        return owed[:free]
    missing_demonstrations = settings.curriculum.demonstrations - state.opened[DEMONSTRATION]
    if missing_demonstrations > 0:
        return [
            _demonstration(state, settings, demonstrable, offset)
            for offset in range(min(free, missing_demonstrations))
        ]
    if not traits_of(settings.learner.algorithm).plays_episodes:
        return []  # only demonstrations are learned from
    if state.updates < settings.learner.cloning_updates:
        return []  # what is played now would be too old by the time it can be learned from
    if not _group_admitted(state, settings) or reached(state, until_episodes):
        return []
    seed, share = settings.run.seed, settings.curriculum.revisit_share
    task_pool, revisits = drawn_from(state, pool=pool, revisit_share=share, run_seed=seed)
    task = choose_task(state, pool=task_pool, sampling=settings.curriculum.sampling, run_seed=seed)
    group = derive_id("group", seed, ONLINE, state.opened[ONLINE])
    members = [Member() for _ in range(settings.curriculum.members)]
    opened = Group(id=group, task=task, origin=ONLINE, members=members, revisits=revisits)
    return list(_owed_to(state, settings, opened))[:free]


def reached(state: CurriculumState, until_episodes: int | None) -> bool:
    """Whether as many online episodes ended, or are under way, as were asked for."""
    if until_episodes is None:
        return False
    under_way = sum(member.standing in ("running", "owed") for _, member in state.members(ONLINE))
    return state.ended[ONLINE] + under_way >= until_episodes


def finished(state: CurriculumState, until_episodes: int | None) -> bool:
    """Whether as many online episodes ended as were asked for, and none is under way."""
    return (
        until_episodes is not None
        and state.ended[ONLINE] >= until_episodes
        and not state.running + state.owed
    )


def _group_admitted(state: CurriculumState, settings: Settings) -> bool:
    batch = find_algorithm(settings.learner.algorithm).episodes_per_batch(settings)
    admission = {
        "eta": settings.learner.max_staleness,
        "version": state.version,
        "batch": batch,
        "accepted": state.accepted(batch=batch),
        "discarded": state.discarded,
        "running": state.running + state.owed,
    }
    fits = room(**admission) >= settings.curriculum.members
    return fits and capacity(max_running=settings.curriculum.max_running, **admission) > 0


def _owed(state: CurriculumState, settings: Settings) -> Iterator[EpisodeRequested]:
    for group in state.groups.values():
        yield from _owed_to(state, settings, group)


def _owed_to(state: CurriculumState, settings: Settings, group: Group) -> Iterator[EpisodeRequested]:
    """What may be requested for a group now: continuations wait for the end of its first episode."""
    continued = group.members[0].standing not in ("owed", "running")
    for index, member in enumerate(group.members):
        if member.standing == "owed" and (continued or not _continues(index, group, settings)):
            yield _request(state, settings, group, index)


def _continues(member: int, group: Group, settings: Settings) -> bool:
    """Whether a member continues its group's first episode."""
    return (
        group.origin == ONLINE
        and member >= settings.curriculum.group_size
        and settings.curriculum.branches > 0
    )


def _branch_point(group: Group, member: int, settings: Settings) -> BranchPoint | None:
    """Where a member leaves its group's first episode; None: it begins with the task, as it also does for want of a step.

    The steps are drawn from the run's seed among all but the first, whatever the outcome.
    """
    source, seed = group.members[0], settings.run.seed
    episode = source.episode
    if not _continues(member, group, settings) or episode is None:
        return None
    steps = sorted(range(1, source.steps), key=lambda step: derive_seed(seed, "branch", episode, step))
    index = (member - settings.curriculum.group_size) // settings.curriculum.branches
    return (
        BranchPoint(episode=episode, step=steps[index], after=source.requested)
        if index < len(steps)
        else None
    )


def _demonstration(state: CurriculumState, settings: Settings, pool: Pool, offset: int) -> EpisodeRequested:
    number = state.opened[DEMONSTRATION] + offset
    task = choose_demonstration(pool=pool, number=number, run_seed=settings.run.seed)
    name = derive_id("group", settings.run.seed, DEMONSTRATION, number)
    hasty = is_hasty(settings.curriculum, number=number, run_seed=settings.run.seed)
    group = Group(id=name, task=task, origin=DEMONSTRATION, members=[Member()], hasty=hasty)
    return _request(state, settings, group, 0)


def _request(state: CurriculumState, settings: Settings, group: Group, member: int) -> EpisodeRequested:
    """The request for a member's next attempt."""
    attempt = group.members[member].attempt
    return EpisodeRequested(
        episode=derive_id("ep", settings.run.seed, group.id, member, attempt),
        task=group.task,
        group=group.id,
        member=member,
        group_size=len(group.members),
        attempt=attempt,
        origin=group.origin,
        temperature=settings.actors.temperature,
        phase=state.phase or 0,
        revisits=group.revisits,
        hasty=group.hasty,
        branch=_branch_point(group, member, settings),
        min_version=max(0, state.version - settings.learner.max_staleness),
        lease_s=settings.episode_lease_s,
        request_lease_s=settings.request_lease_s,
    )
