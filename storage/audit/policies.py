"""Checks policy versions: published before adoption, adopted before sampling, never decreasing."""

from hindcast.storage.audit.check import Check
from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.defects import Findings


class Policies(Check):
    """Follows versions and which actor samples from which. Memory: about 100 bytes per actor start and version."""

    name = "policy"

    def __init__(self, findings: Findings, *, since: int) -> None:
        super().__init__(findings, since=since)
        self.newest = 0
        """Newest known version; version 0, the base policy, exists from the beginning."""
        self.announced = -1
        """Newest version that a weights.published names."""
        self.base = ""
        """sha256 of version 0's weights."""
        self.of_parent = False
        """Whether a derived run copies its parent's episodes here, whose versions it need not have published."""
        self._adopted: dict[str, int] = {}
        """Newest version by incarnation."""
        self._ahead: dict[str, tuple[Event, int]] = {}
        """By incarnation: its first step from a version that it has not adopted yet, and that version."""

    def lose(self, position: int) -> None:
        """See `Check.lose`: versions may have been published and adopted in the hole."""
        super().lose(position)
        self.announced = -1
        self._adopted.clear()
        self._ahead.clear()

    def forked(self, *, derived: bool) -> None:
        """`run.forked`: in a derived run (`hindcast without`) the episodes after it are the parent's."""
        self.of_parent = derived

    def published(self, event: Event) -> None:
        """`weights.published` of the policy."""
        version, weights = event.payload["version"], event.payload["weights"]["sha256"]
        if version != self.announced + 1 and (self._read_all or self.announced >= 0):
            self.defect(event, "a policy version is missing or published twice", self.announced + 1, version)
        if version == 0 and self.base and weights != self.base:
            self.defect(event, "version 0 is not the base policy of run.started", self.base, weights)
        self.announced = max(version, self.announced)
        self.newest = max(version, self.newest)

    def adopted(self, event: Event) -> None:
        """`weights.adopted`."""
        version = event.payload["version"]
        self.by_role(event, "actor")
        actor = event.payload["actor"]
        self.require(
            actor == event.producer, event, "it names another actor than its producer", actor, event.producer
        )
        self.require(version >= 0, event, "an adopted version", "0 or more", version)
        adopted_before = self._adopted.get(event.incarnation, -1)
        if version < adopted_before:
            self.defect(event, f"{actor} went back to older weights", f"{adopted_before} or newer", version)
        self._adopted[event.incarnation] = max(version, adopted_before)
        ahead = self._ahead.get(event.incarnation)
        if ahead is not None and ahead[1] <= version:
            del self._ahead[event.incarnation]

    def sampled(self, event: Event, version: int) -> None:
        """Take in a step of this version. Its adoption may follow: the two are recorded at about the same time."""
        adopted = self._adopted.get(event.incarnation)
        if adopted is not None and version > adopted and event.incarnation not in self._ahead:
            self._ahead[event.incarnation] = event, version

    def finish(self) -> None:
        """Report steps from versions that their actor never adopted."""
        for event, version in self._ahead.values():
            self.defect(
                event,
                "it was sampled from a version that its actor never adopted",
                f"{self._adopted[event.incarnation]} at most",
                version,
            )
