"""Whether the episodes of a task really began alike: a pure fold of the log.

A task that declares `per_episode` says that each of its episodes begins in the same state. What its start showed tells: the
first observation, or what its `fingerprint` selects. An episode that began otherwise was played on a site that others had
changed (or whose first page changes by itself), and is compared with the others all the same.
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
    """How a task began when it was first seen to."""

    episode: str
    digest: str


class OpenVisit(msgspec.Struct, frozen=True):
    """One open episode."""

    task: str
    name: str
    selected: bool
    """Whether a selector says what tells; else the whole first page does."""


class Starts(msgspec.Struct):
    """`apply` takes every fact in order."""

    visits: dict[str, OpenVisit] = {}
    first: dict[str, FirstStart] = {}
    """By the task's id."""
    unlike: dict[str, int] = {}
    """Task's name -> its episodes that began otherwise."""

    def apply(self, fact: object) -> str | None:
        """Take in a fact; in words, the first start of a task that differs."""
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
        told = "what its fingerprint selects" if visit.selected else "its first page"
        return (
            f"{visit.name}: {episode} did not begin like {first.episode} ({told} differs), though resets = 'per_episode' says so. "
            "Its reset leaves something behind, others change the site meanwhile, or the page changes by itself: then name what "
            "does not with fingerprint"
        )
