"""Checks that an event belongs to this run or an ancestor, and has the right subject and id.

A fork reads its parent's log up to the position it was forked at. The run's name changes there, and only there: the first
event under the new name is a `run.forked` that names the parent, the position, and the digest of the log up to it.
"""

from hindcast.events.jetstream.accounts import PUBLISHES, role_of_producer
from hindcast.events.registry import SUBJECTS
from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.defects import ALTERED, Findings
from hindcast.storage.audit.digests import Digests
from hindcast.storage.audit.shapes import Shape

FOREIGN = "Another run's events are in this log, or an event was altered."
INTRUDER = "A process wrote into the log past the permissions of the broker, or an event was altered."
NANOSECONDS_PER_MS = 1_000_000
UUID_MS = (1 << 48) - 1


class Names:
    """Follows the run's name through the log."""

    def __init__(self, run: str, findings: Findings, digests: Digests) -> None:
        """`run`: the run that this log should belong to."""
        self._run = run
        self._findings = findings
        self._digests = digests
        self._current = ""
        self._since = 0

    def take(self, event: Event, shape: Shape | None, *, forked: bool) -> None:
        """Check one event. `forked`: it is a readable run.forked."""
        if event.run != self._current:
            self._change(event, forked=forked)
        elif forked:
            self._add(event, "a fork begins under the name of its parent", "a name of its own", event.run)
        self._check_id(event)
        family = event.subject.split(".", 3)[2] if event.subject.count(".") >= 3 else ""
        expected_family = shape.family if shape is not None else family
        role = role_of_producer(event.producer)
        if role is not None and family not in PUBLISHES[role]:
            self._findings.add(
                "writer",
                event.position,
                f"{event.producer} may not write there",
                event=event.type,
                expected=f"a producer whose role appends `{family}`",
                found=event.subject,
                meaning=INTRUDER,
            )
        elif role is not None and shape is not None and role not in shape.roles:
            self._findings.add(
                "writer",
                event.position,
                f"{event.producer} does not record {event.type}",
                event=event.type,
                expected=f"a producer of role {' or '.join(shape.roles)}",
                found=event.producer,
            )
        subject = SUBJECTS.get(expected_family)
        key = event.entity if subject is not None and subject.per_entity else event.incarnation
        expected = f"run.{event.run}.{expected_family}.{key}"
        if event.subject != expected:
            self._add(event, "its subject is not the one that its content requires", expected, event.subject)

    def _check_id(self, event: Event) -> None:
        if event.id != event.stored_id:
            self._add(event, "it is stored under another event's id", event.id, event.stored_id or "none")
        expected_ms = event.occurred_ns // NANOSECONDS_PER_MS & UUID_MS
        try:
            said_ms = int(event.id[:8] + event.id[9:13], 16)
        except ValueError:
            said_ms = -1
        if said_ms != expected_ms or event.id[14:15] != "7":
            self._add(
                event,
                "its id is not one of the time it was recorded at",
                f"a UUIDv7 of {expected_ms} ms",
                event.id,
            )

    def _change(self, event: Event, *, forked: bool) -> None:
        if not self._current:
            self._current, self._since = event.run, event.position
            if forked:
                self._check_fork(event, parent=None)
            return
        if not forked:
            if event.run == self._run:
                self._add(
                    event,
                    f"the log continues as run {event.run} without a fork",
                    f"an event of {self._current}, or run.forked",
                    event.type,
                )
                self._current, self._since = event.run, event.position
            else:
                self._add(event, "it belongs to another run", self._current, event.run, meaning=FOREIGN)
            return
        self._check_fork(event, parent=self._current)
        self._current, self._since = event.run, event.position

    def _check_fork(self, event: Event, *, parent: str | None) -> None:
        named_parent, at = event.payload["parent"], event.payload["at_position"]
        if parent is not None and named_parent != parent:
            self._add(
                event, "it names another parent than the run whose events precede it", parent, named_parent
            )
        if at != event.position - 1:
            self._add(
                event,
                "it is not where the fork begins",
                f"position {at + 1}",
                f"position {event.position}",
            )
        elif parent is not None:
            self._digests.compare(
                event.payload["parent_digest"],
                at,
                position=event.position,
                said_by="run.forked",
                event=event.type,
            )

    def finish(self) -> None:
        """Check that the log ends as the expected run."""
        if self._current and self._current != self._run:
            self._findings.add(
                "name",
                self._since,
                f"this is the log of run {self._current}, not of {self._run}",
                expected=self._run,
                found=self._current,
                meaning="Another run's log was put under this name.",
            )

    def _add(self, event: Event, what: str, expected: str, found: str, *, meaning: str = ALTERED) -> None:
        self._findings.add(
            "name", event.position, what, event=event.type, expected=expected, found=found, meaning=meaning
        )
