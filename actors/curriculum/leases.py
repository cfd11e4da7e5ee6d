"""Which episodes are open, and since which event: the fold behind "every episode ends once" (invariant 2).

A lease begins with the request and again with the start. An actor ends every episode that it started within
`actors.episode_timeout_s`, which is shorter than the lease: so an actor that lives keeps its leases without renewing them,
and those of one that died expire. The fold uses no clock: the times in events are annotations,
and a changed clock would end every lease at once. `LeaseTimer` measures how long its process has observed a lease, on a
monotonic clock; a restarted process grants each lease in full again. A request that waited during a pause or a system
stop is not late: resuming the run, or the end of a pause, restarts its lease.

An author asks for a pause and later resumes it: the curriculum when the log or a disk is nearly full, or a person. A
person may lift another author's pause (`arguments: of`). While any pause holds, no episode is requested or begun, and no
request expires. Running episodes are played to their end.
"""

from dataclasses import dataclass, field

import msgspec

from hindcast.events.catalogue import (
    ControlRequested,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeRequested,
    EpisodeStarted,
    RunResumed,
    StepTaken,
)
from hindcast.events.envelope import Recorded


@dataclass(slots=True)
class Pauses:
    """The pauses in force. Only `apply` changes them."""

    reasons: dict[str, str] = field(default_factory=dict)
    """Reasons by author."""

    def __bool__(self) -> bool:
        return bool(self.reasons)

    def apply(self, recorded: Recorded) -> None:
        """Fold one event; families other than `control` change nothing."""
        match recorded.fact:
            case ControlRequested(command="pause") as fact:
                self.reasons[fact.author] = fact.reason
            case ControlRequested(command="resume") as fact:
                self.reasons.pop(fact.arguments.get("of", fact.author), None)


FAMILIES = frozenset({"run", "request", "episode", "step", "episode_end", "control"})
"""Families of events that a lease book must read."""


class Lease(msgspec.Struct):
    """The time limit of one episode that was requested or started and has not ended."""

    episode: str
    task_id: str
    lease_s: float
    """Time that it has once it is started, in seconds."""
    request_lease_s: float
    """Time that it has until it is started, in seconds."""
    since: int
    """Position of the event that the lease runs from: the request, the start, or what restarted it."""
    causation: str
    """Id of the event that the lease runs from: the request or the start."""
    actor: str | None = None
    """The actor that started it; None while it waits."""
    steps: int = 0

    @property
    def limit_s(self) -> float:
        """Time that it has from `since` on, in seconds."""
        return self.request_lease_s if self.actor is None else self.lease_s

    def describe_expiry(self) -> str:
        """The expiry in words, for `episode.abandoned.detail`."""
        if self.actor is None:
            return f"no actor started it within {self.limit_s:g} s"
        return f"{self.actor} started it and did not end it within {self.limit_s:g} s"


@dataclass(slots=True)
class LeaseBook:
    """All open episodes. Deterministic; only `apply` changes it."""

    leases: dict[str, Lease] = field(default_factory=dict)
    """Leases by episode, in the order of their requests."""
    pauses: Pauses = field(default_factory=Pauses)
    cancels: dict[str, str] = field(default_factory=dict)
    """Open episodes with a request to cancel them, and its reason."""

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
                    request_lease_s=fact.request_lease_s or fact.lease_s,
                    since=recorded.position,
                    causation=recorded.envelope.id,
                )
            case EpisodeStarted() as fact:
                if lease := self.leases.get(fact.episode):
                    lease.actor = fact.actor
                    lease.since = recorded.position
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
            lease.since = recorded.position

    def all_open(self) -> list[Lease]:
        """All open episodes, in the order of their requests."""
        return list(self.leases.values())

    def waiting(self) -> list[Lease]:
        """Open episodes that no actor has started, in the order of their requests."""
        return [lease for lease in self.leases.values() if lease.actor is None]

    def cancel_requests(self) -> list[tuple[Lease, str]]:
        """Open episodes with a request to cancel them, and its reason."""
        return [(self.leases[episode], reason) for episode, reason in self.cancels.items()]

    def started_by(self, actor: str) -> list[Lease]:
        """Open episodes that this actor started."""
        return [lease for lease in self.leases.values() if lease.actor == actor]


class LeaseTimer:
    """How long one process has observed each open lease, in seconds of a monotonic clock that the caller reads."""

    def __init__(self) -> None:
        self._observed: dict[str, tuple[int, float]] = {}
        """By episode: the event that its lease runs from, and when this process first saw it."""

    def expired(self, book: LeaseBook, *, now_s: float) -> list[Lease]:
        """Leases observed for their full time, in the order of their requests; none that waits because of a pause."""
        observed, self._observed = self._observed, {}
        expired_leases = []
        for lease in book.all_open():
            observation = observed.get(lease.episode)
            if observation is None or observation[0] != lease.since:
                observation = (lease.since, now_s)
            self._observed[lease.episode] = observation
            is_paused = bool(book.pauses) and lease.actor is None
            if now_s - observation[1] >= lease.limit_s and not is_paused:
                expired_leases.append(lease)
        return expired_leases
