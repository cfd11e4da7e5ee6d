"""Looks for known faults of training systems in a log: each is no defect of the log, but of what was trained on.

| suspicion | reported when |
|---|---|
| `pinned_sampler` | `PINNED_EPISODES` training episodes in a row were sampled by one version that is `PINNED_VERSIONS` behind |
| `errors_as_failures` | an episode that an error ended has a failure as its verdict, or was recorded with no reward but 0 or less |
| `lost_prompts` | an episode requested before a resume has no end, although `LATER_ENDS` later ones have |
| `truncated_failures` | a limit cut at least `CUT_EPISODES` of the failures and `CUT_SHARE` of them (see below) |
| `token_mismatch` | a prompt repeats the prompt before it, but not the tokens that were sampled then |

A step limit belongs to the task of a run of ours, and its policy can learn to keep it: only answers that `max_tokens` cut count
there, and only in batches that were trained on. Of an imported run, both limits count, unless its log says that it did not train
on the episode. Token ids are compared only in imported episodes that recorded them: our runs train each step on its own prompt.
"""

from typing import Any

import msgspec

from hindcast.storage.audit.decoder import Event

INT32_BYTES = 4
PINNED_EPISODES = 20
PINNED_VERSIONS = 5
LATER_ENDS = 50
CUT_EPISODES = 5
CUT_SHARE = 0.1
IMPORTED = "imported"
TRAINING = ("online", IMPORTED)
ADVICE = {
    "pinned_sampler": "The sampler did not load new weights, so training was off-policy. Check how it gets them before the next "
    "run.",
    "errors_as_failures": "The policy was punished for what it did not do. Leave these episodes out of training: import marks them "
    "undecided.",
    "lost_prompts": "The resume dropped these prompts, so the data are not those that were planned. Request them again.",
    "truncated_failures": "A limit decided these failures, not the answers. Raise the limit, or leave the episodes out of training.",
    "token_mismatch": "Training on the joined text would use tokens that were never sampled. Train on the recorded ids, and keep "
    "answers in the prompt as they were sampled.",
}
"""What a suspicion means, and what to do, by its name."""


class Suspicion(msgspec.Struct, frozen=True, kw_only=True):
    """A probable fault of training, and where it shows first."""

    name: str
    position: int
    """Position of the first event that shows it."""
    episodes: int
    """Number of episodes concerned."""
    what: str
    advice: str


class Suspicions:
    """Follows the log for faults of training; keeps a few entries for each training episode."""

    def __init__(self) -> None:
        self._origins: dict[str, str] = {}
        """Origin of each requested training episode."""
        self._requested: dict[str, int] = {}
        """Position of the request of each episode that has not ended."""
        self._resumed_at = 0
        self._ended_since = 0
        """Episodes requested after the last resume that have ended."""
        self._failed: dict[str, bool] = {}
        """Whether the first verdict on an episode is a failure."""
        self._cut: set[str] = set()
        """Episodes with an answer that the token limit cut."""
        self._broken: dict[str, int] = {}
        """Position of the end of each episode that an error ended."""
        self._last: dict[str, tuple[bytes, bytes]] = {}
        """Prompt and answer of the last step of each open imported episode."""
        self._newest = self._version = -1
        self._in_a_row = 0
        self._failures = 0
        """Failures that were trained on."""
        self._first: dict[str, int] = {}
        self._episodes: dict[str, set[str]] = {name: set() for name in ADVICE}
        self._says: dict[str, str] = {}

    def take(self, event: Event) -> None:
        """Take in the next event."""
        fact = event.payload
        match event.type:
            case "episode.requested":
                self._requested[fact["episode"]] = event.position
                if fact["origin"] in TRAINING:
                    self._origins[fact["episode"]] = fact["origin"]
            case "step.taken" if fact["episode"] in self._origins:
                self._stepped(event, fact)
            case "episode.ended" | "episode.abandoned" | "episode.cancelled":
                self._ended(event, fact)
            case "episode.judged":
                self._judged(event, fact)
            case "weights.published" if fact["model"] == "policy":
                self._newest = max(self._newest, fact["version"])
            case "batch.planned" if fact.get("model", "policy") == "policy":
                for planned in fact["episodes"]:
                    self._trained(event, planned["episode"])
            case "run.resumed":
                self._resumed_at, self._ended_since = event.position, 0

    def _stepped(self, event: Event, fact: dict[str, Any]) -> None:
        episode, prompt, answer = fact["episode"], fact["prompt_ids"], fact["action_ids"]
        if self._origins[episode] != IMPORTED:
            if fact["action"] is None and len(answer) >= INT32_BYTES * fact["sampling"]["max_tokens"]:
                self._cut.add(episode)
            return
        previous_step = self._last.get(episode)
        if previous_step is not None and prompt.startswith(previous_step[0]):
            earlier_tokens = previous_step[0] + previous_step[1]
            if len(prompt) >= len(earlier_tokens) and not prompt.startswith(earlier_tokens):
                self._note(
                    "token_mismatch", event, episode, "the next prompt has other tokens than were sampled"
                )
        if any(fact["logprobs"]):  # else the ids are the import's own
            self._last[episode] = prompt, answer

    def _ended(self, event: Event, fact: dict[str, Any]) -> None:
        episode = fact["episode"]
        self._last.pop(episode, None)
        if self._requested.pop(episode, 0) > self._resumed_at:
            self._ended_since += 1
        if event.type != "episode.ended":
            self._broken[episode] = event.position
            return
        origin = self._origins.get(episode)
        if origin is None:
            return
        probes = fact["evidence"]["probes"] if origin == IMPORTED else {}
        if origin == IMPORTED:
            self._imported(event, fact, probes)
        newest = probes.get("trainer_version")
        if isinstance(newest, int):
            self._newest = max(self._newest, newest)
        self._sampled(event, episode, fact["policy_versions"][1])

    def _imported(self, event: Event, fact: dict[str, Any], probes: dict[str, Any]) -> None:
        episode = fact["episode"]
        scores = probes.get("scores")
        score = next(iter(scores.values()), None) if isinstance(scores, dict) else None
        value = score.get("value") if isinstance(score, dict) else None
        if probes.get("trained") is False or not isinstance(value, int | float):
            return
        if probes.get("error"):
            if value <= 0:
                self._note(
                    "errors_as_failures", event, episode, "an error ended it, and its reward is 0 or less"
                )
        elif value <= 0:
            self._failures += 1
            if fact["reason"] == "max_steps":
                self._note(
                    "truncated_failures", event, episode, "a limit ended it, and its reward is 0 or less"
                )

    def _sampled(self, event: Event, episode: str, version: int) -> None:
        """Count training episodes in a row that one version sampled. A newer version may begin at any time."""
        if version < 0:
            return
        if version > self._version:
            self._version, self._in_a_row = version, 0
        self._in_a_row += 1
        if self._in_a_row >= PINNED_EPISODES and self._newest - self._version >= PINNED_VERSIONS:
            self._note(
                "pinned_sampler",
                event,
                episode,
                f"version {version} sampled it, when {self._newest} was the newest",
            )

    def _judged(self, event: Event, fact: dict[str, Any]) -> None:
        episode, failed = fact["episode"], fact["judgment"]["outcome"] == "failure"
        if episode in self._broken and failed:
            self._note("errors_as_failures", event, episode, "it was given up, and judged a failure")
        if episode in self._origins:
            self._failed.setdefault(episode, failed)

    def _trained(self, event: Event, episode: str) -> None:
        if not self._failed.pop(episode, False):
            return
        self._failures += 1
        if episode in self._cut:
            self._note(
                "truncated_failures",
                event,
                episode,
                "`max_tokens` cut an answer, and it is trained on as a failure",
            )

    def _note(self, name: str, event: Event, episode: str, what: str) -> None:
        self._first.setdefault(name, event.position)
        self._says.setdefault(name, f"episode {episode}: {what}")
        self._episodes[name].add(episode)

    def report(self) -> tuple[Suspicion, ...]:
        """The suspicions up to here, by their first position."""
        first, says = dict(self._first), dict(self._says)
        counts = {name: len(episodes) for name, episodes in self._episodes.items()}
        cut = counts["truncated_failures"]
        if cut < CUT_EPISODES or cut < CUT_SHARE * self._failures:
            counts["truncated_failures"] = 0
        lost = {name: at for name, at in self._requested.items() if at < self._resumed_at}
        if lost and self._ended_since >= LATER_ENDS:
            name = min(lost, key=lambda key: lost[key])
            counts["lost_prompts"], first["lost_prompts"] = len(lost), lost[name]
            says["lost_prompts"] = (
                f"episode {name}: it was requested before the resume at position {self._resumed_at} and has no end"
            )
        return tuple(
            Suspicion(
                name=name, position=first[name], episodes=counts[name], what=says[name], advice=ADVICE[name]
            )
            for name in sorted(first, key=lambda key: first[key])
            if counts[name]
        )
