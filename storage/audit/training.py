"""Checks the learner's chain: plan, updates in order, weights, checkpoint; each starts from the state that the last one left.

A batch trains one model; states and counts are followed per model.
"""

from collections import Counter

from hindcast.core.rl.combined_state import CRITIC, POLICY, combined
from hindcast.storage.audit.check import Check
from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.defects import Findings
from hindcast.storage.audit.plans import Plans
from hindcast.storage.audit.policies import Policies

FLOAT_BYTES = 4


class Training(Check):
    """Follows the training of all models. Constant memory."""

    name = "training"

    def __init__(self, findings: Findings, *, since: int, plans: Plans, policies: Policies) -> None:
        super().__init__(findings, since=since)
        self._plans = plans
        self._policies = policies
        self._is_known = since == 0
        """Whether the state of training is known; if reading begins late, it becomes known with the first update."""
        self.batches = 0
        self.skipped = 0
        self.sizes: list[int] | None = []
        """Sizes of the current batch's mini-batches; None once they are unknown."""
        self.updates_done = 0
        self._weights_due = False
        self._model = POLICY
        """Model of the current batch."""
        self._updates: Counter[str] = Counter()
        """Optimizer steps by model."""
        self._versions: Counter[str] = Counter()
        """Latest published version of each auxiliary model."""
        self._states: dict[str, str] = {}
        """Digest of weights and optimizer state after a model's last update; empty: it recorded none (`learner.digest_every`);
        absent before its first."""
        self._last = 0
        """Position of the learner's last event."""
        self._writers: list[str] = []
        """Incarnations of the learner, in the order in which they wrote."""

    def lose(self, position: int) -> None:
        """See `Check.lose`: batches and updates may be in the hole."""
        super().lose(position)
        self._is_known, self.sizes = False, None
        self._states.clear()

    def take(self, event: Event) -> None:
        """Check one readable fact of the learner's family."""
        self.by_role(event, "learner")
        self._check_writer(event)
        match event.type:
            case "batch.planned":
                self._planned(event)
            case "update.applied" | "update.skipped":
                self._updated(event)
            case "weights.published":
                self._published(event)
            case "checkpoint.saved":
                self._saved(event)
            case "samples.swept":
                self._plans.swept(event, rests_on=self._last)
        self._last = event.position

    def _check_writer(self, event: Event) -> None:
        """Check that a learner that was replaced by another appends nothing more: it is fenced off."""
        if self._writers and self._writers[-1] == event.incarnation:
            return
        if event.incarnation in self._writers:
            self.defect(
                event,
                f"two learners write to this run: after {self._writers[-1]} wrote",
                "",
                event.incarnation,
            )
            return
        self._writers.append(event.incarnation)

    def _planned(self, event: Event) -> None:
        fact = event.payload
        batch = fact["batch"]
        if self._is_known:
            self.require(
                batch == self.batches, event, "a batch is missing or planned twice", self.batches, batch
            )
            if self.sizes is not None and (self.updates_done < len(self.sizes) or self._weights_due):
                self.defect(
                    event,
                    f"batch {self.batches - 1} was not finished before",
                    self.sizes,
                    f"{self.updates_done} updates",
                )
        critic = fact["critic_version"]
        self.require(
            critic in (None, self._versions[CRITIC]) or not self._read_all,
            event,
            "it does not take the newest critic's values",
            self._versions[CRITIC],
            critic,
        )
        self.sizes = self._plans.planned(event, rests_on=self._last)
        self.batches, self.updates_done, self._weights_due = batch + 1, 0, True
        self._model = fact.get("model", POLICY)

    @property
    def updates(self) -> int:
        """Optimizer steps of the policy."""
        return self._updates[POLICY]

    @property
    def counted(self) -> int:
        """Updates of the policy and skipped ones of all models."""
        return self.updates + self.skipped

    def _updated(self, event: Event) -> None:
        fact = event.payload
        batch, minibatch, model = fact["batch"], fact["minibatch"], fact["model"]
        applied = event.type == "update.applied"
        if self._is_known:
            self._check_turn(event, batch, minibatch)
            expected = self._updates[model] + 1
            self.require(
                fact["update"] == expected,
                event,
                "an update is missing or repeated",
                expected,
                fact["update"],
            )
        state_before = fact["before"] if applied else fact["state"]
        state_left = self._states.get(model, state_before)
        self.require(
            state_before == state_left,
            event,
            "it does not begin with the weights that the update before left",
            state_left,
            state_before,
        )
        if applied and self.sizes is not None and 0 <= minibatch < len(self.sizes):
            sizes = {name: len(report) // FLOAT_BYTES for name, report in fact["samples"].items()}
            if set(sizes.values()) != {self.sizes[minibatch]}:
                self.defect(event, "it does not report on each of its samples", self.sizes[minibatch], sizes)
        self._states[model] = fact["after"] if applied else state_before
        self._updates[model] = fact["update"] if applied else max(self._updates[model], fact["update"] - 1)
        self.skipped += not applied
        self.updates_done = minibatch + 1
        self._is_known = True

    def _check_turn(self, event: Event, batch: int, minibatch: int) -> None:
        model = event.payload["model"]
        if batch != self.batches - 1 or not self._weights_due:
            self.defect(event, f"batch {batch} is not planned", f"batch {self.batches - 1}", f"batch {batch}")
            self.batches, self.sizes, self._weights_due = batch + 1, None, True
            self._model = model
        elif model != self._model:
            self.defect(event, f"batch {batch} trains another model", self._model, model)
        elif self.sizes is not None and not 0 <= minibatch < len(self.sizes):
            self.defect(
                event, f"batch {batch} has no such mini-batch", f"{len(self.sizes)} in all", minibatch
            )
        elif minibatch != self.updates_done:
            self.defect(
                event, f"mini-batches of batch {batch} are not in order", self.updates_done, minibatch
            )

    def _published(self, event: Event) -> None:
        fact = event.payload
        model = fact["model"]
        if fact["version"] > 0 and self._is_known:
            if not self._weights_due or (self.sizes is not None and self.updates_done < len(self.sizes)):
                self.defect(
                    event, "weights were published within a batch", self.sizes, f"{self.updates_done} updates"
                )
            updates = self._updates[model]
            if model != self._model or fact["update"] != updates:
                self.defect(
                    event,
                    "these weights are not those of the last update",
                    f"{self._model}, update {updates}",
                    f"{model}, update {fact['update']}",
                )
            self._weights_due = False
        if model == POLICY:
            self._policies.published(event)
            return
        expected = self._versions[model] + 1
        if self._read_all or self._versions[model]:
            self.require(
                fact["version"] == expected,
                event,
                f"a version of the {model} is missing or published twice",
                expected,
                fact["version"],
            )
        self._versions[model] = fact["version"]

    def _saved(self, event: Event) -> None:
        fact = event.payload
        if not self._is_known:
            return
        for name, expected, recorded in (
            ("update", self.updates, fact["update"]),
            ("batch", self.batches - 1, fact["batch"]),
            ("policy version", self._policies.newest, fact["version"]),
            ("digest of weights and optimizer", self._reached(fact["state"]), fact["state"]),
        ):
            self.require(
                expected == recorded,
                event,
                f"the checkpoint's {name} is not that of the last update",
                expected,
                recorded,
            )

    def _reached(self, unknown: str) -> str:
        """Digest of all models' states after their updates; `unknown` if one of them is not known, or recorded none."""
        if "" in self._states.values():
            return unknown
        if self._read_all or self._states.keys() == self._updates.keys() == {POLICY}:
            return combined(self._states) if POLICY in self._states else unknown
        return unknown

    @property
    def outstanding(self) -> int:
        """Mini-batches of the current batch without a report yet."""
        return max(0, len(self.sizes) - self.updates_done) if self.sizes is not None else 0
