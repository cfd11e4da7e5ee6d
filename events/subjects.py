"""Subjects of facts in the stream: `run.<run>.<family>.<key>`.

The key is the producer incarnation. It is the entity where an expectation needs a subject per entity (an episode's start and
end, a verdict), on which invariants 2 and 8 depend, and where a start looks up the newest fact of an entity (a snapshot).
"""

from hindcast.events.envelope import Fact
from hindcast.events.registry import BY_CLASS, subject

RUN = subject("run")
CURRICULUM = subject("curriculum")
REQUEST = subject("request")
EPISODE = subject("episode", created_once=True)
EPISODE_END = subject("episode_end", created_once=True)
STEP = subject("step")
ADOPTION = subject("adoption")
VERDICT = subject("verdict", created_once=True)
RELABEL = subject("relabel", created_once=True)
LEARNER = subject("learner")
STORAGE = subject("storage")
NOTICE = subject("notice")
CONTROL = subject("control")
SNAPSHOT = subject("snapshot", per_entity=True)
DISPUTE = subject("dispute")
EVALUATION = subject("evaluation")

STREAM = "RUN_"
"""Prefix of the names of runs' streams."""


def stream_name(run: str) -> str:
    """Return the name of a run's JetStream stream."""
    return f"{STREAM}{run}"


def family_of(subject: str) -> str:
    """Return the family in `run.<run>.<family>.<key>`."""
    return subject.split(".", 3)[2]


def of_run(subject: str, run: str) -> str:
    """Return the same subject or wildcard for another run."""
    return f"run.{run}.{subject.split('.', 2)[2]}"


def everything(run: str) -> str:
    """Return the wildcard over all subjects of a run."""
    return f"run.{run}.>"


def family_wildcard(run: str, family: str) -> str:
    """Return the wildcard over one family of a run."""
    return f"run.{run}.{family}.>"


def subject_of(run: str, fact: Fact | type[Fact], *, key: str) -> str:
    """Return the subject of a fact; `key` is the entity if its subject is per entity, else the producer incarnation."""
    cls = fact if isinstance(fact, type) else type(fact)
    return f"run.{run}.{BY_CLASS[cls].family}.{key}"


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject matches a pattern with the wildcards `*` (one token) and `>` (the rest)."""
    tokens = subject.split(".")
    parts = pattern.split(".")
    for index, token in enumerate(parts):
        if token == ">":
            return len(tokens) > index
        if index >= len(tokens) or token not in ("*", tokens[index]):
            return False
    return len(tokens) == len(parts)
