"""Checks relabels: each once per episode and relabeler, of ended episodes, cut and weighted as the episode allows."""

from typing import Any

from hindcast.storage.audit.check import Check
from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.defects import Findings
from hindcast.storage.audit.episodes import INT32_BYTES, Episode, Episodes
from hindcast.storage.audit.ledger import Ledger


class Relabels(Check):
    """Follows `episode.relabeled`."""

    name = "relabel"

    def __init__(self, findings: Findings, *, since: int, episodes: Episodes, ledger: Ledger) -> None:
        super().__init__(findings, since=since)
        self._episodes = episodes
        self._ledger = ledger
        self._relabeled: set[tuple[str, str]] = set()
        """Pairs of episode and relabeler with version."""
        self._cuts: dict[str, tuple[range, ...]] = {}
        """By episode: number of steps that each goal's demonstration may have, of its first relabel."""

    def relabeled(self, event: Event) -> None:
        """`episode.relabeled`."""
        fact = event.payload
        name, relabeler = fact["episode"], fact["relabeler"]
        episode = self._episodes.spoken_of(event, name)
        if episode.task and fact["task_id"] != episode.task:
            self.defect(event, "it names another task than the request", episode.task, fact["task_id"])
        key = f"{relabeler['name']} {relabeler['version']}"
        if (name, key) in self._relabeled:
            self.defect(event, f"relabeler {key} has relabeled {name} before")
        self._relabeled.add((name, key))
        self._cuts.setdefault(name, tuple(_lengths(relabel) for relabel in fact["relabels"]))
        self.consulted(event)
        if fact["reading"] is not None:
            self._check_reading(event, episode, fact["reading"])
        if fact["failure"] and fact["relabels"]:
            self.defect(event, f"it reports a failure for {name}, and names goals all the same")
        for index, relabel in enumerate(fact["relabels"]):
            steps = episode.steps if self._episodes.is_seen(episode) else relabel["until_step"]
            wrong = _wrong(relabel, steps)
            if wrong:
                self.defect(event, f"goal {index} of {name}: {wrong}")

    def _check_reading(self, event: Event, episode: Episode, reading: dict[str, Any]) -> None:
        """Check what the run's own model read and wrote: complete tokens, and written ones exactly if a version was asked."""
        self._ledger.mark_reading(episode.number)
        for field in ("prompt_ids", "written_ids", "lesson_ids"):
            is_complete = len(reading[field]) % INT32_BYTES == 0
            self.require(is_complete, event, f"bytes of {field}", "whole int32 numbers", len(reading[field]))
        self.require(bool(reading["prompt_ids"]), event, "it read nothing")
        was_asked = reading["model_version"] is not None
        self.require(
            was_asked == bool(reading["written_ids"]),
            event,
            "written tokens and their model version must be recorded together",
        )
        is_consistent = was_asked or not (event.payload["relabels"] or reading["dropped"])
        self.require(is_consistent, event, "it names or drops goals, and no model was asked")
        self.require(reading["dropped"] >= 0, event, "goals dropped", "0 or more", reading["dropped"])

    def steps_of(self, event: Event, planned: dict[str, Any], *, otherwise: int) -> int:
        """Number of steps that a planned episode must have in the batch; also checks the fields of a relabeled one."""
        name, weights = planned["episode"], planned.get("step_weights")
        goal_index: int | None = planned.get("relabel")
        if goal_index is None:
            self.require(weights is None, event, f"steps of {name} have weights, though it was not relabeled")
            return otherwise
        cuts = self._cuts.get(name, ())
        if not 0 <= goal_index < len(cuts):
            self.defect(
                event,
                f"it trains on goal {goal_index} of {name}, which no relabeler found",
                len(cuts),
                goal_index,
            )
            return int(planned["samples"])
        lengths = cuts[goal_index]
        sound = weights is not None and len(weights) in lengths and min(weights) >= 0 < max(weights)
        expected = f"{' or '.join(map(str, lengths))}, none below 0"
        self.require(sound, event, f"weights of the steps of {name}", expected, weights)
        return len(weights) if weights is not None and sound else lengths[0]


def _lengths(relabel: dict[str, Any]) -> range:
    """Numbers of steps that a demonstration of a goal may have: one more if there is a step that stops it."""
    until_step, stop = relabel["until_step"], relabel.get("stop")
    return range(until_step, until_step + (1 if stop is None else 2))


def _wrong(relabel: dict[str, Any], steps: int) -> str:
    """What is wrong with a goal; empty: nothing."""
    until_step, labels, prompts = relabel["until_step"], relabel["relevance"], relabel["prompts"]
    stop = relabel.get("stop")
    if not 1 <= until_step <= steps:
        return f"it cuts {steps} steps at {until_step}"
    if len(labels) != until_step or len(prompts) != until_step:
        return f"it has {len(labels)} labels and {len(prompts)} prompts for {until_step} steps"
    if not all(0.0 <= label <= 1.0 for label in labels):
        return "a label is not in [0, 1]"
    if any(
        prompt["head"] < 0 or prompt["tail"] < 0 or len(prompt["ids"]) % INT32_BYTES
        for prompt in (*prompts, *([stop["prompt"]] if stop else ()))
    ):
        return "a prompt keeps less than nothing, or is cut within a number"
    if stop is not None and until_step == steps:
        return "it stops after the last step"
    if stop is not None and (not stop["action_ids"] or len(stop["action_ids"]) % INT32_BYTES):
        return "the answer that stops it has no tokens, or is cut within a number"
    return ""
