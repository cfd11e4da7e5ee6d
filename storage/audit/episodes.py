"""Checks episodes: requested once, started once, steps without a gap by the actor that started it, ended once, judged when ended.

Invariant 2, every episode ends once. Episodes still open at the end of the log are counted, and are no defects. After a
misplaced fact, later ones are checked from there, so that one lost event causes one defect.
"""

from collections import Counter
from math import isfinite
from struct import unpack
from sys import intern
from typing import Any

from hindcast.storage.audit.check import Check
from hindcast.storage.audit.constraints import wrong_constraint
from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.defects import Findings
from hindcast.storage.audit.ledger import Ledger
from hindcast.storage.audit.policies import Policies
from hindcast.storage.audit.tasks import Tasks

INT32_BYTES = 4
NO_VERSION = -1
"""Version of a demonstrator's tokens."""
Verdict = tuple[str, str, float]
"""Judge and version, outcome, reward."""
JUDGED_AS = ("success", "failure")


class Episode:
    """One attempt, as far as the log has it: about 400 bytes."""

    __slots__ = (
        "continues_at", "end", "ended_at", "group", "high", "low", "number", "origin", "owner", "requested_at", "started_at",
        "steps", "swept_at", "task", "trainable", "unparsable", "uses", "verdicts",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.requested_at = 0
        self.task = ""
        self.group = ""
        self.origin = ""
        self.started_at = 0
        self.owner = ""
        """Incarnation of the actor that started it."""
        self.steps = 0
        self.continues_at = 0
        """Index of its first own step: those before repeat another episode."""
        self.trainable = 0
        """Own steps with at least one token."""
        self.unparsable = False
        """Whether one of its answers was no action."""
        self.low: int | None = None
        self.high: int | None = None
        self.end = ""
        """Type of its final event."""
        self.ended_at = 0
        self.verdicts: tuple[Verdict, ...] = ()
        self.uses = 0
        """Batches that it was trained in and that used it up; cloning does not use it up."""
        self.swept_at = 0


class Episodes(Check):
    """Follows every episode through its events, and checks each event against its predecessors."""

    name = "episode"

    def __init__(
        self, findings: Findings, *, since: int, tasks: Tasks, ledger: Ledger, policies: Policies
    ) -> None:
        super().__init__(findings, since=since)
        self._tasks = tasks
        self._ledger = ledger
        self._policies = policies
        self._episodes: dict[str, Episode] = {}
        self.ends: Counter[str] = Counter()
        self._verdicts: dict[Verdict, Verdict] = {}
        """One object per distinct verdict, shared by all episodes."""
        self._continued: set[int] = set()
        """Numbers of episodes that a derived run continues with copies of the parent's events."""

    def find(self, name: str) -> Episode | None:
        """An episode that the log has named."""
        return self._episodes.get(name)

    def is_known(self, name: str) -> bool:
        """Whether the log has named the episode."""
        return name in self._episodes

    def is_seen(self, episode: Episode) -> bool:
        """Whether all its events were read."""
        return self._read_all or episode.requested_at > self._since

    def _episode_of(self, event: Event, name: str) -> Episode:
        """The episode of an event; one that was never requested is a defect once."""
        episode = self._episodes.get(name)
        if episode is None:
            if self._read_all:
                self.defect(event, f"episode {name} was never requested")
            episode = self._episodes[name] = Episode(len(self._episodes))
        return episode

    def forked(self, *, derived: bool) -> None:
        """`run.forked`: a derived run (`hindcast without`) continues the parent's open episodes under a copied actor's name."""
        if derived:
            self._continued = {
                episode.number
                for episode in self._episodes.values()
                if episode.started_at and not episode.end
            }

    def _is_owner(self, event: Event, episode: Episode) -> bool:
        """Whether the actor that started the episode recorded the event."""
        if event.incarnation == episode.owner:
            return True
        if episode.number not in self._continued or not episode.owner.startswith(f"{event.producer}."):
            return False
        self._continued.discard(episode.number)
        episode.owner = intern(event.incarnation)
        return True

    def requested(self, event: Event) -> None:
        """`episode.requested`."""
        self.by_role(event, "curriculum")
        fact = event.payload
        group = self._tasks.requested(event)
        name = fact["episode"]
        earlier = self._episodes.get(name)
        if earlier is not None:
            self.defect(
                event, f"episode {name} was requested before, or ran before it", "", earlier.requested_at
            )
            return
        episode = self._episodes[name] = Episode(len(self._episodes))
        episode.requested_at = event.position
        episode.task, episode.group, episode.origin = group.task, group.name, group.origin
        episode.continues_at = (fact.get("branch") or {}).get("step", 0)
        self._about(event, name)

    def _about(self, event: Event, name: str) -> None:
        if event.entity != name:
            self.defect(event, "its envelope is about something else", name, event.entity)

    def started(self, event: Event) -> None:
        """`episode.started`."""
        fact = event.payload
        name = fact["episode"]
        episode = self._episode_of(event, name)
        self._about(event, name)
        self.by_role(event, "actor")
        self.require(
            fact["actor"] == event.producer,
            event,
            "it names another actor than its producer",
            fact["actor"],
            event.producer,
        )
        if episode.started_at:
            self.defect(event, f"episode {name} was started before", "", f"position {episode.started_at}")
        if episode.end == "episode.ended":
            self.defect(event, f"episode {name} had ended already", "", f"position {episode.ended_at}")
        episode.started_at, episode.owner = event.position, intern(event.incarnation)

    def stepped(self, event: Event) -> None:
        """`step.taken`."""
        fact = event.payload
        name = fact["episode"]
        episode = self._episode_of(event, name)
        self._ledger.mark_step(episode.number)
        if event.entity != name:
            self._about(event, name)
        if not self._is_owner(event, episode):
            if self.is_seen(episode):
                self.defect(
                    event,
                    f"a step of {name} by who did not start it",
                    episode.owner or "episode.started before it",
                    event.incarnation,
                )
            episode.owner = intern(event.incarnation)
        if fact["index"] != episode.steps and self.is_seen(episode):
            self.defect(event, f"a step of {name} is missing or out of order", episode.steps, fact["index"])
        episode.steps = fact["index"] + 1
        episode.unparsable |= fact["action"] is None
        if episode.end == "episode.ended":
            self.defect(event, f"a step of {name} after its end", "", f"end at position {episode.ended_at}")
        self._check_tokens(event, fact, episode)
        self._check_screenshot(event, fact.get("screenshot"))
        self._check_pictures(event, fact)

    def _check_pictures(self, event: Event, fact: dict[str, Any]) -> None:
        """Check that the policy read the step's own screenshot, and that it fits into the prompt."""
        pictures, screenshot = fact.get("pictures") or (), fact.get("screenshot") or {}
        for picture in pictures:
            is_own_screenshot = (picture["blob"], "before") == (
                screenshot.get("image"),
                screenshot.get("when"),
            )
            self.require(
                is_own_screenshot,
                event,
                "the policy read a picture that is not the screenshot of the step's page",
            )
        standing = sum(picture["tokens"] for picture in pictures)
        room = len(fact["prompt_ids"]) // INT32_BYTES
        self.require(standing <= room, event, "pictures take more tokens than the prompt has")

    def _check_screenshot(self, event: Event, screenshot: dict[str, Any] | None) -> None:
        """Check that a screenshot has either an image with a size, or a reason why it is missing."""
        if screenshot is None:
            return
        if screenshot["image"] is None:
            self.require(bool(screenshot["missing"]), event, "a screenshot is missing without a reason")
            return
        sized = screenshot["width"] > 0 and screenshot["height"] > 0 and screenshot["scale"] > 0
        self.require(
            sized and not screenshot["missing"], event, "a screenshot is there and missing, or has no size"
        )

    def _check_tokens(self, event: Event, fact: dict[str, Any], episode: Episode) -> None:
        actions, logprobs, versions = fact["action_ids"], fact["logprobs"], fact["versions"]
        if len(actions) % INT32_BYTES or len(fact["prompt_ids"]) % INT32_BYTES:
            self.defect(event, "its token ids are cut within a number")
            return
        if not len(actions) == len(logprobs) == len(versions):
            counted = [len(packed) // INT32_BYTES for packed in (actions, logprobs, versions)]
            self.defect(
                event, "tokens, log-probabilities and versions are not equally many", counted[0], counted
            )
            return
        if not actions:
            low = high = NO_VERSION
        else:
            episode.trainable += fact["index"] >= episode.continues_at
            low = high = int.from_bytes(versions[:INT32_BYTES], "little", signed=True)
            if versions != versions[:INT32_BYTES] * (len(versions) // INT32_BYTES):
                numbers = unpack(f"<{len(versions) // INT32_BYTES}i", versions)
                low, high = min(numbers), max(numbers)
            if not isfinite(sum(unpack(f"<{len(logprobs) // INT32_BYTES}f", logprobs))):
                self.defect(event, "a log-probability is not finite")
            wrong = wrong_constraint(fact)
            if wrong is not None:
                self.defect(event, wrong)
            self._check_versions(event, low, high, episode.origin)
        if event.policy_version is not None and event.policy_version != high:
            self.defect(event, "its envelope names another policy version", high, event.policy_version)
        episode.low = low if episode.low is None else min(low, episode.low)
        episode.high = high if episode.high is None else max(high, episode.high)

    def _check_versions(self, event: Event, low: int, high: int, origin: str) -> None:
        if origin == "imported":  # the versions are those of the run that it was imported from
            self.require(low >= NO_VERSION, event, "a policy version", f"{NO_VERSION} or more", low)
            return
        if low == NO_VERSION == high:
            self.require(origin != "online", event, "no policy sampled it", "a policy version", NO_VERSION)
            return
        unknown = high > self._policies.newest and self._read_all and not self._policies.of_parent
        if low < 0 or unknown:
            self.defect(
                event,
                "it was sampled from a policy that was not published",
                f"0 to {self._policies.newest}",
                f"{low} to {high}",
            )
        self._policies.sampled(event, high)

    def _end(self, event: Event) -> Episode:
        fact = event.payload
        name = fact["episode"]
        episode = self._episode_of(event, name)
        self._about(event, name)
        self.ends[event.type] += 1
        if episode.end:
            self.defect(
                event, f"episode {name} has an end already", "", f"{episode.end} at {episode.ended_at}"
            )
        if episode.task and fact["task_id"] != episode.task:
            self.defect(event, "it names another task than the request", episode.task, fact["task_id"])
        return episode

    def ended(self, event: Event) -> None:
        """`episode.ended`."""
        episode, fact = self._end(event), event.payload
        name = fact["episode"]
        self.require(
            fact["actor"] == event.producer,
            event,
            "it names another actor than its producer",
            fact["actor"],
            event.producer,
        )
        if not self._is_owner(event, episode) and self.is_seen(episode):
            self.defect(
                event,
                f"{name} was ended by who did not start it",
                episode.owner or "episode.started",
                event.incarnation,
            )
        if self.is_seen(episode):
            self.require(
                fact["steps"] == episode.steps, event, f"steps of {name}", episode.steps, fact["steps"]
            )
            sampled, recorded = [episode.low, episode.high], fact["policy_versions"]
            if episode.steps:
                self.require(
                    sampled == recorded,
                    event,
                    "its steps were sampled from other versions",
                    sampled,
                    recorded,
                )
        self._check_screenshot(event, fact.get("screenshot"))
        episode.end, episode.ended_at = intern(event.type), event.position

    def lost(self, event: Event) -> None:
        """`episode.abandoned`, `episode.cancelled`."""
        episode, fact = self._end(event), event.payload
        steps = fact.get("steps", 0)
        if steps > episode.steps and self.is_seen(episode):
            self.defect(event, f"steps of {fact['episode']}", f"{episode.steps} at most", steps)
        if not episode.end:
            episode.end, episode.ended_at = intern(event.type), event.position

    def judged(self, event: Event) -> None:
        """`episode.judged`."""
        fact = event.payload
        name, judge, judgment = fact["episode"], fact["judge"], fact["judgment"]
        episode = self.spoken_of(event, name)
        if episode.task and fact["task_id"] != episode.task:
            self.defect(event, "it names another task than the request", episode.task, fact["task_id"])
        key = f"{judge['name']} {judge['version']}"
        if any(earlier_key == key for earlier_key, _, _ in episode.verdicts):
            self.defect(event, f"judge {key} has judged {name} before")
        outcome, reward = judgment["outcome"], float(judgment["reward"])
        allowed = 0.0 <= reward <= 1.0 if outcome in JUDGED_AS else reward == 0.0
        self.require(allowed, event, f"the reward of {name}", "in [0, 1], and 0 when undecided", reward)
        self._reading(event, episode, fact["reading"])
        self.consulted(event)
        if outcome == "failure":
            self._tasks.note_failure(episode.task)
        verdict = (key, outcome, reward)
        episode.verdicts += (self._verdicts.setdefault(verdict, verdict),)

    def _reading(self, event: Event, episode: Episode, reading: dict[str, Any] | None) -> None:
        """Check a language model's prompt: complete tokens, and a probability exactly if a model answered."""
        if reading is None:
            return
        self._ledger.mark_reading(episode.number)
        ids, probability = reading["prompt_ids"], reading["probability"]
        is_complete = len(ids) > 0 and len(ids) % INT32_BYTES == 0
        self.require(is_complete, event, "bytes of prompt ids", "whole int32 numbers", len(ids))
        likely = probability is None or 0.0 <= probability <= 1.0
        self.require(likely, event, "the probability of success", "in [0, 1]", probability)
        spoken = (reading["model_version"] is None) == (probability is None)
        self.require(spoken, event, "a probability and its model version must be recorded together")

    def spoken_of(self, event: Event, name: str) -> Episode:
        """The episode of a verdict or relabel, which must have ended."""
        episode = self._episode_of(event, name)
        if episode.end != "episode.ended" and self.is_seen(episode):
            self.defect(
                event, f"a verdict on {name}, which did not end", "episode.ended", episode.end or "open"
            )
            episode.end = episode.end or "episode.ended"
        if event.entity != name and not event.entity.startswith(f"{name}."):
            self.defect(event, "its envelope is about something else", name, event.entity)
        return episode

    def disputed(self, event: Event) -> None:
        """`verdict.disputed`."""
        name, judge = event.payload["episode"], event.payload["judge"]
        episode = self._episode_of(event, name)
        key = f"{judge['name']} {judge['version']}"
        if self._read_all and all(given_key != key for given_key, _, _ in episode.verdicts):
            self.defect(event, f"it disputes a verdict of {key} on {name} which was never given")

    @property
    def named_count(self) -> int:
        """Number of episodes that the log has named."""
        return len(self._episodes)

    def open_at_the_end(self) -> tuple[int, int]:
        """Episodes without an end, and ended ones without a verdict."""
        states = self._episodes.values()
        waiting = sum(1 for episode in states if episode.end == "episode.ended" and not episode.verdicts)
        return sum(1 for episode in states if not episode.end), waiting
