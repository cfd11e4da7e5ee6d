"""Checks events about the run and its log: start, resume, fork, archive, repair, end."""

from struct import iter_unpack
from typing import Any

from hindcast.storage.audit.check import Check
from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.defects import ALTERED, Findings
from hindcast.storage.audit.digests import Digests
from hindcast.storage.audit.episodes import Episodes
from hindcast.storage.audit.evaluations import Evaluations
from hindcast.storage.audit.ledger import Ledger
from hindcast.storage.audit.plans import Plans
from hindcast.storage.audit.policies import Policies
from hindcast.storage.audit.tasks import Tasks
from hindcast.storage.audit.training import Training

POSITION_BYTES = 8


class Operation(Check):
    """Follows everything that is neither task, episode nor training."""

    name = "operation"

    def __init__(
        self,
        findings: Findings,
        *,
        since: int,
        ledger: Ledger,
        digests: Digests,
        policies: Policies,
        episodes: Episodes,
        plans: Plans,
        training: Training,
        tasks: Tasks,
        evaluations: Evaluations,
    ) -> None:
        super().__init__(findings, since=since)
        self._ledger = ledger
        self._digests = digests
        self._policies = policies
        self._episodes = episodes
        self._plans = plans
        self._training = training
        self._tasks = tasks
        self._evaluations = evaluations
        self._commands: set[str] = set()
        self.sealed_at = 0
        """Position of log.sealed; 0: the log is open."""
        self._snapshots: dict[str, int] = {}
        self.archived: list[tuple[int, int, str]] = []
        """First position, last position and location of each segment.archived."""

    def take(self, event: Event) -> None:
        """Check one readable fact."""
        check = getattr(self, f"_{event.type.replace('.', '_')}", None)
        if check is not None:
            check(event, event.payload)

    def _configure(self, settings: dict[str, Any]) -> None:
        self._plans.configure(settings)
        self._tasks.configure(settings)
        self._evaluations.configure(settings)

    def _run_started(self, event: Event, fact: dict[str, Any]) -> None:
        self.require(event.position == 1, event, "a run begins within a log", "position 1", event.position)
        self._policies.base = fact["base_policy"]["sha256"]
        self._configure(fact["settings"])
        seed = fact["settings"].get("run", {}).get("seed")
        self.require(seed in (None, fact["run_seed"]), event, "two seeds", seed, fact["run_seed"])

    def _run_forked(self, _event: Event, fact: dict[str, Any]) -> None:
        derived = fact["derived"] is not None
        self._policies.forked(derived=derived)
        self._episodes.forked(derived=derived)
        if fact["start"] is not None:
            self._configure(fact["start"]["settings"])

    def _recipe_changed(self, _event: Event, fact: dict[str, Any]) -> None:
        self._configure(fact["changes"])

    def _run_finished(self, event: Event, fact: dict[str, Any]) -> None:
        updates, updates_seen = fact["updates"], self._training.counted
        if updates > updates_seen and self._read_all:
            self.defect(event, "it counts updates that are not there", f"{updates_seen} at most", updates)
        ended_count = self._episodes.ends["episode.ended"]
        if fact["episodes"] > ended_count and self._read_all:
            self.defect(
                event, "it counts episodes that are not there", f"{ended_count} at most", fact["episodes"]
            )

    def _control_requested(self, _event: Event, fact: dict[str, Any]) -> None:
        self._commands.add(fact["command"])

    def _control_applied(self, event: Event, fact: dict[str, Any]) -> None:
        if fact["command"] not in self._commands and self._read_all:
            self.defect(event, f"{fact['command']!r} was applied without a request")

    def _log_sealed(self, event: Event, _fact: dict[str, Any]) -> None:
        self.sealed_at = event.position

    def _segment_archived(self, event: Event, fact: dict[str, Any]) -> None:
        first, last = fact["first"], fact["last"]
        if not 1 <= first <= last:
            self.defect(event, "a segment of positions that it cannot hold", "1 or more", (first, last))
            return
        archived_to = max(
            (end for _, end, location in self.archived if location == fact["location"]), default=0
        )
        if archived_to and first > archived_to + 1:
            self.defect(
                event, f"the archive {fact['location']} has a gap", f"from position {archived_to + 1}", first
            )
        self.archived.append((first, last, fact["location"]))

    def _log_repaired(self, event: Event, fact: dict[str, Any]) -> None:
        first, last = fact["first"], fact["last"]
        self.require(1 <= first <= last, event, "a repair of no positions", "1 or more", (first, last))

    def _snapshot_saved(self, event: Event, fact: dict[str, Any]) -> None:
        at, projection = fact["position"], fact["projection"]
        start = self._ledger.digest_start(at)
        if start is not None and start != fact["position_digest"][: len(start)]:
            self.defect(
                event,
                f"it was made from another event at position {at}",
                start.hex(),
                fact["position_digest"].hex(),
            )
        if fact["log_digest"]:
            self._digests.compare(
                fact["log_digest"],
                at,
                position=event.position,
                said_by=f"a snapshot of the {projection}",
                event=event.type,
            )
        previous = self._snapshots.get(projection, 0)
        if fact["previous"] != previous and self._read_all:
            self.defect(
                event, f"it names another snapshot of the {projection} before it", previous, fact["previous"]
            )
        self._snapshots[projection] = event.position

    def _replay_scored(self, event: Event, fact: dict[str, Any]) -> None:
        packed = fact["positions"]
        if len(packed) % POSITION_BYTES or len(packed) != 2 * len(fact["perplexities"]):
            self.defect(
                event,
                "positions and perplexities are not equally many",
                len(packed) // 8,
                len(fact["perplexities"]) // 4,
            )
            return
        newest = self._policies.newest
        self.require(
            fact["version"] == newest or not self._read_all,
            event,
            "it scores under another policy than the newest",
            newest,
            fact["version"],
        )
        for (position,) in iter_unpack("<Q", packed):
            if self._ledger.episode_of(position) < 0 and self._read_all:
                self.defect(event, f"it scores position {position}, which is no step", meaning=ALTERED)
