"""One event through all checks, in order: bytes, position, name, chain, digest; then what its fact says.

What cannot be read is a defect of its own and takes part in nothing that follows but the digest.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from core.errors import HindcastError
from events.envelope import Stored
from storage.audit.blobs import Blobs, Depth
from storage.audit.chains import Chains
from storage.audit.decoding import Event, decode, digest_of
from storage.audit.defects import ALTERED, FORGED, LOST, Findings
from storage.audit.digests import Digests
from storage.audit.episodes import Episodes
from storage.audit.ledger import Ledger
from storage.audit.names import Names
from storage.audit.operation import Operation
from storage.audit.plans import Plans
from storage.audit.policies import Policies
from storage.audit.shapes import Refs, Shape, shapes
from storage.audit.tasks import Tasks
from storage.audit.training import Training
from storage.audit.witnesses import Witness, Witnesses
from storage.blobs import BlobStore

FIRST = "run.started"


class Fold:
    """An audit under way."""

    def __init__(
        self, run: str, blobs: BlobStore | None, *, first: int, depth: Depth, witnesses: Sequence[Witness]
    ) -> None:
        """`first`: where the log begins; later than 1, what is referred to may lie in an archive."""
        whole = first <= 1
        self.run = run
        self.first = first
        self.position = first - 1
        self.events = 0
        self.first_digest = b""
        self.last_digest = b""
        self.unreadable = False
        """Reading ended before the log."""
        self.unknown: Counter[str] = Counter()
        self.findings = findings = Findings()
        self.ledger = Ledger()
        self.chains = Chains(findings, whole=whole)
        self.digests = Digests(findings, self.chains, first=first)
        self.policies = Policies(findings, whole=whole)
        self.tasks = Tasks(findings, whole=whole)
        self.episodes = Episodes(
            findings, whole=whole, tasks=self.tasks, ledger=self.ledger, policies=self.policies
        )
        plans = Plans(
            findings,
            whole=whole,
            episodes=self.episodes,
            policies=self.policies,
            ledger=self.ledger,
            digests=self.digests,
        )
        self.training = Training(findings, whole=whole, plans=plans, policies=self.policies)
        self.operation = Operation(
            findings,
            whole=whole,
            ledger=self.ledger,
            digests=self.digests,
            policies=self.policies,
            episodes=self.episodes,
            training=self.training,
        )
        self.blobs = Blobs(findings, whole=whole, store=blobs, depth=depth, policies=self.policies)
        self._names = Names(run, findings, self.digests)
        self._witnesses = Witnesses(witnesses, findings, self.digests)
        self._shapes = shapes()
        self._facts = self._dispatch()

    def _dispatch(self) -> dict[str, Callable[[Event], None]]:
        episodes, tasks, policies = self.episodes, self.tasks, self.policies
        return {
            "step.taken": episodes.stepped,
            "episode.requested": episodes.requested,
            "episode.started": episodes.started,
            "episode.ended": episodes.ended,
            "episode.abandoned": episodes.lost,
            "episode.cancelled": episodes.lost,
            "episode.judged": episodes.judged,
            "episode.relabeled": episodes.relabeled,
            "verdict.disputed": episodes.disputed,
            "task.proposed": tasks.proposed,
            "task.admitted": tasks.decided,
            "task.rejected": tasks.decided,
            "state.valued": tasks.decided,
            "phase.started": tasks.phase_started,
            "weights.adopted": policies.adopted,
        }

    def take(self, stored: Stored) -> None:
        """The next stored event."""
        position, digest = stored.position, digest_of(stored.data)
        self._check_position(position)
        if position <= self.position:
            return
        self.position = position
        self.events += 1
        if position == 1:
            self.first_digest = digest
        self.last_digest = digest
        event = decode(stored, digest)
        self.digests.advance(position, digest)
        if isinstance(event, str):
            self.ledger.add(position, stored.id, digest, cause=None)
            kind = f" ({stored.subject})"
            self.findings.add(
                "bytes", position, f"it holds {event}{kind}", expected="an event", meaning=ALTERED
            )
        else:
            self.ledger.add(position, event.id, digest, cause=event.causation)
            self._take(event)
        self._witnesses.take(position, digest)

    def stop_reading(self, position: int, end: int, why: str) -> None:
        """The log gives nothing from a position on."""
        self.unreadable = True
        self.findings.add(
            "position",
            position,
            "the log cannot be read from here on",
            until=end,
            expected=f"events up to position {end}",
            found=why,
            meaning=LOST,
        )

    def _check_position(self, position: int) -> None:
        due = self.position + 1
        if position > due:
            self.findings.add(
                "position",
                due,
                "positions are missing",
                until=position - 1,
                expected=f"position {due}",
                found=f"position {position} after {self.position}",
                meaning=LOST,
            )
        elif position < due:
            self.findings.add(
                "position",
                position,
                "a position comes twice or too late",
                expected=f"position {due}",
                found=f"position {position}",
                meaning="The log was reordered.",
            )

    def _take(self, event: Event) -> None:
        shape = self._shapes.get(event.type)
        refs: Refs = []
        readable = shape is not None and self._is_readable(event, shape, refs)
        if readable and shape is not None and event.version < shape.version:
            event = event._replace(payload=shape.current(event.version, event.payload))
        self.chains.take(event)
        self._names.take(event, shape, forked=readable and event.type == "run.forked")
        if event.position == 1 and event.type != FIRST:
            self._add(event, "the log does not begin with run.started", FIRST, event.type)
        if self.operation.sealed_at:
            self._add(
                event,
                "an event after the log was sealed",
                f"nothing after {self.operation.sealed_at}",
                event.type,
            )
        if shape is None:
            self.unknown[event.type] += 1
        if not readable or shape is None:
            return
        if refs:
            self.blobs.take(event, refs)
        check = self._facts.get(event.type)
        if check is not None:
            check(event)
            return
        if shape.family == "learner":
            self.training.take(event)
        self.operation.take(event)

    def _is_readable(self, event: Event, shape: Shape, refs: Refs) -> bool:
        """Whether the payload is one of its type and version; a version from the future is counted as unknown."""
        if event.version > shape.version:
            self.unknown[f"{event.type} version {event.version}"] += 1
            return False
        try:
            wrong = shape.check(shape.current(event.version, event.payload), refs)
        except (HindcastError, KeyError, TypeError, AttributeError) as error:
            wrong = f"is not of version {event.version} ({type(error).__name__}: {error})"
        if wrong is not None:
            self._add(
                event, f"its content {wrong}", f"{event.type} version {event.version}", "", meaning=ALTERED
            )
        return wrong is None

    def _add(self, event: Event, what: str, expected: str, found: str, *, meaning: str = FORGED) -> None:
        self.findings.add(
            "content", event.position, what, event=event.type, expected=expected, found=found, meaning=meaning
        )

    @property
    def archived_until(self) -> int:
        """How far the log's beginning, where it is not here, stands in archives."""
        reached = 0
        for first, last, _ in sorted(self.operation.archived):
            if first <= reached + 1:
                reached = max(reached, last)
        return min(reached, self.first - 1)

    def finish(self, *, end: int) -> None:
        """What shows only once everything was read. `end`: position the log goes to."""
        if self.position < end and not self.unreadable:
            self._check_position(end + 1)
        if self.archived_until < self.first - 1:
            self.findings.add(
                "position",
                self.archived_until + 1,
                "the beginning of the log is missing",
                until=self.first - 1,
                expected="position 1, or a segment.archived that names these positions",
                found=f"position {self.first}",
                meaning=LOST,
            )
        for before, position in self.ledger.repeated():
            self.findings.add(
                "reference",
                position,
                "its id is that of another event",
                found=f"the event at position {before}",
            )
        if self.first <= 1:
            for position in self.ledger.uncaused():
                self.findings.add(
                    "reference",
                    position,
                    "it names a cause that does not stand before it",
                    meaning="The cause was lost, or one of the two was altered.",
                )
        self.policies.finish()
        self.blobs.finish()
        self._names.finish()
        self._witnesses.finish(end if not self.unreadable else max(end, self.position))
        self.digests.finish()
