"""Checks that everything an event refers to precedes it in the log, by the references that its type declares.

It follows the checks of the event's own kind: what they have reported already, they count as known from there on.
"""

from collections.abc import Callable, Iterator
from typing import Any

from hindcast.events.registry import RefKind
from hindcast.storage.audit.check import Check
from hindcast.storage.audit.decoder import Event
from hindcast.storage.audit.defects import Findings
from hindcast.storage.audit.episodes import Episodes
from hindcast.storage.audit.policies import Policies
from hindcast.storage.audit.tasks import Tasks
from hindcast.storage.audit.training import Training

SINGLE = frozenset({str, int})
"""Types of a field that refers to one thing."""


class References(Check):
    """Looks up what events refer to. Blobs have a check of their own."""

    name = "reference"

    def __init__(
        self,
        findings: Findings,
        *,
        since: int,
        episodes: Episodes,
        tasks: Tasks,
        training: Training,
        policies: Policies,
    ) -> None:
        super().__init__(findings, since=since)
        self._rules: dict[RefKind, tuple[Callable[[Any], bool], str]] = {
            "episode": (episodes.is_known, "was never requested"),
            "task": (tasks.is_known, "was never proposed"),
            "batch": (lambda batch: batch < training.batches, "was never planned"),
            "update": (lambda update: update <= training.counted, "was never computed"),
            "policy": (lambda version: version <= policies.newest, "was not published"),
        }

    def take(self, event: Event, refs: tuple[tuple[str, RefKind], ...]) -> None:
        """Check the references of one readable fact."""
        for path, kind in refs:
            field: Any = event.payload.get(path)
            values = (field,) if type(field) in SINGLE else values_at(event.payload, path)
            for value in values:
                if kind == "position":
                    bound = f"below {event.position}"
                    self.require(
                        0 <= value < event.position, event, f"{path} is no earlier position", bound, value
                    )
                elif self._read_all and not self._rules[kind][0](value):
                    self.defect(event, f"{kind} {value} {self._rules[kind][1]}")


def values_at(value: Any, path: str) -> Iterator[Any]:
    """Values of a field of a payload; none where it is absent. A list stands for each of its items."""
    if isinstance(value, list):
        for item in value:
            yield from values_at(item, path)
    elif not path:
        if value is not None:
            yield value
    elif isinstance(value, dict):
        name, _, subpath = path.partition(".")
        yield from values_at(value.get(name), subpath)
