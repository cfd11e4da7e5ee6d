"""The learner's side of the log: folds it as it grows, and appends only while no other learner does.

    log ──tail──> ReplayBuffer ──> state        decide: fact ──expectation──> log ──tail──> folded, then returned

Consumes the whole log of a run; waits for its own events to come back through it (`log.append_timeout_s`); produces what
`decide` is given. Invariant 8, one writer per chain: every training event expects the last position of the learner's family,
so a second learner is fenced off. A learner that was replaced while it hung ends at the first event of the other, since its
model lacks that update.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from hindcast.core.errors import BrokerUnreachable, ExpectationFailed
from hindcast.events.envelope import Fact, Recorded
from hindcast.events.log.hash_chain import ChainChecker
from hindcast.events.log.port import EventLog, Expectation
from hindcast.events.log.publisher import Publisher
from hindcast.events.log.reader import Bookmark, tail_batches
from hindcast.events.registry import BY_CLASS
from hindcast.events.subjects import family_wildcard
from hindcast.learner.buffer.replay_buffer import ReplayBuffer
from hindcast.learner.buffer.state import BufferState


class LearnerLogFollower:
    """The current fold of a run's log, with a way to append events of the learner's family."""

    def __init__(
        self, log: EventLog, publisher: Publisher, *, state: BufferState, chains: ChainChecker
    ) -> None:
        """`state`: the fold so far. `chains`: hash chains checked up to the same position."""
        self._log = log
        self._publisher = publisher
        self._buffer = ReplayBuffer()
        self.state = state
        self.chains = chains
        self._grown = asyncio.Condition()

    async def follow(self) -> None:
        """Fold the log as it grows, forever."""
        bookmark = Bookmark(position=self.state.position, digest=self.state.latest, first_digest=b"")
        tail = tail_batches(
            self._log, after=self.state.position, strict=True, bookmark=bookmark, chains=self.chains
        )
        async with aclosing(tail) as batches:
            async for events, _ in batches:
                for event in events:
                    self._require_own(event)
                    self.state = self._buffer.apply(self.state, event)
                async with self._grown:
                    self._grown.notify_all()

    def _require_own(self, recorded: Recorded) -> None:
        """Refuse another learner's event: the fold would count updates that this model has not made."""
        envelope = recorded.envelope
        if (
            BY_CLASS[type(recorded.fact)].family == "learner"
            and envelope.incarnation != self._publisher.incarnation
        ):
            raise ExpectationFailed(
                f"another learner writes to run {self._log.run}: {envelope.incarnation} recorded {envelope.type} at position "
                f"{recorded.position}. This one, {self._publisher.incarnation}, ends, and starts again from the log; nothing "
                "was recorded twice. If both keep running, stop one of the two: a run has one learner."
            )

    async def more(self, *, than: int) -> None:
        """Wait until the fold is beyond position `than`."""
        async with self._grown:
            await self._grown.wait_for(lambda: self.state.position > than)

    async def decide(
        self,
        fact: Fact,
        *,
        entity: str,
        ordinal: int = 0,
        causation: str | None = None,
        correlation: str | None = None,
        follows: Sequence[Fact] = (),
    ) -> None:
        """Append an event of the learner's family, and wait until it is folded. `follows`: as in `Publisher`.

        Raises:
            ExpectationFailed: another learner appended an event first.
            BrokerUnreachable: the event did not come back in time.
        """
        subject = family_wildcard(self._log.run, "learner")
        last = self.state.last_learner
        try:
            position = await self._publisher.decide(
                fact,
                entity=entity,
                ordinal=ordinal,
                causation=causation,
                correlation=correlation,
                policy_version=self.state.version,
                expect=Expectation(subject=subject, last=last),
                follows=follows,
            )
        except ExpectationFailed as error:
            raise ExpectationFailed(
                f"another learner writes to run {self._log.run}: the learner's last event is no longer at position {last}. "
                f"Nothing was recorded twice. Stop one of the two: a run has one learner. ({error})"
            ) from error
        await self.reach(position)

    async def reach(self, position: int) -> None:
        """Wait until the fold includes an acknowledged position. Raises BrokerUnreachable after `log.append_timeout_s`."""
        limit_s = self.state.settings.log.append_timeout_s
        try:
            async with asyncio.timeout(limit_s), self._grown:
                await self._grown.wait_for(lambda: self.state.position >= position)
        except TimeoutError as error:
            raise BrokerUnreachable(
                f"position {position} was acknowledged but did not come back from the log of run {self._log.run} within "
                f"{limit_s:g} s (log.append_timeout_s); the log was read up to {self.state.position}."
            ) from error
