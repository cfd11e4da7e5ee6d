"""Faults put in on purpose, one at a time, and who must notice: so that a green simulation means something.

Each entry breaks product code (or a stand-in, where the real one cannot run) the way a system is known to have been
broken. `notice` plays schedules until one shows it.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

import hindcast.actors.curriculum.requests as requests
import hindcast.actors.curriculum.role as curriculum_role
import hindcast.core.rl.staleness
import hindcast.learner.batch_plan as planning
import hindcast.learner.buffer.groups as settling
import hindcast.learner.loop as loop
from hindcast.actors.curriculum.leases import LeaseTimer
from hindcast.actors.episodes.attempt import AttemptContext
from hindcast.actors.judges.base import Verdict
from hindcast.actors.queue_worker import QueueWorker
from hindcast.core.domain.evidence import Judgment
from hindcast.core.ids import digest_hex
from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import SamplesSwept, WeightsPublished
from hindcast.events.envelope import BlobRef, Fact
from hindcast.events.log.append_once import AlreadyStored, Committed, OutcomeUnknown, append_once
from hindcast.events.log.joined_log import JoinedLog
from hindcast.events.log.publisher import Publisher
from hindcast.events.registry import BY_CLASS
from hindcast.learner.buffer.state import BufferState
from hindcast.learner.planners.phases import ReplayedEpisode, replayed
from hindcast.learner.verify.recomputation import Recomputation
from hindcast.storage.archive.log_mover import Mover
from hindcast.storage.blobs.wanted_pages import PageWindow
from hindcast.storage.snapshots import SnapshotKind
from simulation.invariants import Admission, check
from simulation.links import Broker, Connection
from simulation.schedules import ARCHIVED, PHASED, View, play
from simulation.stand_ins import ScriptedEngine


class Sabotage(NamedTuple):
    """One fault."""

    name: str
    patches: Callable[[], Sequence[AbstractContextManager[Any]]]
    noticed_by: tuple[str, ...]
    """One of these begins what is raised."""
    seeds: Iterable[int] = range(150)
    """Tried in this order. A fault that few schedules show begins with one of them."""


def notice(sabotage: Sabotage, folder: Path) -> tuple[int, str] | None:
    """The first seed whose schedule shows the fault, and how; None: nobody noticed."""
    with ExitStack() as stack:
        for broken in sabotage.patches():
            stack.enter_context(broken)
        for seed in sabotage.seeds:
            try:
                check(play(seed, folder))
            except Exception as error:  # whatever is raised is looked at by the test
                return seed, f"{type(error).__name__}: {error}"
    return None


# ---- writing --------------------------------------------------------------------------------------------------------


async def _append_and_wait_for_ever(link: Any, batch: Any, expect: Any, **bounds: Any) -> list[int]:
    class Patient:
        run, find = link.run, link.find

        async def attempt(self, batch: Any, expect: Any) -> Any:
            outcome = await link.attempt(batch, expect)
            if isinstance(outcome, OutcomeUnknown):
                await asyncio.get_running_loop().create_future()
            return outcome

    return await append_once(Patient(), batch, expect, **bounds)


async def _append_recomposed(link: Any, batch: Any, expect: Any, **bounds: Any) -> list[int]:
    """A batch of unknown outcome goes again with others in it; `repeated` is believed of all of them."""
    if expect is not None or len(batch) < 2:
        return await append_once(link, batch, expect, **bounds)
    first = await link.attempt(batch[:1], None)
    rest = batch if isinstance(first, OutcomeUnknown) else batch[1:]
    placed = first.positions if isinstance(first, Committed) else []
    outcome = await link.attempt(rest, None)
    if isinstance(outcome, AlreadyStored):
        return [1] * len(batch)
    if isinstance(outcome, Committed):
        return [*placed, *outcome.positions]
    return [*placed, *await append_once(link, rest, None, **bounds)]


_decide = Publisher.decide


def _decide_without_expectation(*families: str) -> Any:
    async def decide(self: Publisher, fact: Fact, **told: Any) -> int:
        if BY_CLASS[type(fact)].family not in families:
            return await _decide(self, fact, **told)
        told.pop("expect", None)
        for one in (fact, *told.pop("follows", ())):
            await self.publish(one, **told)
        return await self.commit()

    return patch.object(Publisher, "decide", decide)


def _nothing_under(*families: str) -> Any:
    last_under = Connection.last_under

    async def nothing(self: Connection, subject: str) -> Any:
        return None if subject.split(".")[2] in families else await last_under(self, subject)

    return patch.object(Connection, "last_under", nothing)


_deliver = Publisher._deliver


async def _deliver_and_count_refusals(self: Publisher, batch: Any) -> None:
    await _deliver(self, batch)
    if batch[0].decision is not None and batch[0].decision.error is not None:
        self._chain._seq += 1


# ---- reading --------------------------------------------------------------------------------------------------------

_tail = Connection.tail


async def _tail_with_holes(self: Connection, *, after: int, headers: bool = True) -> Any:
    async for batch in _tail(self, after=after, headers=headers):
        if self._random.random() < 0.05:
            continue
        yield batch


async def _apply_position_first(self: View, recordeds: Any, position: int) -> None:
    self.reached = position
    await asyncio.sleep(0)
    for recorded in recordeds:
        key = recorded.envelope.type, recorded.envelope.entity
        self.state[key] = self.state.get(key, 0) + 1


# ---- roles ----------------------------------------------------------------------------------------------------------


async def _acknowledge_first(self: Any, delivery: Any) -> None:
    await delivery.ack()
    await _judge_handle(self, delivery)


_judge_handle = QueueWorker._handle


def _failure(reason: str, **_: Any) -> Verdict:
    return Verdict(judgment=Judgment(outcome="failure", reward=0.0, reason=reason))


_caught_up = curriculum_role._Curriculum._caught_up


async def _caught_up_and_forgotten(self: Any, position: int) -> None:
    await _caught_up(self, position)
    if not getattr(self, "resumed", False):
        self.resumed = True
        self._state.groups.clear()
        self._state.places.clear()


_room, _capacity = hindcast.core.rl.staleness.room, hindcast.core.rl.staleness.capacity


async def _publish_before_the_blob(self: Any) -> None:
    state = self._state
    content = self._training.weights("policy")
    fact = WeightsPublished(
        version=state.version + 1,
        model="policy",
        weights=BlobRef(digest_hex(content), len(content)),
        update=state.updates,
    )
    await self.following.decide(fact, entity=f"policy_v{state.version + 1}")
    await asyncio.sleep(0.3)
    self._blobs.put(content)


_plan = planning.plan


def _plan_in_any_order(state: Any, settings: Any) -> Any:
    import msgspec

    made = _plan(state, settings)
    if made is None or len(made.episodes) < 2:
        return made
    return msgspec.structs.replace(made, seed=made.seed + 1)


async def _adopt_version_first(self: ScriptedEngine, version: int, weights: Path) -> None:
    self.version = version
    content = weights.read_bytes()
    await asyncio.sleep(0.3)
    self._weights = content


def _resolved_by_attempt(state: Any, episode_id: str) -> bool:
    episode = state.episodes[episode_id]
    if episode.gone is not None:
        tries = state.settings.curriculum.max_attempts
        return bool(episode.gone == "cancelled" or episode.attempt + 1 >= tries)
    return bool(episode.swept or (episode.ended and episode.outcome is not None))


_sweep = planning.sweep


def _sweep_as_of_nowhere(state: Any, settings: Any) -> list[SamplesSwept]:
    return [msgspec.structs.replace(fact, as_of=None) for fact in _sweep(state, settings)]


class _Unlimited:
    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


_check_weights = Recomputation._check_weights


def _check_weights_and_keep_them(self: Any, recorded: Any, fact: Any, state: Any) -> Any:
    self._blobs.put(b"written by a replay")
    return _check_weights(self, recorded, fact, state)


ENDS, STARTS = "Broken: every episode ends once", "Broken: every episode ends once"
TRUTH = "Broken: log is the truth"
REFUSED = ("CorruptEvent", "ForeignLog")

_decode = SnapshotKind.decode


def _decode_without(field: str) -> Callable[[SnapshotKind[Any], bytes], Any]:
    """What is read back from a snapshot lacks one field of its state."""

    def decode(kind: SnapshotKind[Any], content: bytes) -> Any:
        found = _decode(kind, content)
        state = getattr(found, "state", found)
        if hasattr(state, field):
            setattr(state, field, type(getattr(state, field))())
        return found

    return decode


async def _purge_unseen(self: Mover) -> int:
    """What is old goes, whether or not it stands in the archive."""
    last = (await self._stream.identity()).last
    await self._stream.purge(until=last - 2)
    return last - 2


def _slide_without_counting(self: PageWindow, state: Any) -> None:
    """Pages of the oldest episode go, though others show them too."""
    for episode in list(state.ended)[: max(0, len(state.ended) - self._keep)]:
        for sha256 in state.ended.pop(episode).pages:
            if state.uses.pop(sha256, 0):
                state.due[sha256] = state.last_named.pop(sha256)


class _OneTooMany(JoinedLog):
    """A fork that reads its parent one event further than it was forked at."""

    async def tail(self, *, after: int, headers: bool = True) -> Any:
        async for batch in JoinedLog(self._older, self._newer, at=self._at + 1).tail(
            after=after, headers=headers
        ):
            yield batch


def _decode_one_event_old(kind: SnapshotKind[Any], content: bytes) -> Any:
    """A state that lacks the event it is said to end with."""
    found = _decode(kind, content)
    getattr(found, "state", found).position += 1
    return found


ARCHIVED_SEEDS = range(ARCHIVED, ARCHIVED + 60)


class _AllScored(dict[int, float]):
    def __contains__(self, position: object) -> bool:
        return True

    def __missing__(self, position: int) -> float:
        return 1.5


def _replay_without_scores(
    state: BufferState, learner: LearnerSettings, *, steps: int
) -> list[ReplayedEpisode]:
    scored = replace(state, perplexities=_AllScored(state.perplexities))
    return replayed(scored, learner, steps=steps)


SABOTAGES = (
    Sabotage(
        "an archiver lets the broker forget what is not verified in the archive",
        lambda: [patch.object(Mover, "purge", _purge_unseen)],
        (*REFUSED, "Broken: one sequence", "Stuck", "BeyondArchive", "ArchiveMissing"),
        seeds=ARCHIVED_SEEDS,
    ),
    Sabotage(
        "a fork reads one event too many of its parent",
        lambda: [patch("simulation.continuing.JoinedLog", _OneTooMany)],
        (*REFUSED, "Broken: one sequence"),
        seeds=ARCHIVED_SEEDS,
    ),
    Sabotage(
        "a snapshot is one event old",
        lambda: [patch.object(SnapshotKind, "decode", _decode_one_event_old)],
        (*REFUSED, "Stuck", "Broken"),
        seeds=range(141, 291),
    ),
    Sabotage(
        "a page is let go of that an episode still shows",
        lambda: [patch.object(PageWindow, "_slide", _slide_without_counting)],
        ("Broken: pages",),
        seeds=ARCHIVED_SEEDS,
    ),
    Sabotage(
        "a lost acknowledgement is awaited for ever",
        lambda: [patch("simulation.links.append_once", _append_and_wait_for_ever)],
        ("Stuck",),
    ),
    Sabotage(
        "a batch of unknown outcome is recomposed, and `repeated` believed of all of it",
        lambda: [patch("simulation.links.append_once", _append_recomposed)],
        (*REFUSED, "Stuck"),
    ),
    Sabotage(
        "the chain advances for a fact that was refused",
        lambda: [patch.object(Publisher, "_deliver", _deliver_and_count_refusals)],
        REFUSED,
    ),
    Sabotage(
        "a consumer is dropped messages in silence",
        lambda: [patch.object(Connection, "tail", _tail_with_holes)],
        (*REFUSED, "Stuck"),
    ),
    Sabotage(
        "the broker drops the end of the stream and gives its positions out again",
        lambda: [patch.object(Broker, "forget_acknowledgements", lambda self, _: self.lose_the_end(4))],
        (*REFUSED, "Stuck", "IndexError"),
    ),
    Sabotage(
        "a consumer's position is stored apart from its effect",
        lambda: [patch.object(View, "apply", _apply_position_first)],
        (TRUTH,),
    ),
    Sabotage(
        "redelivery after an acknowledgement is judged again",
        lambda: [_decide_without_expectation("verdict"), _nothing_under("verdict")],
        ("Broken: verdicts are facts about a judge",),
    ),
    Sabotage(
        "an end that comes after the lease is taken",
        lambda: [_decide_without_expectation("episode_end")],
        (ENDS,),
    ),
    Sabotage(
        "two actors play one episode",
        lambda: [
            _decide_without_expectation("episode"),
            _nothing_under("episode", "episode_end"),
        ],
        (STARTS, "CorruptEvent"),
    ),
    Sabotage(
        "leases are not enforced",
        lambda: [patch.object(LeaseTimer, "expired", lambda *_, **__: [])],
        ("Stuck",),
        seeds=range(46, 196),
    ),
    Sabotage(
        "a wait has no bound",
        lambda: [patch.object(AttemptContext, "limited", lambda *_, **__: _Unlimited())],
        ("Stuck",),
    ),
    Sabotage(
        "work is acknowledged before its result is durable",
        lambda: [patch.object(QueueWorker, "_handle", _acknowledge_first)],
        ("Stuck",),
    ),
    Sabotage(
        "an outage of the judge counts as failure",
        lambda: [
            patch("hindcast.actors.judges.base.undecided", _failure),
            patch("hindcast.actors.judges.role.undecided", _failure),
        ],
        ("Broken: verdicts are facts about a judge",),
    ),
    Sabotage(
        "what is under way is forgotten on resume, so that its counter restarts at 0",
        lambda: [patch.object(curriculum_role._Curriculum, "_caught_up", _caught_up_and_forgotten)],
        ("Broken: counters are projections", "Stuck"),
    ),
    Sabotage(
        "admission lacks the discarded term",
        lambda: [
            patch.object(requests, "room", lambda **terms: _room(**{**terms, "discarded": 0})),
            patch.object(requests, "capacity", lambda **terms: _capacity(**{**terms, "discarded": 0})),
        ],
        ("Stuck",),
    ),
    Sabotage(
        "stale samples are trained on",
        lambda: [  # admission alone keeps small runs fresh enough, so it goes too, and who counts it looks away
            patch("hindcast.learner.planners.groups.too_old", lambda *_, **__: False),
            patch.object(requests, "room", lambda **terms: _room(**{**terms, "eta": 9})),
            patch.object(requests, "capacity", lambda **terms: _capacity(**{**terms, "eta": 9})),
            patch.object(Admission, "under_way", lambda _: 0),
        ],
        ("Broken: counters are projections: ages",),
        seeds=range(16, 166),
    ),
    Sabotage(
        "a second learner is not fenced off",
        lambda: [_decide_without_expectation("learner")],
        (
            "Broken: plan before training",
            "Broken: one writer",
            "CorruptEvent",
            "ReplayDiverged",
            "Broken: what was",
        ),
        seeds=range(76, 226),
    ),
    Sabotage(
        "a plan does not follow from the log",
        lambda: [patch.object(loop, "plan", _plan_in_any_order)],
        ("Broken: no effects in replay",),
    ),
    Sabotage(
        "weights are announced before they are stored",
        lambda: [patch.object(loop.Learner, "_publish_weights", _publish_before_the_blob)],
        ("Broken: adopted is not published", "Stuck", "BlobMissing"),
    ),
    Sabotage(
        "the version is bumped before the weights are live",
        lambda: [patch.object(ScriptedEngine, "adopt", _adopt_version_first)],
        ("Broken: adopted is not published",),
    ),
    Sabotage(
        "the learner counts tries that nobody started, and its sweeps do not say up to where they read",
        lambda: [
            patch.object(settling, "_is_resolved", _resolved_by_attempt),
            patch.object(loop, "sweep", _sweep_as_of_nowhere),
        ],
        ("Broken: no effects in replay",),
        seeds=range(523, 673),
    ),
    Sabotage(
        "a snapshot of the learner forgets how many batches there were",
        lambda: [patch.object(SnapshotKind, "decode", _decode_without("batches"))],
        ("Broken: plan before training", "Broken: no effects in replay", "CorruptEvent"),
        seeds=range(50, 200),
    ),
    Sabotage(
        "a snapshot of the curriculum forgets where its last request stands",
        lambda: [patch.object(SnapshotKind, "decode", _decode_without("last_request"))],
        ("Stuck",),
        seeds=range(102, 252),
    ),
    Sabotage(
        "a demonstration that came after a phase's scores is replayed without one",
        lambda: [patch("hindcast.learner.planners.phases.replayed", _replay_without_scores)],
        ("Broken: what was sampled is what is trained",),
        seeds=range(PHASED + 375, PHASED + 525),
    ),
    Sabotage(
        "a replay writes",
        lambda: [patch.object(Recomputation, "_check_weights", _check_weights_and_keep_them)],
        ("Broken: no effects in replay",),
    ),
)
