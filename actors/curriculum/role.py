"""The curriculum process: decides what is attempted next, and ends episodes that will never end by themselves.

    log ── follow ──> CurriculumState ── next_requests ──> episode.requested   (expects the last of its family)
                            │
                            ├──── evaluation_plan ──> evaluation.started, episode.requested, evaluation.finished
                            └──── leases, LeaseTimer ──> episode.abandoned   (created if absent)

It consumes everything but page content, from its newest snapshot on. It waits for the state to change, at most `TICK_S`,
because leases expire with time alone. It appends task.proposed, state.valued, task.checked, task.admitted, task.rejected
and phase.started (see `evolution`), episode.requested, episode.abandoned and wait.exceeded; evaluation.started and
evaluation.finished (see `evaluation_plan`). On a drain it appends episode.cancelled for episodes that no actor has started,
then control.applied. It appends snapshot.saved at intervals, and control.requested when room runs out (pause) and when
there is room again (resume).

Invariant "One writer per chain": a decision rests on everything its family holds. Otherwise the log refuses it, and it
is taken again from the newer state, so that a second curriculum requests nothing twice. Invariant "Every episode ends
once": an actor that does not end its episode within the lease loses it, and the log refuses a late end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing

import structlog

from hindcast.actors.curriculum.evaluation_plan import (
    delays_drain,
    finish_evaluation,
    request_evaluation,
    start_evaluation,
)
from hindcast.actors.curriculum.evolution import PendingDecision
from hindcast.actors.curriculum.feasibility import FeasibilityChecker, Valuer
from hindcast.actors.curriculum.leases import Lease, LeaseTimer
from hindcast.actors.curriculum.pool import admitted_pool
from hindcast.actors.curriculum.projection import FAMILIES, CurriculumProjection
from hindcast.actors.curriculum.requests import finished, next_requests
from hindcast.actors.curriculum.snapshots import SnapshotKeeper
from hindcast.actors.curriculum.state import CurriculumState
from hindcast.actors.curriculum.task_generator import TaskGenerator
from hindcast.actors.curriculum.task_pools import MakePools, TaskPools, pools_maker, require_demonstrations
from hindcast.actors.environments.base import TaskSource
from hindcast.actors.environments.plugin import DEMONSTRATORS
from hindcast.actors.log_follower import follow
from hindcast.actors.telemetry.spans import requesting
from hindcast.core.errors import BrokerUnreachable, ExpectationFailed, SettingsError
from hindcast.core.settings.changes import apply_change
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import (
    ControlApplied,
    ControlRequested,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeRequested,
    EvaluationFinished,
    PhaseStarted,
    RecipeChanged,
    TaskAdmitted,
    TaskProposed,
    WaitExceeded,
)
from hindcast.events.catalogue.curriculum import DEMONSTRATION
from hindcast.events.catalogue.operation import DRAIN, PAUSE, RESUME
from hindcast.events.envelope import Fact
from hindcast.events.log.port import EventLog, Expectation
from hindcast.events.log.publisher import Publisher
from hindcast.events.registry import BY_CLASS
from hindcast.events.subjects import family_wildcard
from hindcast.storage.blobs.store import BlobStore

TICK_S = 1.0
"""How often leases are checked when nothing else happens."""
ROOM_CHECK_S = 2.0
"""How often the remaining room is checked."""
AUTHOR = "curriculum"
"""Author of the pauses for lack of room."""

RoomCheck = Callable[[bool], Awaitable[str]]
"""Returns why there is too little room to begin episodes, or ""; its argument: whether that has paused the run already."""

logger = structlog.get_logger(__name__)


async def run_curriculum(
    *,
    log: EventLog,
    publisher: Publisher,
    blobs: BlobStore,
    sources: Mapping[str, TaskSource],
    settings: Settings,
    stop: asyncio.Event,
    until_episodes: int | None = None,
    room_check: RoomCheck | None = None,
    demonstrators: Collection[tuple[str, str]] = DEMONSTRATORS.keys(),
    valuer: Valuer | None = None,
    inventor: TaskGenerator | None = None,
    checker: FeasibilityChecker | None = None,
) -> None:
    """Request episodes until `stop` is set, or `until_episodes` online ones have ended in the run and none is open.

    `settings` are those at the log's end; later `recipe.changed` events are followed. `sources` maps environment to its
    tasks. `demonstrators` are pairs (environment, family). `room_check` None: there is always room. `valuer` None: generated
    tasks are not valued. `inventor` None: tasks are varied from the sites' goals. `checker` None: no model checks their
    feasibility. Leases are measured on the event loop's clock.

    Raises:
        SettingsError: the settings name an environment or a family that does not exist, or want demonstrations that no
            demonstrator can give.
        BrokerUnreachable: appended events do not come back within `log.append_timeout_s`.
    """
    make_pools = pools_maker(sources, demonstrators, blobs, valuer=valuer, inventor=inventor, checker=checker)
    task_pools = await asyncio.to_thread(make_pools, settings)
    keeper = SnapshotKeeper(log, publisher, blobs, settings)
    curriculum = _Curriculum(
        log, publisher, settings, task_pools, make_pools, until_episodes, room_check, keeper
    )
    await curriculum.restore()
    async with asyncio.TaskGroup() as tasks, curriculum.next_facts:
        following = tasks.create_task(curriculum.follow())
        stopping = tasks.create_task(_stop_when_set(stop, curriculum))
        await curriculum.decide_until_done()
        following.cancel()
        stopping.cancel()


async def _stop_when_set(stop: asyncio.Event, curriculum: "_Curriculum") -> None:
    await stop.wait()
    await curriculum.stop()


class _Curriculum:
    """The state, what changes it and what is decided from it."""

    def __init__(
        self,
        log: EventLog,
        publisher: Publisher,
        settings: Settings,
        task_pools: TaskPools,
        make_pools: MakePools,
        until_episodes: int | None,
        room_check: RoomCheck | None,
        keeper: SnapshotKeeper,
    ) -> None:
        self._log = log
        self._publisher = publisher
        self._settings = settings
        self._task_pools = task_pools
        self._pools_settings = settings
        """The settings that the task pools were made under."""
        self._make_pools = make_pools
        self._lease_timer = LeaseTimer()
        self._until_episodes = until_episodes
        self._projection = CurriculumProjection.under(settings)
        self._state: CurriculumState = self._projection.initial()
        self._keeper = keeper
        self._room_check = room_check
        self._room_checked_at = float("-inf")
        self._pool_admitted = False
        self.next_facts = PendingDecision()
        self._stopped = False
        self._changed = asyncio.Condition()
        self._changes = 0

    async def restore(self) -> None:
        """Begin at the newest snapshot."""
        self._state = await self._keeper.restore() or self._state

    async def follow(self) -> None:
        """Fold the log, forever."""
        start_position = self._state.position
        async with aclosing(follow(self._log, after=start_position, families=FAMILIES)) as batches:
            async for followed in batches:
                for recorded in followed.recorded:
                    self._state = self._projection.apply(self._state, recorded)
                    if isinstance(recorded.fact, RecipeChanged):
                        self._settings = apply_change(self._settings, recorded.fact.changes)
                self._state.position = followed.position
                async with self._changed:
                    self._changes += 1
                    self._changed.notify_all()

    async def stop(self) -> None:
        """Stop the main loop."""
        async with self._changed:
            self._stopped = True
            self._changed.notify_all()

    async def decide_until_done(self) -> None:
        """The main loop of the process."""
        await self._caught_up((await self._log.identity()).last)
        self._require_demonstrations()
        while not self._stopped and not self._is_finished():
            changes_seen = self._changes
            await self._mind_room()
            await self._mind_settings()
            await self._keeper.save_if_due(self._state)
            now_s = asyncio.get_running_loop().time()
            expired = await self._abandon(self._lease_timer.expired(self._state.leases, now_s=now_s))
            admitting = not self._pool_admitted and await self._admit_pool()
            draining = self._state.draining and not self._state.drained and await self._drain()
            cancelled = await self._cancel()
            if not (
                expired
                or admitting
                or draining
                or cancelled
                or await self._evaluate()
                or await self._evolve()
                or await self._request()
            ):
                await self._change(changes_seen, within_s=TICK_S)
        await self._publisher.commit()

    def _is_finished(self) -> bool:
        """Whether nothing is left to decide. With evaluations, a drain for the last one follows, and ends with the process."""
        return not self._settings.evaluation.every and finished(self._state, self._until_episodes)

    def _require_demonstrations(self) -> None:
        """Require a demonstrator for the demonstrations that the settings still want. Raises SettingsError."""
        require_demonstrations(
            self._task_pools.pool,
            self._task_pools.demonstrable,
            settings=self._settings,
            recorded=self._state.opened[DEMONSTRATION],
            run=self._log.run,
        )

    async def _mind_room(self) -> None:
        """Pause the run before there is no room for the pause event itself; resume it when there is room."""
        now_s = asyncio.get_running_loop().time()
        if self._room_check is None or now_s - self._room_checked_at < ROOM_CHECK_S:
            return
        self._room_checked_at = now_s
        paused = AUTHOR in self._state.leases.pauses.reasons
        reason = await self._room_check(paused)
        if bool(reason) == paused:
            return
        command, message = (PAUSE, reason) if reason else (RESUME, "there is room again")
        fact = ControlRequested(command=command, arguments={}, author=AUTHOR, reason=message)
        await self._publisher.publish(fact, entity=self._log.run)
        await self._caught_up(await self._publisher.commit())
        logger.warning(command, reason=message)

    async def _mind_settings(self) -> None:
        """Draw from the changed settings' tasks. Running episodes end under the settings they began with."""
        if self._pools_settings != self._settings:
            settings = self._settings
            self._task_pools = await asyncio.to_thread(self._make_pools, settings)
            self._pools_settings, self._pool_admitted = settings, False
            logger.info("settings changed", families=len(self._task_pools.pool))

    async def _admit_pool(self) -> bool:
        """Propose and admit the missing tasks of the pool. The first event fences off other curricula.

        The others need no expectation: they are the same from every process, and repeating them changes nothing.
        """
        state = self._state
        phase = state.phase or 0
        tasks = [item for family in self._task_pools.pool.values() for item in family.items()]
        unproposed = [(key, task) for key, task in tasks if key not in state.proposed]
        waiting = [key for key, _ in tasks if key not in state.admitted and key not in state.rejected]
        facts: list[tuple[Fact, str]] = []
        if state.phase is None:
            facts.append((PhaseStarted(phase=phase, reference_version=state.version), f"phase_{phase}"))
        facts += [(TaskProposed(task=task, source="seeded"), key) for key, task in unproposed]
        facts += [(TaskAdmitted(task_id=key, phase=phase), key) for key in waiting]
        if not facts:
            self._pool_admitted = True
            return False
        first, entity = facts[0]
        if await self._decide(first, entity=entity, last=state.last_curriculum) is not None:
            for fact, entity in facts[1:]:
                await self._publisher.publish(fact, entity=entity)
            logger.info("pool admitted", tasks=len(waiting), families=len(self._task_pools.pool))
        await self._caught_up(await self._publisher.commit())
        return True

    async def _evolve(self) -> bool:
        """Begin the next phase, propose its tasks, decide on them; nothing is requested meanwhile."""
        state = self._state
        if state.draining or state.leases.pauses:
            return False
        decision = await self.next_facts.poll(self._task_pools.evolver, state, within_s=TICK_S)
        if decision is None:
            return True
        facts, last = decision
        for fact, entity in facts:
            position = await self._decide(fact, entity=entity, last=last)
            if position is None:
                return True
            last = position
        await self._caught_up(last)
        return bool(facts)

    async def _request(self) -> bool:
        """Append the requests that the state calls for; False when nothing may be requested now."""
        state = self._state
        pool = admitted_pool(self._task_pools.pool, state.admitted)
        return await self._append_requests(
            next_requests(
                state,
                settings=self._settings,
                pool=pool,
                demonstrable=admitted_pool(self._task_pools.demonstrable, state.admitted),
                until_episodes=self._until_episodes,
            )
        )

    async def _evaluate(self) -> bool:
        """Start or finish an evaluation, or append its requests; False when there is nothing to append now."""
        state, settings, task_pools = self._state, self._settings, self._task_pools
        requests: list[EpisodeRequested] = []
        fact = finish_evaluation(state, settings=settings) or start_evaluation(
            state, settings=settings, tasks=task_pools.held_out
        )
        if fact is None:
            try:
                requests = request_evaluation(state, settings=settings, sources=task_pools.sources)
            except SettingsError as error:
                fact = finish_evaluation(state, settings=settings, broken=str(error))
        if fact is None:
            return await self._append_requests(requests)
        position = await self._decide(fact, entity=self._log.run, last=state.evaluations.last)
        if position is not None:
            logger.info("evaluation", version=fact.version, over=isinstance(fact, EvaluationFinished))
            await self._caught_up(position)
        return True

    async def _append_requests(self, facts: Sequence[EpisodeRequested]) -> bool:
        """Append requests, each expecting the one before; False when there are none."""
        last = self._state.last_request
        for fact in facts:
            with requesting(fact):
                position = await self._decide(fact, entity=fact.episode, last=last)
            if position is None:
                return True
            last = position
        await self._caught_up(last)
        return bool(facts)

    async def _decide(self, fact: Fact, *, entity: str, last: int) -> int | None:
        """Append an event that rests on all of its family up to `last`; None when the family has a newer event."""
        family = family_wildcard(self._log.run, BY_CLASS[type(fact)].family)
        try:
            return await self._publisher.decide(
                fact, entity=entity, correlation=entity, expect=Expectation(subject=family, last=last)
            )
        except ExpectationFailed:
            logger.info("decision refused: its family has a newer event", entity=entity, known=last)
            position_before = self._state.position
            await self._caught_up((await self._log.identity()).last)
            if self._state.position == position_before:
                await self._change(self._changes, within_s=TICK_S)
            return None

    async def _abandon(self, expired: Sequence[Lease]) -> bool:
        """Abandon episodes whose lease expired; one that ended after all keeps its end."""
        for lease in expired:
            fact = EpisodeAbandoned(
                episode=lease.episode,
                task_id=lease.task_id,
                reason="lease_expired",
                detail=lease.describe_expiry(),
                steps=lease.steps,
            )
            try:
                await self._publisher.decide(
                    fact, entity=lease.episode, causation=lease.causation, correlation=lease.episode
                )
            except ExpectationFailed:
                continue
            exceeded = WaitExceeded(
                setting="curriculum.lease_s", limit_s=lease.limit_s, waited_for=f"the end of {lease.episode}"
            )
            await self._publisher.publish(exceeded, entity=lease.episode, correlation=lease.episode)
        if expired:
            await self._publisher.commit()
            await self._caught_up((await self._log.identity()).last)
        return bool(expired)

    async def _drain(self) -> bool:
        """Cancel episodes that no actor has started, then record it. One that an actor starts meanwhile ends as cancelled.

        A drain with an evaluation spares that one's episodes, and is recorded after it.
        """
        state, settings = self._state, self._settings
        spared = state.evaluations.places if state.ending else {}
        waiting = [lease for lease in state.leases.waiting() if lease.episode not in spared]
        for lease in waiting:
            fact = EpisodeCancelled(
                episode=lease.episode,
                task_id=lease.task_id,
                reason=DRAIN,
                detail="the run was asked to begin nothing more",
            )
            try:
                await self._publisher.decide(
                    fact, entity=lease.episode, causation=lease.causation, correlation=lease.episode
                )
            except ExpectationFailed:
                continue
        if delays_drain(state, settings=settings, tasks=self._task_pools.held_out):
            if waiting:
                await self._publisher.commit()
                await self._caught_up((await self._log.identity()).last)
            return bool(waiting)
        await self._publisher.publish(ControlApplied(command=DRAIN, role="curriculum"), entity=self._log.run)
        await self._caught_up(await self._publisher.commit())
        logger.info("drained", cancelled=len(waiting))
        return True

    async def _cancel(self) -> bool:
        """Cancel episodes on request. An actor that plays one finds, at its end, that it has an end already."""
        requests = self._state.leases.cancel_requests()
        for lease, reason in requests:
            fact = EpisodeCancelled(
                episode=lease.episode, task_id=lease.task_id, reason="cancelled", detail=reason
            )
            try:
                await self._publisher.decide(
                    fact, entity=lease.episode, causation=lease.causation, correlation=lease.episode
                )
            except ExpectationFailed:
                continue
            applied = ControlApplied(command="cancel", role="curriculum")
            await self._publisher.publish(applied, entity=lease.episode)
        if requests:
            await self._publisher.commit()
            await self._caught_up((await self._log.identity()).last)
        return bool(requests)

    async def _caught_up(self, position: int) -> None:
        """Wait until the state includes the log up to `position`, or for `stop`."""
        bound_s = self._settings.log.append_timeout_s
        while self._state.position < position and not self._stopped:
            if not await self._change(self._changes, within_s=bound_s):
                raise BrokerUnreachable(
                    f"the curriculum knows the log up to position {self._state.position} and no event arrived for "
                    f"{bound_s:g} s (log.append_timeout_s), although the log reaches {position}: the broker accepts "
                    "events but delivers none. Run: hindcast doctor"
                )

    async def _change(self, changes_seen: int, *, within_s: float) -> bool:
        """Wait for the state to change after `changes_seen` changes, or for `stop`; False after `within_s`."""
        async with self._changed:
            try:
                async with asyncio.timeout(within_s):
                    await self._changed.wait_for(lambda: self._changes != changes_seen or self._stopped)
            except TimeoutError:
                return False
        return True
