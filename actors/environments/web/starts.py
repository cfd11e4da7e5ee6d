"""Checks that the episodes of a task really began alike: a pure fold of the log.

A task that declares `per_episode` states that each of its episodes begins in the same state. The check compares the
first observation, or what the task's `fingerprint` selects. An episode that began otherwise was played on a site that
others had changed, or whose first page changes by itself. It is still compared with the others in training.
"""

import msgspec

from hindcast.actors.environments.web.tasks import ENVIRONMENT
from hindcast.events.catalogue import (
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeRequested,
    StepTaken,
)


class FirstStart(msgspec.Struct, frozen=True):
    """How a task began in its first observed episode."""

    episode: str
    digest: str


class OpenVisit(msgspec.Struct, frozen=True):
    """One open episode."""

    task: str
    name: str
    selected: bool
    """Whether a fingerprint selector is compared; else the whole first page is."""


class Starts(msgspec.Struct):
    """Differences between the starts of each task; `apply` takes every event in order."""

    visits: dict[str, OpenVisit] = {}
    first: dict[str, FirstStart] = {}
    """First start of each task, by the task's id."""
    unlike: dict[str, int] = {}
    """Task's name -> number of its episodes that began otherwise."""

    def apply(self, fact: object) -> str | None:
        """Apply an event; returns a message at a task's first differing start."""
        match fact:
            case EpisodeRequested(episode=episode, task=task):
                if task.environment == ENVIRONMENT and task.goal.get("resets") == "per_episode":
                    name = str(task.goal.get("name", task.id))
                    self.visits[episode] = OpenVisit(task.id, name, bool(task.goal.get("fingerprint")))
            case StepTaken(episode=episode, index=0, observation_digest=digest):
                visit = self.visits.get(episode)
                if visit is not None and not visit.selected:
                    return self._compare(episode, visit, digest)
            case EpisodeEnded(episode=episode, evidence=evidence):
                visit = self.visits.pop(episode, None)
                if visit is not None and visit.selected:
                    return self._compare(episode, visit, str(evidence.probes.get("start", "")))
            case EpisodeAbandoned(episode=episode) | EpisodeCancelled(episode=episode):
                self.visits.pop(episode, None)
        return None

    def _compare(self, episode: str, visit: OpenVisit, digest: str) -> str | None:
        first = self.first.setdefault(visit.task, FirstStart(episode, digest))
        if first.digest == digest:
            return None
        self.unlike[visit.name] = self.unlike.get(visit.name, 0) + 1
        if self.unlike[visit.name] > 1:
            return None
        compared = "what its fingerprint selects" if visit.selected else "its first page"
        return (
            f"{visit.name}: {episode} did not begin like {first.episode} ({compared} differs), though resets = 'per_episode' says so. "
            "Its reset leaves something behind, others change the site meanwhile, or the page changes by itself: then name what "
            "does not with fingerprint"
        )
