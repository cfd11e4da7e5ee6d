"""Checks tasks and requests: attempted tasks were proposed and admitted; members, attempts and groups are consistent.

Generated tasks must also be made for the current phase from tasks that had failed, and be admitted within the value window.
"""

from hashlib import sha256
from sys import intern
from typing import Any

import msgpack

from hindcast.storage.audit.check import Check
from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.defects import Findings

_pack = msgpack.Packer().pack


def task_id(task: dict[str, Any]) -> str:
    """A task's id from its content: equal tasks have equal ids everywhere."""
    return f"task_{sha256(_pack(_ordered(task))).hexdigest()[:16]}"


def _ordered(value: Any) -> Any:
    if type(value) is dict:
        return {key: _ordered(value[key]) for key in sorted(value)}
    return [_ordered(item) for item in value] if type(value) is list else value


class Group:
    """Episodes of one task that are compared with each other."""

    __slots__ = ("attempts", "name", "origin", "size", "task")

    def __init__(self, name: str, task: str, size: int, origin: str) -> None:
        self.name = name
        self.task = task
        self.size = size
        self.origin = intern(origin)
        self.attempts: dict[int, int] = {}
        """Latest attempt by member."""


class Tasks(Check):
    """Follows tasks, phases, groups. Memory: about 150 bytes per task and 400 per group."""

    name = "task"

    def __init__(self, findings: Findings, *, since: int) -> None:
        super().__init__(findings, since=since)
        self._proposed: set[str] = set()
        self._admitted: set[str] = set()
        self._groups: dict[str, Group] = {}
        self._phase: int | None = None
        self._failed: set[str] = set()
        """Tasks with a failure by any judge."""
        self._generated: dict[str, tuple[int, int]] = {}
        """Task -> the phase that it was generated for, and the number of entries in `_evolution` by then."""
        self._values: dict[str, float] = {}
        self._checked: dict[str, bool | None] = {}
        """Whether a model thought that a generated task can be done."""
        self._evolution: list[dict[str, Any]] = [{}]
        """Settings of admission, one entry per change: a decision under way at a change follows the earlier settings."""

    def proposed(self, event: Event) -> None:
        """`task.proposed`."""
        proposed_id = task_id(event.payload["task"])
        self.require(
            event.entity == proposed_id,
            event,
            "it is about another task than it proposes",
            proposed_id,
            event.entity,
        )
        self.consulted(event)
        phase = event.payload["phase"]
        if phase is not None:
            self._check_generated(event, phase)
            self._generated[proposed_id] = phase, len(self._evolution)
        self._proposed.add(proposed_id)

    def _check_generated(self, event: Event, phase: int) -> None:
        if self._phase is not None:
            self.require(
                phase == self._phase, event, "it is for a phase that is not under way", self._phase, phase
            )
        parents = event.payload["parents"]
        self.require(parents, event, "a generated task has no parents")
        for parent in parents:
            self.require(
                parent in self._failed or not self._read_all, event, f"the parent {parent} had not failed"
            )

    def is_known(self, task: str) -> bool:
        """Whether the task was proposed."""
        return task in self._proposed

    def note_failure(self, task: str) -> None:
        """Note that a judge gave a failure for an episode of the task."""
        self._failed.add(task)

    def configure(self, settings: dict[str, Any]) -> None:
        """Take in settings or changes of them: the value window, and how feasibility is checked."""
        self._evolution.append(self._evolution[-1] | settings.get("evolution", {}))

    def checked(self, event: Event) -> None:
        """`task.checked`."""
        task = event.payload["task_id"]
        self.require(task not in self._checked, event, f"the task {task} is checked again")
        self.consulted(event)
        self._checked[task] = event.payload["feasible"]

    def decided(self, event: Event) -> None:
        """`task.admitted`, `task.rejected`, `state.valued`."""
        task = event.payload["task_id"]
        if event.type == "state.valued":
            self._values[task] = event.payload["value"]
        elif task in self._values:
            self.require(
                event.payload["value"] == self._values[task],
                event,
                "it rests on another value than the state was given",
                self._values[task],
                event.payload["value"],
            )
        if event.type == "task.admitted":
            self._check_admitted(event, task)
            self._admitted.add(task)
        elif event.type == "task.rejected":
            self._admitted.discard(task)

    def _check_admitted(self, event: Event, task: str) -> None:
        phase, value = event.payload["phase"], event.payload["value"]
        evolutions = self._evolution[-1:]
        if task in self._generated:
            generated_for, entries = self._generated[task]
            evolutions = self._evolution[entries - 1 :]
            self.require(
                phase == generated_for,
                event,
                "it is admitted for another phase than it was made for",
                generated_for,
                phase,
            )
            was_feasible = self._checked.get(task)
            endpoint_checks = all(evolution.get("feasibility") == "endpoint" for evolution in evolutions)
            if endpoint_checks and self._read_all:
                self.require(
                    was_feasible, event, "no model said that the task can be done", True, was_feasible
                )
        windows = [
            (entry.get("value_low", 0.0), entry.get("value_high", 1.0)) for entry in evolutions if entry
        ]
        if value is not None and windows:
            inside = any(low <= value <= high for low, high in windows)
            expected = " or ".join(f"{low:g} to {high:g}" for low, high in windows)
            self.require(inside, event, "its value is not within the window", expected, value)

    def phase_started(self, event: Event) -> None:
        """`phase.started`."""
        phase = event.payload["phase"]
        previous_phase = self._phase
        self.require(
            previous_phase is None or phase > previous_phase,
            event,
            "a phase begins again",
            f"more than {previous_phase}",
            phase,
        )
        self._phase = phase

    def requested(self, event: Event) -> Group:
        """Check an `episode.requested`; returns its group, as first recorded."""
        fact = event.payload
        requested_id = task_id(fact["task"])
        if (
            self._admitted
            and fact["origin"] not in ("evaluation", "branch")
            and requested_id not in self._admitted
            and self._read_all
        ):
            self.defect(event, f"the task {requested_id} was never admitted")
        member, attempt, size = fact["member"], fact["attempt"], fact["group_size"]
        if not 0 <= member < size:
            self.defect(event, "it is no member of its group", f"0 to {size - 1}", member)
        group = self._groups.get(fact["group"])
        if group is None:
            group = self._groups[fact["group"]] = Group(fact["group"], requested_id, size, fact["origin"])
        recorded_kind = (group.task, group.size, group.origin)
        if recorded_kind != (requested_id, size, fact["origin"]):
            self.defect(
                event,
                f"group {fact['group']} is of another kind than before",
                recorded_kind,
                (requested_id, size, fact["origin"]),
            )
        last_attempt = group.attempts.get(member, -1)
        if attempt != last_attempt + 1 and self._read_all:
            self.defect(
                event, f"member {member} of {fact['group']} is asked out of turn", last_attempt + 1, attempt
            )
        group.attempts[member] = attempt
        return group
