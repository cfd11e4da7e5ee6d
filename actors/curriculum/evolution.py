"""What the curriculum does between phases: begin the next phase, propose its tasks, decide on each.

    failed tasks ── generator ──> task.proposed ── critic, ORM ──> state.valued ── window, feasibility ──> task.admitted
                                                                   task.checked ──────────┘     └──> task.rejected

It reads the state and, for values, one page and one set of weights by digest. Every result is an event, so a restart
continues after the last one that was appended.

A phase decision is computed while the curriculum does its other work (`PendingDecision`). A model behind an endpoint may
take minutes to answer, and in batches a day. Meanwhile leases expire, episodes are cancelled, and a run is paused, drained
or stopped.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from types import TracebackType
from typing import Self

import structlog

from hindcast.actors.curriculum.feasibility import FeasibilityChecker, FirstState, Valuer
from hindcast.actors.curriculum.pool import Pool, family_of
from hindcast.actors.curriculum.state import CurriculumState
from hindcast.actors.curriculum.task_generator import TaskGenerator
from hindcast.actors.curriculum.task_variation import (
    basis_of,
    candidate_count,
    embedded_candidates,
    outside,
    undecided,
    verdict_on,
)
from hindcast.actors.environments.base import GoalSpace, TaskSource
from hindcast.core.domain.observation import Page
from hindcast.core.domain.task import Task
from hindcast.core.errors import BlobCorrupt, BlobMissing, ModelFileError, SettingsError
from hindcast.core.settings.endpoint import ENDPOINT
from hindcast.core.settings.schema import Settings
from hindcast.core.structs import decode_msgpack
from hindcast.events.catalogue import PhaseStarted, StateValued, TaskChecked
from hindcast.events.envelope import BlobRef, Fact
from hindcast.storage.blobs.store import BlobStore

logger = structlog.get_logger(__name__)

Told = tuple[Fact, str]
"""An event and its entity."""


class Evolver:
    """Decides on the tasks of a phase; keeps nothing that the log does not hold."""

    def __init__(
        self,
        *,
        sources: Mapping[str, TaskSource],
        pool: Pool,
        settings: Settings,
        blobs: BlobStore,
        valuer: Valuer | None,
        inventor: TaskGenerator | None = None,
        checker: FeasibilityChecker | None = None,
    ) -> None:
        """`pool`: the run's tasks, whose families bound the variations. `valuer` None: tasks are not valued.

        `inventor` None: tasks are varied from the sites' goals. `checker` None: no model checks feasibility.
        """
        self._inventor = inventor
        self._checker = checker
        self._settings = settings
        self._blobs = blobs
        self._valuer = valuer
        self._pool_families = frozenset(pool)
        by_turns = chain.from_iterable(zip_longest(*(family.values() for family in pool.values())))
        self._site_tasks = [task for task in by_turns if task is not None]
        """Tasks that the sites gave, of every family in turn."""
        self._families: dict[str, list[str]] = {}
        for name in pool:
            environment, _, family = name.partition("/")
            self._families.setdefault(environment, []).append(family)
        self._spaces: dict[str, GoalSpace] = {
            name: source
            for name, source in sources.items()
            if name in self._families and isinstance(source, GoalSpace)
        }
        self._exhausted: tuple[int | None, int] | None = None
        """Phase and number of the candidate for which no new task was found."""
        if settings.evolution.generator and not self._spaces:
            logger.warning(
                "no tasks will be generated: no environment of the run knows its goals before a page is seen",
                environments=sorted(self._families),
            )

    async def next_facts(self, state: CurriculumState) -> list[Told]:
        """Return the events to append now, each resting on the one before; empty: the phase continues unchanged."""
        if state.phases.over:
            phase = (state.phase or 0) + 1
            return [(PhaseStarted(phase=phase, reference_version=state.version), f"phase_{phase}")]
        if waiting := undecided(state):
            return await self._decisions(state, waiting)
        return await self._proposals(state)

    async def _proposals(self, state: CurriculumState) -> list[Told]:
        count = candidate_count(state, self._settings.evolution)
        candidate_key = (state.phase, len(state.phases.candidates))
        if not count or candidate_key == self._exhausted:
            return []
        basis = basis_of(state, families=self._pool_families)
        if self._inventor is not None:
            phases, pages = state.phases, state.phases.ground.pages
            proposed = await self._inventor.candidates(
                basis,
                count=count,
                environments=tuple(self._spaces),
                earlier_instructions=[phases.generated[name].instruction for name in phases.candidates],
                page_of=lambda task: self._page(pages.get(family_of(task))),
            )
        else:
            proposed = await asyncio.to_thread(
                embedded_candidates,
                basis,
                count=count,
                spaces=self._spaces,
                families=self._families,
                run_seed=self._settings.run.seed,
            )
        if not proposed:
            self._exhausted = candidate_key
            logger.info(
                "no more new tasks", phase=basis.phase, proposed=basis.first, failed=len(basis.failed)
            )
        return [(fact, fact.task.id) for fact in proposed]

    async def _decisions(self, state: CurriculumState, waiting: Sequence[Task]) -> list[Told]:
        """Decide on candidates, and return the decisions with the values they rest on."""
        phase, valued_by = state.phase or 0, self._settings.evolution.valued_by
        published = state.phases.ground.valuing(valued_by)
        values, checks = state.phases.values, state.phases.checked
        fresh = await self._values(state, [task for task in waiting if task.id not in values])
        values = fresh | {task.id: values[task.id] for task in waiting if task.id in values}
        new_checks = await self._checks(state, [task for task in waiting if task.id not in checks], values)
        decisions: list[Told] = []
        for task in waiting:
            value = values.get(task.id)
            if task.id in fresh and published is not None:
                valued = StateValued(
                    task_id=task.id, critic_version=published.version, value=fresh[task.id], model=valued_by
                )
                decisions.append((valued, task.id))
            if task.id in new_checks:
                decisions.append((new_checks[task.id], task.id))
            fact = verdict_on(
                task,
                value=value,
                checked=new_checks.get(task.id) or checks.get(task.id),
                phase=phase,
                settings=self._settings.evolution,
                spaces=self._spaces,
            )
            decisions.append((fact, task.id))
        return decisions

    async def _checks(
        self, state: CurriculumState, tasks: Sequence[Task], values: Mapping[str, float]
    ) -> dict[str, TaskChecked]:
        """Ask a model about the feasibility of tasks, by id, where configured; only those with a value in the window."""
        evolution = self._settings.evolution
        if evolution.feasibility != ENDPOINT or self._checker is None:
            return {}
        hopeful = [task for task in tasks if not outside(values.get(task.id), evolution)]
        pages = state.phases.ground.pages
        checked = await self._checker.check(
            hopeful, site_tasks=self._site_tasks, page_of=lambda task: self._page(pages.get(family_of(task)))
        )
        return {fact.task_id: fact for fact in checked}

    async def _values(self, state: CurriculumState, tasks: Sequence[Task]) -> dict[str, float]:
        """Values of tasks by id; tasks whose first page was never recorded are left out."""
        ground = state.phases.ground
        published, pages = ground.valuing(self._settings.evolution.valued_by), ground.pages
        if published is None or self._valuer is None:
            return {}
        valued: list[Task] = []
        states: list[FirstState] = []
        for task in tasks:
            page = await asyncio.to_thread(self._page, pages.get(family_of(task)))
            if page is not None:
                valued.append(task)
                states.append(FirstState(task, page))
        if not states:
            return {}
        try:
            values = await asyncio.to_thread(self._valuer.values, states, published)
        except (BlobMissing, BlobCorrupt, ModelFileError) as error:
            logger.warning("the model cannot be loaded: nothing is valued", reason=str(error))
            return {}
        except SettingsError as error:  # such as a first page that does not fit the context
            logger.warning("a first state cannot be read: nothing is valued", reason=str(error))
            return {}
        return {task.id: value for task, value in zip(valued, values, strict=True)}

    def _page(self, blob: BlobRef | None) -> Page | None:
        """A recorded page; None where there is none, or it was deleted since."""
        try:
            return None if blob is None else decode_msgpack(self._blobs.get(blob), Page)
        except (BlobMissing, BlobCorrupt) as error:
            logger.warning(
                "a first page is gone: tasks that begin on it are neither valued nor shown with it",
                reason=str(error),
            )
            return None


class PendingDecision:
    """One pending call to an evolver at a time. Leaving the context cancels it."""

    def __init__(self) -> None:
        self._call: asyncio.Task[list[Told]] | None = None
        self._last_position = 0

    async def poll(
        self, evolver: Evolver, state: CurriculumState, *, within_s: float
    ) -> tuple[list[Told], int] | None:
        """Wait up to `within_s`; return the events and the last position of the family they rest on, or None if pending.

        Starts a call if none is pending. A pending call keeps the evolver that it was started with.
        """
        if self._call is None:
            self._last_position = state.last_curriculum
            self._call = asyncio.create_task(evolver.next_facts(state))
        finished, _ = await asyncio.wait({self._call}, timeout=within_s)
        if not finished:
            return None
        facts = self._call.result()
        self._call = None
        return facts, self._last_position

    async def __aenter__(self) -> Self:
        """Enter the context; no call is pending."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel the pending call. The log holds nothing of it, so the next process starts it again."""
        if self._call is not None:
            self._call.cancel()
            await asyncio.gather(self._call, return_exceptions=True)
