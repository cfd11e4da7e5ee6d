"""`hindcast without`: a run derived from another, whose updates leave out episodes or go by another judge. See docs/without.md.

    the run's log     1 ─────────── P ─────────────────────────────────── end
                                    │ requests, steps, ends, verdicts: copied, in their order
    the new log       1 ─────────── P, run.forked (with what is left out), copies and the learner's events

P is where the first batch was decided that holds an episode left out, so that everything up to there is the same. After it
a learner decides where the recorded one decided, and computes the updates.
"""

from collections import Counter, deque
from collections.abc import Callable
from contextlib import aclosing
from typing import Literal

import msgspec

from hindcast.app.runs.event_copier import EventCopier
from hindcast.app.runs.fork import fold_prefix, keep_blobs, record_fork, settings_of_fork
from hindcast.app.runs.left_out import Choice, Decision, Survey
from hindcast.app.runs.runs import Fork, RunHandle, plan_run, write_down
from hindcast.core.domain.arrays import pack_positions, unpack_positions
from hindcast.core.errors import SettingsError
from hindcast.core.models.folders import policy_folder
from hindcast.core.rl.algorithm import traits_of
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.text.counts import count_of
from hindcast.events.catalogue import (
    BatchPlanned,
    DecisionKept,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRelabeled,
    EpisodeRequested,
    EpisodeStarted,
    PhaseStarted,
    RecipeChanged,
    SamplesSwept,
    StateValued,
    StepTaken,
    TaskAdmitted,
    TaskChecked,
    TaskProposed,
    TaskRejected,
    WeightsPublished,
)
from hindcast.events.catalogue.run import Derivation
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import read
from hindcast.events.log.run_identity import beginning
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.loop import Learner, open_learner

Plans = Literal["again", "keep"]
COPIED = (
    TaskProposed,
    TaskChecked,
    TaskAdmitted,
    TaskRejected,
    StateValued,
    PhaseStarted,
    EpisodeRequested,
    EpisodeStarted,
    StepTaken,
    EpisodeEnded,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeJudged,
    EpisodeRelabeled,
    RecipeChanged,
)
"""Events that are copied, except those of evaluations."""
PRODUCER = "learner.without"


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """A derived run."""

    run: str
    parent: str
    choice: str
    plans: Plans
    at: int
    """Position up to which both runs are the same."""
    left_out: int
    """Episodes left out."""
    rejudged: int
    """Episodes whose verdict is another one."""
    batches: int
    """Batches planned anew."""
    batches_then: int
    """Batches that the parent planned there."""
    updates: int
    """Updates computed anew, without skipped ones."""
    skipped: int
    """Mini-batches skipped, of which nothing was left or which had no finite gradient."""
    version: int
    """The latest policy version."""
    parent_version: int
    same_weights: int
    """Versions computed anew whose weights are the parent's, bit for bit."""
    compared_weights: int
    """Versions computed anew that the parent has, too."""


async def derive(
    parent: RunHandle,
    found: Survey,
    choice: Choice,
    *,
    plans: Plans,
    judge: str,
    name: str | None,
    said: Callable[[str], None],
    progress: Callable[[int], None] = lambda _position: None,
) -> Derived:
    """Derive a run. `found`: `survey` of the parent. `progress`: called with positions of the parent that were passed.

    Raises:
        SettingsError: nothing is affected; the first difference lies in a log that the parent was forked from; an algorithm
            cannot keep its batches; or the name is taken.
    """
    at = _begin(parent, found, choice)
    async with parent.connect_log() as log:
        ancestors = {log.run, *(ancestor.run for ancestor in log.lineage)}
        recipe = (await beginning(log)).recipe
        state = (await fold_prefix(log, at=at)).buffer
    if plans == "keep":
        _require_keepable(found, at=at)
    others = [one for one in state.settings.judge.judges if one != judge]
    overrides = [f"judge.judges={msgspec.json.encode([judge, *others]).decode()}"] if judge else []
    resolved = settings_of_fork(state, overrides, recipe=recipe, here={})
    run = plan_run(
        resolved,
        name=name,
        home=parent.home,
        fork=Fork(parent=parent.name, at=at, without=choice.in_words() or judge),
        ancestors=ancestors,
    )
    gone, _ = await keep_blobs(run, state, said)
    derived = Derivation(
        choice=choice.in_words(),
        episodes=tuple(found.left_out),
        plans=plans,
        judge=judge,
        until=found.last,
        until_digest=found.digest,
    )
    await record_fork(run, state, gone, derived=derived)
    async with run.connect_log() as log:
        await _require_empty(log, after=at + len(gone) + 1)
    async with (
        parent.connect_log() as older,
        run.connect_log("importer") as log,
        run.publisher(log, PRODUCER) as publisher,
        open_learner(
            log, run.blobs, publisher=publisher, policy=policy_folder(run.settings.policy.base)
        ) as learner,
    ):
        await learner.begin()
        copier = EventCopier(log, code_rev=run.code_rev)
        deriving = _Deriving(found, learner, copier, keep=plans == "keep", judge=judge)
        await deriving.begin(state)
        async with aclosing(read(older, after=at, until=found.last, strict=True)) as recordeds:
            await deriving.decide(at)
            async for recorded in recordeds:
                await deriving.take(recorded)
                progress(recorded.position)
        await deriving.finish()
    write_down(run)
    return await _report(run, parent, found, derived, at=at)


def _begin(parent: RunHandle, found: Survey, choice: Choice) -> int:
    at = found.begin(everything=not found.affected)
    if at is None:
        what = count_of(len(found.left_out), "episode") if found.left_out else "these verdicts"
        raise SettingsError(
            f"run {parent.name} was never trained on {what} ({choice.in_words()}): without them its policy is what it is"
            if found.affected
            else f"run {parent.name} has no batch: nothing was trained on"
        )
    if at < parent.first:
        assert parent.fork is not None
        raise SettingsError(
            f"the first batch concerned was planned at position {at}, in the log of {parent.fork.parent}, which {parent.name} was "
            f"forked from. Run: hindcast without {parent.fork.parent}"
        )
    return at


def _require_keepable(found: Survey, *, at: int) -> None:
    """Raises SettingsError if a batch to be kept is of pairs, or of episodes and their continuations: all members are needed."""
    for as_of, decision in found.decisions:
        if as_of < at or not isinstance(decision, BatchPlanned) or decision.model != POLICY:
            continue
        traits = traits_of(decision.algorithm)
        if traits.learns_from_branches:
            raise SettingsError(
                f"batch {decision.batch} of {decision.algorithm} compares an episode with its continuations, and the advantages of "
                "its steps do not hold without one of them. Run it with --plan again"
            )
        if traits.compares == "pairs":
            raise SettingsError(
                f"batch {decision.batch} of {decision.algorithm} is made of pairs, which cannot be kept less one of a pair. "
                "Run it with --plan again"
            )


async def _require_empty(log: EventLog, *, after: int) -> None:
    """Raises SettingsError if an interrupted attempt left events: copies would be in the log twice."""
    if (await log.identity()).last > after:
        raise SettingsError(
            f"an interrupted attempt left a part of run {log.run} in the broker, which is of no use. Choose another name with --name"
        )


class _Deriving:
    """Follows the parent's log after the common part: copies, and lets the learner decide where the recorded one did."""

    def __init__(
        self, found: Survey, learner: Learner, copier: EventCopier, *, keep: bool, judge: str
    ) -> None:
        self._found = found
        self._judge = judge
        self._learner = learner
        self._copier = copier
        self._keep = keep
        self._due = deque(found.decisions)
        self._owed = 0
        """Batches that the parent had planned by here, and this run has not."""

    async def begin(self, state: BufferState) -> None:
        """Copy the other judge's verdicts about episodes that the common part has judged."""
        at = state.position
        while self._due and self._due[0][0] < at:
            self._due.popleft()
        for episode in state.episodes.values():
            if episode.outcome is not None:
                await self._copy_verdict(episode.id)

    async def take(self, recorded: Recorded) -> None:
        """Copy one event of the parent, and decide what was decided after it."""
        fact = recorded.fact
        copied = isinstance(fact, COPIED) and getattr(fact, "episode", "") not in self._found.evaluation
        if isinstance(fact, EpisodeJudged) and fact.judge.name == self._judge:
            copied = False  # it follows the training judge's
        if copied:
            await self._copier.copy(recorded)
            if isinstance(fact, EpisodeJudged):
                await self._copy_verdict(fact.episode)
        if self._owed:
            await self._reach()
            await self._decide_all()
        await self.decide(recorded.position)

    async def _copy_verdict(self, episode: str) -> None:
        recorded = self._found.verdicts.get(episode)
        if recorded is not None and recorded.position not in self._copier.positions:
            await self._copier.copy(recorded)

    async def decide(self, position: int) -> None:
        """Decide what the parent's learner decided when it knew the log up to `position`."""
        while self._due and self._due[0][0] == position:
            _, decision = self._due.popleft()
            await self._reach()
            if self._keep:
                await self._keep_decision(decision)
                await self._decide_all()
            elif isinstance(decision, BatchPlanned):
                self._owed += 1
                await self._decide_all()
            else:
                await self._learner.decide_one(may_plan=False)

    async def _reach(self) -> None:
        """Append the copies that wait, and let the learner take them in."""
        position = await self._copier.commit()
        if position:
            await self._learner.following.reach(position)

    async def _keep_decision(self, decision: Decision) -> None:
        state = self._learner.following.state
        if isinstance(decision, BatchPlanned):
            places = self._copier.places(unpack_positions(decision.positions).tolist())
            plan = msgspec.structs.replace(decision, positions=pack_positions(places))
            await self._learner.following.decide(DecisionKept(plan=plan), entity=f"batch_{decision.batch}")
        elif isinstance(decision, SamplesSwept):
            await self._learner.following.decide(DecisionKept(swept=decision), entity="samples")
        assert state.batch is None

    async def _decide_all(self) -> None:
        """Take every decision that is due, and what follows from it."""
        learner = self._learner
        while True:
            before = learner.following.state.batches
            if not await learner.decide_one(may_plan=self._keep or self._owed > 0):
                return
            if not self._keep:
                self._owed -= learner.following.state.batches - before
            while await learner.finish_one():
                pass

    async def finish(self) -> None:
        """Append what waits, and plan what is still owed."""
        await self._reach()
        await self._decide_all()


async def _report(
    run: RunHandle, parent: RunHandle, found: Survey, derived: Derivation, *, at: int
) -> Derived:
    counts: Counter[str] = Counter()
    published: dict[int, str] = {}
    async with run.connect_log() as log, aclosing(read(log, after=at, strict=True)) as recordeds:
        async for recorded in recordeds:
            counts[recorded.envelope.type] += 1
            fact = recorded.fact
            if isinstance(fact, WeightsPublished) and fact.model == POLICY:
                published[fact.version] = fact.weights.sha256
    compared = published.keys() & found.published.keys()
    judged = found.affected - found.left_out.keys()
    return Derived(
        run=run.name,
        parent=parent.name,
        choice=derived.choice,
        plans=derived.plans,
        at=at,
        left_out=len(found.left_out),
        rejudged=len(judged),
        batches=counts["batch.planned"],
        batches_then=sum(isinstance(one, BatchPlanned) for as_of, one in found.decisions if as_of >= at),
        updates=counts["update.applied"],
        skipped=counts["update.skipped"],
        version=max(published, default=max(found.published, default=0)),
        parent_version=max(found.published, default=0),
        same_weights=sum(published[one] == found.published[one] for one in compared),
        compared_weights=len(compared),
    )
