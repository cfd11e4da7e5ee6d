"""Checks evaluations: one at a time, numbered, of tasks that are never trained on, with the results that the verdicts give.

That no batch has an episode of an evaluation is checked with the plans.
"""

from collections import Counter
from typing import Any

from hindcast.storage.audit.check import Check
from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.defects import Findings
from hindcast.storage.audit.episodes import JUDGED_AS, Episodes

EVALUATION = "evaluation"


class Evaluations(Check):
    """Follows evaluations. Memory: about 100 bytes for each task."""

    name = EVALUATION

    def __init__(self, findings: Findings, *, since: int, episodes: Episodes) -> None:
        super().__init__(findings, since=since)
        self._episodes = episodes
        self._judge = ""
        """Name of the judge whose verdicts count; empty: not known."""
        self._started_count = 0
        self._open: dict[str, Any] | None = None
        """The `evaluation.started` of the evaluation that is going on."""
        self._played: list[tuple[str, float, str]] = []
        """Episode, temperature and task name of each request of the open evaluation."""
        self._evaluated: set[str] = set()
        self._trained: set[str] = set()

    def configure(self, settings: dict[str, Any]) -> None:
        """Take in recorded settings, or changes of them."""
        judges = settings.get("judge", {}).get("judges")
        self._judge = judges[0] if judges else self._judge

    def requested(self, event: Event) -> None:
        """`episode.requested`, after it is known to the check of episodes."""
        fact = event.payload
        episode = self._episodes.find(fact["episode"])
        task = "" if episode is None else episode.task
        if fact["origin"] == "branch":
            return
        if fact["origin"] != EVALUATION:
            self._trained.add(task)
            self.require(task not in self._evaluated, event, f"it trains on {task}, a task of evaluations")
            return
        self.require(task not in self._trained, event, f"it evaluates on {task}, a task that is trained on")
        self._evaluated.add(task)
        if self._open is not None:
            task_fields = fact["task"]
            name = f"{task_fields['environment']}/{task_fields['family']}:{task_fields['seed']}"
            self._played.append((fact["episode"], fact["temperature"], name))

    def started(self, event: Event) -> None:
        """`evaluation.started`."""
        number = event.payload["number"]
        if self._read_all:
            self.require(
                number == self._started_count,
                event,
                "evaluations are not in order",
                self._started_count,
                number,
            )
        self.require(self._open is None, event, "it starts while another evaluation is open")
        self._started_count, self._open = number + 1, event.payload
        self._played.clear()

    def finished(self, event: Event) -> None:
        """`evaluation.finished`."""
        fact, started = event.payload, self._open
        self._open = None
        if started is None:
            self.require(not self._read_all, event, "no evaluation is going on")
            return
        names = ("number", "version")
        for name in names:
            self.require(fact[name] == started[name], event, f"its {name}", started[name], fact[name])
        if self._read_all and self._judge:
            self._check_results(event, fact, started)

    def _check_results(self, event: Event, fact: dict[str, Any], started: dict[str, Any]) -> None:
        counted: Counter[tuple[float, str, str]] = Counter()
        for name, temperature, task in self._played:
            outcome = self._outcome(name)
            if outcome in JUDGED_AS:
                counted[temperature, task.rpartition(":")[0], outcome] += 1
        tasks = Counter(task.rpartition(":")[0] for task in started["tasks"])
        for result in fact["results"]:
            temperature, family = result["temperature"], result["family"]
            reported = (result["successes"], result["failures"])
            expected = (counted[temperature, family, "success"], counted[temperature, family, "failure"])
            # a verdict may come between the decision to end early and its record
            holds = (
                reported == expected
                if not fact["reason"]
                else reported[0] <= expected[0] and reported[1] <= expected[1]
            )
            self.require(
                holds, event, f"successes and failures of {family} at {temperature:g}", expected, reported
            )
            total = sum(reported) + result["lost"]
            self.require(total == tasks[family], event, f"tasks of {family}", tasks[family], total)

    def _outcome(self, name: str) -> str:
        """The outcome of the first verdict of the judge on an episode; empty: none."""
        episode = self._episodes.find(name)
        verdicts = () if episode is None else episode.verdicts
        return next((outcome for key, outcome, _ in verdicts if key.rpartition(" ")[0] == self._judge), "")
