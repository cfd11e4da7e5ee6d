"""Where each family of facts is appended.

`run.<run>.<family>.<key>`: the key is the producer incarnation, except where an expectation needs a subject per
entity (an episode's start and end, a verdict), which invariants 2 and 8 rest on, and where a start looks for the
newest fact about an entity (a snapshot).
"""

from hindcast.events.envelope import Fact
from hindcast.events.registry import BY_CLASS

CREATED_ONCE = {"episode", "episode_end", "verdict", "relabel"}
"""Families of facts that are created if absent: whoever comes second is refused."""

STREAM = "RUN_"
"""What the names of runs' streams begin with."""

PER_ENTITY = CREATED_ONCE | {"snapshot"}
"""Families whose subject ends in the entity, so that its last fact is found by one look."""


def stream_name(run: str) -> str:
    """The JetStream stream of a run."""
    return f"{STREAM}{run}"


def family_of(subject: str) -> str:
    """The family in `run.<run>.<family>.<key>`."""
    return subject.split(".", 3)[2]


def of_run(subject: str, run: str) -> str:
    """The same subject or wildcard in another run's log."""
    return f"run.{run}.{subject.split('.', 2)[2]}"


def everything(run: str) -> str:
    """Wildcard over all of a run's subjects."""
    return f"run.{run}.>"


def family_wildcard(run: str, family: str) -> str:
    """Wildcard over one family."""
    return f"run.{run}.{family}.>"


def subject_of(run: str, fact: Fact | type[Fact], *, key: str) -> str:
    """Subject for a fact; `key` is the entity for families in `PER_ENTITY`, else the producer incarnation."""
    cls = fact if isinstance(fact, type) else type(fact)
    return f"run.{run}.{BY_CLASS[cls].family}.{key}"


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject falls under a pattern with the wildcards `*` (one token) and `>` (the rest)."""
    tokens = subject.split(".")
    wanted = pattern.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(tokens) > index
        if index >= len(tokens) or token not in ("*", tokens[index]):
            return False
    return len(tokens) == len(wanted)
