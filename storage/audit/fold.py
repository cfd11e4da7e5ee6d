"""Takes one event through all checks, in order: bytes, position, name, chain, digest; then its fact.

An unreadable event is a defect of its own; apart from digests and positions, no other check sees it.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from hindcast.core.errors import HindcastError
from hindcast.events.envelope import Stored
from hindcast.storage.audit.blobs import Blobs, Depth
from hindcast.storage.audit.chains import Chains
from hindcast.storage.audit.decoder import Event, decode, digest_of
from hindcast.storage.audit.defects import ALTERED, FORGED, LOST, Findings
from hindcast.storage.audit.digests import Digests
from hindcast.storage.audit.episodes import Episodes
from hindcast.storage.audit.evaluations import Evaluations
from hindcast.storage.audit.ledger import Ledger
from hindcast.storage.audit.names import Names
from hindcast.storage.audit.operation import Operation
from hindcast.storage.audit.plans import Plans
from hindcast.storage.audit.policies import Policies
from hindcast.storage.audit.references import References
from hindcast.storage.audit.relabels import Relabels
from hindcast.storage.audit.shapes import Refs, Shape, shapes
from hindcast.storage.audit.suspicions import Suspicions
from hindcast.storage.audit.tasks import Tasks
from hindcast.storage.audit.training import Training
from hindcast.storage.audit.witnesses import Witness, Witnesses
from hindcast.storage.blobs.store import BlobStore

FIRST = "run.started"


class Fold:
    """State of a running audit."""

    def __init__(
        self,
        run: str,
        blobs: BlobStore | None,
        *,
        first: int,
        depth: Depth,
        pages: bool,
        witnesses: Sequence[Witness],
    ) -> None:
        """`first`: position the log begins at; if later than 1, references may point into an archive. `pages`: see `Blobs`."""
        since = first - 1
        self.run = run
        self.first = first
        self.position = first - 1
        self.events = 0
        self.first_digest = b""
        self.last_digest = b""
        self.holes = first > 1
        """Whether positions are missing."""
        self.refused = ""
        """Why the log refused to be read, if it gave a reason."""
        self.unknown: Counter[str] = Counter()
        self.findings = findings = Findings()
        self.ledger = Ledger()
        self.chains = Chains(findings, since=since)
        self.digests = Digests(findings, self.chains, first=first)
        self.policies = Policies(findings, since=since)
        self.tasks = Tasks(findings, since=since)
        self.episodes = Episodes(
            findings, since=since, tasks=self.tasks, ledger=self.ledger, policies=self.policies
        )
        self.evaluations = Evaluations(findings, since=since, episodes=self.episodes)
        self.relabels = Relabels(findings, since=since, episodes=self.episodes, ledger=self.ledger)
        plans = Plans(
            findings,
            since=since,
            episodes=self.episodes,
            policies=self.policies,
            ledger=self.ledger,
            digests=self.digests,
            relabels=self.relabels,
        )
        self.training = Training(findings, since=since, plans=plans, policies=self.policies)
        self.operation = Operation(
            findings,
            since=since,
            ledger=self.ledger,
            digests=self.digests,
            policies=self.policies,
            episodes=self.episodes,
            plans=plans,
            training=self.training,
            tasks=self.tasks,
            evaluations=self.evaluations,
        )
        self._references = References(
            findings,
            since=since,
            episodes=self.episodes,
            tasks=self.tasks,
            training=self.training,
            policies=self.policies,
        )
        self.blobs = Blobs(
            findings, since=since, store=blobs, depth=depth, pages=pages, policies=self.policies
        )
        self.suspicions = Suspicions()
        self._names = Names(run, findings, self.digests)
        self._witnesses = Witnesses(witnesses, findings, self.digests)
        self._checks = (
            self.policies,
            self.tasks,
            self.episodes,
            self.evaluations,
            self.relabels,
            plans,
            self.training,
            self.operation,
            self._references,
            self.blobs,
        )
        self._shapes = shapes()
        self._facts = self._dispatch()

    def _dispatch(self) -> dict[str, Callable[[Event], None]]:
        episodes, tasks, policies = self.episodes, self.tasks, self.policies
        return {
            "step.taken": episodes.stepped,
            "episode.requested": self._requested,
            "episode.started": episodes.started,
            "episode.ended": episodes.ended,
            "episode.abandoned": episodes.lost,
            "episode.cancelled": episodes.lost,
            "episode.judged": episodes.judged,
            "episode.relabeled": self.relabels.relabeled,
            "verdict.disputed": episodes.disputed,
            "task.proposed": tasks.proposed,
            "task.checked": tasks.checked,
            "task.admitted": tasks.decided,
            "task.rejected": tasks.decided,
            "state.valued": tasks.decided,
            "phase.started": tasks.phase_started,
            "weights.adopted": policies.adopted,
            "evaluation.started": self.evaluations.started,
            "evaluation.finished": self.evaluations.finished,
        }

    def _requested(self, event: Event) -> None:
        self.episodes.requested(event)
        self.evaluations.requested(event)

    def take(self, stored: Stored) -> None:
        """Check the next stored event."""
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

    def _check_position(self, position: int) -> None:
        expected = self.position + 1
        if position > expected:
            self.findings.add(
                "position",
                expected,
                "positions are missing",
                until=position - 1,
                expected=f"position {expected}",
                found=self.refused or f"position {position} after {self.position}",
                meaning=LOST,
            )
            self.refused = ""
            self._lose(position - 1)
        elif position < expected:
            self.findings.add(
                "position",
                position,
                "a position comes twice or too late",
                expected=f"position {expected}",
                found=f"position {position}",
                meaning="The log was reordered.",
            )

    def _lose(self, position: int) -> None:
        self.chains.lose()
        self.digests.lose(position)
        self.holes = True
        for check in self._checks:
            check.lose(position)

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
        self.suspicions.take(event)
        if refs:
            self.blobs.take(event, refs, pages=shape.shows_pages)
        check = self._facts.get(event.type)
        if check is not None:
            check(event)
        else:
            if shape.family == "learner":
                self.training.take(event)
            self.operation.take(event)
        self._references.take(event, shape.refs)

    def _is_readable(self, event: Event, shape: Shape, refs: Refs) -> bool:
        """Whether the payload fits its type and version; a version from the future is counted as unknown."""
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
        """Position up to which the log's beginning is in archives."""
        reached = 0
        for first, last, _ in sorted(self.operation.archived):
            if first <= reached + 1:
                reached = max(reached, last)
        return min(reached, self.first - 1)

    def finish(self, *, end: int) -> None:
        """Run the checks that need the whole log. `end`: last position of the log."""
        if self.position < end:
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
        for earlier, position in self.ledger.repeated():
            self.findings.add(
                "reference",
                position,
                "its id is that of another event",
                found=f"the event at position {earlier}",
            )
        if not self.holes:
            for position in self.ledger.uncaused():
                self.findings.add(
                    "reference",
                    position,
                    "it names a cause that is not before it",
                    meaning="The cause was lost, or one of the two was altered.",
                )
        self.policies.finish()
        self.blobs.finish()
        self._names.finish()
        self._witnesses.finish(end)
        self.digests.finish()
