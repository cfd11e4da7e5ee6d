"""Which episodes are open, and until when: the fold behind "every episode ends once" (invariant 2).

A lease begins with the request and again with the start. Deadlines are annotations: they are computed from what the
events say about their own time, are compared with a clock only where something is decided, and come out the same
when the log is folded again. A request that was waiting while the system stood still is not late: resuming the run, or
the end of a pause, begins its lease anew.
"""

from dataclasses import dataclass, field

import msgspec

from actors.pausing import Pauses
from events.catalogue import (
    ControlRequested,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeRequested,
    EpisodeStarted,
    RunResumed,
    StepTaken,
)
from events.envelope import Recorded

FAMILIES = frozenset({"run", "request", "episode", "step", "episode_end", "control"})
"""Families a lease book must be shown."""


class Lease(msgspec.Struct):
    """One open episode."""

    episode: str
    task_id: str
    lease_s: float
    deadline_ns: int
    """Unix time in ns after which it counts as dead."""
    causation: str
    """Id of the event the lease runs from: the request or the start."""
    actor: str | None = None
    """Who started it; None while it waits."""
    steps: int = 0

    def describe_expiry(self) -> str:
        """In words, for `episode.abandoned.detail`."""
        if self.actor is None:
            return f"no actor started it within {self.lease_s:g} s"
        return f"{self.actor} started it and did not end it within {self.lease_s:g} s"


@dataclass(slots=True)
class LeaseBook:
    """All open episodes. Deterministic; `apply` is the only way to change it."""

    leases: dict[str, Lease] = field(default_factory=dict)
    """By episode, in the order of their requests."""
    pauses: Pauses = field(default_factory=Pauses)
    cancels: dict[str, str] = field(default_factory=dict)
    """Open episodes that somebody wants cancelled, and why."""

    def __len__(self) -> int:
        return len(self.leases)

    def __contains__(self, episode: str) -> bool:
        return episode in self.leases

    def apply(self, recorded: Recorded) -> None:
        """Fold one event; families other than `FAMILIES` change nothing."""
        paused = bool(self.pauses)
        self.pauses.apply(recorded)
        if paused and not self.pauses:
            self._begin_anew(recorded)
        match recorded.fact:
            case EpisodeRequested() as fact:
                self.leases[fact.episode] = Lease(
                    episode=fact.episode,
                    task_id=fact.task.id,
                    lease_s=fact.lease_s,
                    deadline_ns=_deadline(recorded, fact.lease_s),
                    causation=recorded.envelope.id,
                )
            case EpisodeStarted() as fact:
                if lease := self.leases.get(fact.episode):
                    lease.actor = fact.actor
                    lease.deadline_ns = _deadline(recorded, lease.lease_s)
                    lease.causation = recorded.envelope.id
            case StepTaken() as fact:
                if lease := self.leases.get(fact.episode):
                    lease.steps = max(lease.steps, fact.index + 1)
            case EpisodeEnded() | EpisodeAbandoned() | EpisodeCancelled() as fact:
                self.leases.pop(fact.episode, None)
                self.cancels.pop(fact.episode, None)
            case ControlRequested(command="cancel", arguments={"episode": str(episode)}) as fact:
                if episode in self.leases:
                    self.cancels[episode] = f"{fact.author}: {fact.reason}"
            case RunResumed():
                self._begin_anew(recorded)

    def _begin_anew(self, recorded: Recorded) -> None:
        for lease in self.waiting():
            lease.deadline_ns = max(lease.deadline_ns, _deadline(recorded, lease.lease_s))

    def expired(self, now_ns: int) -> list[Lease]:
        """Leases that have run out at `now_ns`, in the order of their requests; none that waits because of a pause."""
        late = [lease for lease in self.leases.values() if lease.deadline_ns <= now_ns]
        return [lease for lease in late if lease.actor is not None] if self.pauses else late

    def all_open(self) -> list[Lease]:
        """Everything that has not ended, in the order of the requests."""
        return list(self.leases.values())

    def waiting(self) -> list[Lease]:
        """Open episodes nobody has started, in the order of their requests."""
        return [lease for lease in self.leases.values() if lease.actor is None]

    def unwanted(self) -> list[tuple[Lease, str]]:
        """Open episodes that somebody wants cancelled, and why."""
        return [(self.leases[episode], why) for episode, why in self.cancels.items()]

    def started_by(self, actor: str) -> list[Lease]:
        """Open episodes this actor started."""
        return [lease for lease in self.leases.values() if lease.actor == actor]


def _deadline(recorded: Recorded, lease_s: float) -> int:
    return recorded.envelope.occurred_ns + round(lease_s * 1e9)
