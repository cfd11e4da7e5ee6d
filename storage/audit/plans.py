"""Checks planned batches: what they name exists, is as the plan says, and was not used up before.

Invariant 3, plan before training; invariant 4, what was sampled is what is trained.
"""

from collections import Counter
from itertools import pairwise
from struct import unpack
from typing import Any

from hindcast.core.errors import PluginError
from hindcast.core.rl.advantages import EPSILON, Deviation, group_advantages
from hindcast.core.rl.algorithm import AlgorithmTraits, traits_of
from hindcast.core.rl.combined_state import ORM, POLICY, RELABELER
from hindcast.core.settings.old_names import translate
from hindcast.storage.audit.check import Check
from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.defects import ALTERED, Findings
from hindcast.storage.audit.digests import Digests
from hindcast.storage.audit.episodes import Episode, Episodes
from hindcast.storage.audit.ledger import Ledger
from hindcast.storage.audit.pairs import check_pairs
from hindcast.storage.audit.policies import Policies
from hindcast.storage.audit.relabels import Relabels
from hindcast.storage.audit.replays import check_format_terms, check_length_terms, check_replays

POSITION_BYTES = 8
DIGEST_BYTES = 8
INT32_BYTES = 4
READ_IN = {ORM: "episode.judged", RELABELER: "episode.relabeled"}
"""Where it stands what a model read that reads whole episodes."""


class Plans(Check):
    """Checks `batch.planned` and `samples.swept` against the episodes before them. Keeps only counters."""

    name = "training"

    def __init__(
        self,
        findings: Findings,
        *,
        since: int,
        episodes: Episodes,
        policies: Policies,
        ledger: Ledger,
        digests: Digests,
        relabels: Relabels,
    ) -> None:
        super().__init__(findings, since=since)
        self._relabels = relabels
        self._episodes = episodes
        self._policies = policies
        self._ledger = ledger
        self._digests = digests
        self._deviation: Deviation = "population"
        self._epsilon = EPSILON
        self._configured = False

    def configure(self, settings: dict[str, Any]) -> None:
        """Take in recorded settings of the advantages; runs from before those settings have none."""
        self._configured = True
        options = translate(settings).get("learner", {}).get("options", {})
        self._deviation = options.get("group_deviation", self._deviation)
        self._epsilon = options.get("group_epsilon", self._epsilon)

    def planned(self, event: Event, *, rests_on: int) -> list[int]:
        """Check a `batch.planned`; returns the sizes of its mini-batches. `rests_on`: position of the learner's last event before it."""
        fact = event.payload
        as_of = fact["as_of"]
        self._check_as_of(event, as_of, rests_on=rests_on)
        if as_of < event.position:
            self._digests.compare(
                fact["log_digest"],
                as_of,
                position=event.position,
                said_by=f"batch {fact['batch']}",
                event=event.type,
            )
        versions = [fact["version"], *(fact[f"{kind}_version"] for kind in ("reference", "proximal"))]
        self.require(
            fact["version"] == self._policies.newest or not self._read_all,
            event,
            "it does not start from the newest weights",
            self._policies.newest,
            fact["version"],
        )
        unpublished = [
            version for version in versions if version is not None and version > self._policies.newest
        ]
        self.require(
            not (unpublished and self._read_all),
            event,
            "it names a version that was not published",
            "",
            unpublished,
        )
        sizes = self._check_counts(event, fact)
        if fact["model"] in (ORM, RELABELER):
            self._check_readings(event, fact)
            return sizes
        self._check_samples(event, fact)
        check_replays(self, event, self._episodes)
        check_format_terms(self, event, self._episodes)
        check_length_terms(self, event)
        traits = self._traits(event, fact)
        self._check_use(event, fact, traits)
        if traits.group_advantages:
            self._check_advantages(event, fact)
        if traits.compares == "pairs":
            check_pairs(self, event, self._episodes)
        return sizes

    def _traits(self, event: Event, fact: dict[str, Any]) -> AlgorithmTraits:
        """Traits of the algorithm that planned. Without its plugin, and for the critic: nothing is used up."""
        if fact.get("model", POLICY) == POLICY:
            try:
                return traits_of(fact["algorithm"])
            except PluginError as error:
                self.defect(
                    event,
                    "the plan cannot be checked, because the plugin of its algorithm cannot be used here",
                    f"a plugin {fact['algorithm']!r} of algorithms",
                    error,
                    meaning="Install the plugin that the run used, and audit again. The event itself may be right.",
                )
        return AlgorithmTraits(reuses_episodes=True)

    def _check_as_of(self, event: Event, as_of: int, *, rests_on: int) -> None:
        """Check that no event of the learner's own is between a decision and the position it is based on."""
        self.require(
            rests_on <= as_of < event.position,
            event,
            "it was not made from all that the learner had recorded before",
            f"as of {rests_on} to {event.position - 1}",
            as_of,
        )

    def _check_counts(self, event: Event, fact: dict[str, Any]) -> list[int]:
        packed = fact["minibatches"]
        sizes = (
            list(unpack(f"<{len(packed) // INT32_BYTES}i", packed)) if len(packed) % INT32_BYTES == 0 else []
        )
        samples = [planned["samples"] for planned in fact["episodes"]]
        counts = {
            "positions": len(fact["positions"]) / POSITION_BYTES,
            "digests": len(fact["sample_digests"]) / DIGEST_BYTES,
            "mini-batches": float(sum(sizes)),
            "episodes": float(sum(samples)),
        }
        if len(set(counts.values())) != 1 or min([*sizes, *samples], default=0) < 0:
            self.defect(event, "its parts do not name equally many samples", "", counts)
            return sizes
        ends = {0} | {sum(samples[: count + 1]) for count in range(len(samples))}
        cuts = {sum(sizes[: count + 1]) for count in range(len(sizes))}
        self.require(cuts <= ends, event, "a mini-batch ends within an episode", "", sorted(cuts - ends))
        return sizes

    def _check_samples(self, event: Event, fact: dict[str, Any]) -> None:
        packed, digests, as_of = fact["positions"], fact["sample_digests"], fact["as_of"]
        positions = unpack(
            f"<{len(packed) // POSITION_BYTES}Q", packed[: len(packed) // POSITION_BYTES * POSITION_BYTES]
        )
        at = 0
        for planned in fact["episodes"]:
            positions_of_episode = positions[at : at + planned["samples"]]
            episode = self._episodes.find(planned["episode"])
            for index, position in enumerate(positions_of_episode, at):
                noted = digests[DIGEST_BYTES * index : DIGEST_BYTES * (index + 1)]
                self._check_sample(event, planned["episode"], episode, position, noted, as_of=as_of)
            rising = all(earlier < later for earlier, later in pairwise(positions_of_episode))
            self.require(
                rising,
                event,
                f"the steps of {planned['episode']} are not in their order",
                "",
                positions_of_episode,
            )
            if episode is not None and self._episodes.is_seen(episode):
                expected = self._relabels.steps_of(event, planned, otherwise=episode.trainable)
                if len(positions_of_episode) != expected:
                    self.defect(
                        event,
                        f"not all steps of {planned['episode']} are in it",
                        expected,
                        len(positions_of_episode),
                    )
            step_advantages = planned.get("step_advantages")
            if step_advantages is not None and len(step_advantages) != planned["samples"]:
                self.defect(
                    event,
                    f"advantages of the steps of {planned['episode']}",
                    planned["samples"],
                    len(step_advantages),
                )
            at += planned["samples"]

    def _check_readings(self, event: Event, fact: dict[str, Any]) -> None:
        """Check samples of a model that reads whole episodes: one event each, of an episode with the planned verdict."""
        positions = unpack(f"<{len(fact['positions']) // POSITION_BYTES}Q", fact["positions"])
        for index, (planned, position) in enumerate(zip(fact["episodes"], positions, strict=False)):
            name, episode = planned["episode"], self._episodes.find(planned["episode"])
            noted = fact["sample_digests"][DIGEST_BYTES * index : DIGEST_BYTES * (index + 1)]
            is_known = self._check_known(event, position, noted, what="reading", as_of=fact["as_of"])
            self._check_episode(event, planned, fact["as_of"])
            if is_known and (episode is None or self._ledger.read_at(position) != episode.number):
                self.defect(event, f"it trains on position {position}, which is no reading of {name}")

    def _check_known(self, event: Event, position: int, noted: bytes, *, what: str, as_of: int) -> bool:
        """Whether a sample is at the planned position, and is the one that was planned."""
        digest = self._ledger.digest_start(position)
        if digest is None or position > as_of:
            if self._read_all:
                self.defect(
                    event,
                    f"it trains on position {position}, which it cannot know",
                    f"up to {as_of}",
                    position,
                )
            return False
        if digest != noted:
            self._findings.add(
                self.name,
                position,
                f"the {what} is not the one that batch {event.payload['batch']} was planned with",
                event="step.taken" if what == "step" else READ_IN[event.payload["model"]],
                expected=f"sha256 {noted.hex()}…",
                found=f"sha256 {digest.hex()}…",
                meaning=ALTERED,
                suspects=(position, event.position),
            )
            return False
        return True

    def _check_sample(
        self, event: Event, name: str, episode: Episode | None, position: int, noted: bytes, *, as_of: int
    ) -> None:
        is_known = self._check_known(event, position, noted, what="step", as_of=as_of)
        if is_known and (episode is None or self._ledger.episode_of(position) != episode.number):
            self.defect(event, f"it trains on position {position}, which is no step of {name}")

    def _check_use(self, event: Event, fact: dict[str, Any], traits: AlgorithmTraits) -> None:
        first_uses = Counter(
            planned["episode"]
            for planned in fact["episodes"]
            if not planned.get("rehearsed")
            and planned.get("replaces") is None
            and planned.get("kept") is None
            and planned.get("relabel") is None
        )
        for planned in fact["episodes"]:
            self._check_episode(event, planned, fact["as_of"])
            if planned.get("kept") is not None:
                self._check_kept(event, planned)
        self._check_rehearsed(event, fact)
        if fact.get("model", POLICY) != POLICY:
            return  # a critic's batch uses nothing up: the policy's batch follows
        for name in first_uses:
            episode = self._episodes.find(name)
            if episode is None:
                continue
            if episode.uses or episode.swept_at:
                use_text = f"swept at {episode.swept_at}" if episode.swept_at else "trained before"
                self.defect(event, f"it trains on {name}, which was used up", "", use_text)
            is_shown = traits.compares == "pairs" and episode.origin == "demonstration"
            episode.uses += not (is_shown or traits.reuses_episodes)
        for name in fact["consumed"]:
            self._use_up(event, name)

    def _check_episode(self, event: Event, planned: dict[str, Any], as_of: int) -> None:
        name, episode = planned["episode"], self._episodes.find(planned["episode"])
        if episode is None or not self._episodes.is_seen(episode):
            return
        for origin, what in (
            ("evaluation", "an evaluation"),
            ("branch", "a continuation"),
            ("imported", "an episode of another run"),
        ):
            self.require(episode.origin != origin, event, f"it trains on {name}, which is {what}")
        if planned.get("replaces") is None:
            is_same_group = planned["group"] == episode.group
            self.require(is_same_group, event, f"group of {name}", episode.group, planned["group"])
        had_ended = episode.end == "episode.ended" and episode.ended_at <= as_of
        self.require(
            had_ended,
            event,
            f"it trains on {name}, which had not ended",
            "episode.ended",
            episode.end or "open",
        )
        rewards = [reward for _, outcome, reward in episode.verdicts if outcome != "undecided"]
        if planned["reward"] not in rewards:
            self.defect(event, f"no judge gave {name} this reward", rewards or "a verdict", planned["reward"])
        if planned.get("rehearsed"):
            was_used = episode.uses or episode.swept_at
            self.require(was_used, event, f"it rehearses {name}, which was not used up before")

    def _check_rehearsed(self, event: Event, fact: dict[str, Any]) -> None:
        """Report the advantages of rehearsed episodes, which are only imitated, as one defect of the batch."""
        advantages = {
            planned["episode"]: planned["advantage"]
            for planned in fact["episodes"]
            if planned.get("rehearsed") and planned["advantage"] != 0
        }
        if advantages:
            algorithm = fact["algorithm"]
            self.defect(
                event,
                f"algorithm {algorithm!r} gave an advantage to {len(advantages)} rehearsed episodes of batch {fact['batch']}",
                0,
                ", ".join(f"{name}: {advantage}" for name, advantage in advantages.items()),
                meaning=f"The planner of {algorithm!r} compares stored successes that are only to be imitated, or the "
                "event was altered.",
            )

    def _check_kept(self, event: Event, planned: dict[str, Any]) -> None:
        """Check an episode of an earlier phase, or a demonstration, of which some steps are trained on."""
        name, kept, episode = planned["episode"], planned["kept"], self._episodes.find(planned["episode"])
        fits = len(kept) == planned["samples"] and set(kept) <= {0, 1} and any(kept)
        self.require(fits, event, f"steps of {name} that are trained on", planned["samples"], list(kept))
        if episode is not None and self._episodes.is_seen(episode):
            was_used = episode.uses or episode.origin == "demonstration"
            self.require(was_used, event, f"it replays {name}, which was not used up before")

    def _check_advantages(self, event: Event, fact: dict[str, Any]) -> None:
        """Check advantages to the bit: every machine computes the same. Without the run's settings nothing is compared."""
        if not self._configured and not self._read_all:
            return
        groups: dict[str, dict[str, float]] = {}
        compared = [planned for planned in fact["episodes"] if not planned.get("rehearsed")]
        for planned in compared:
            reward = planned["reward"] + planned.get("format_term", 0.0) + planned.get("length_term", 0.0)
            groups.setdefault(planned["group"], {})[planned["episode"]] = reward
        expected = {
            (group, name): advantage
            for group, rewards in groups.items()
            for name, advantage in zip(rewards, self._advantages(rewards), strict=True)
        }
        for planned in compared:
            name, planned_advantage = planned["episode"], planned["advantage"]
            expected_advantage = expected[planned["group"], name]
            if planned_advantage != expected_advantage:
                algorithm = fact["algorithm"]
                self.defect(
                    event,
                    f"{algorithm!r}: the advantage of {name} does not follow from its group",
                    expected_advantage,
                    planned_advantage,
                )
                return

    def _advantages(self, rewards: dict[str, float]) -> list[float]:
        return group_advantages(list(rewards.values()), deviation=self._deviation, epsilon=self._epsilon)

    def _use_up(self, event: Event, name: str) -> None:
        episode = self._episodes.find(name)
        if episode is None:
            return
        if episode.swept_at:
            self.defect(event, f"it gives up {name} again", "", f"position {episode.swept_at}")
        elif episode.uses:
            self.defect(event, f"it gives up {name}, which was trained on")
        if self._episodes.is_seen(episode) and episode.end != "episode.ended":
            self.defect(
                event, f"it gives up {name}, which did not end", "episode.ended", episode.end or "open"
            )
        episode.swept_at = event.position

    def swept(self, event: Event, *, rests_on: int) -> None:
        """Check a `samples.swept`; `rests_on` as of a plan."""
        fact = event.payload
        if fact["as_of"] is not None:
            self._check_as_of(event, fact["as_of"], rests_on=rests_on)
        if fact["version"] != self._policies.newest and self._read_all:
            self.defect(event, "it was decided at another version", self._policies.newest, fact["version"])
        for name in fact["episodes"]:
            self._use_up(event, name)
