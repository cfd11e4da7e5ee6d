"""Registry of facts: everything that one declaration says of an event type.

    @fact("injection.seen", subject=NOTICE, roles="actor", refs={"episode": "episode"})
    class InjectionSeen(Fact, frozen=True, kw_only=True): ...

| part | what follows from it |
|---|---|
| name, `version` | the type tag of the codec, and which upcasting steps are needed |
| `subject` | the subject of the event, and whether the event is created only once |
| `roles` | what the broker lets each role append, and whom the audit and the alerts report |
| `refs` | what the audit looks up in the log before the event, and the lineage of an episode |
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeVar, get_args

from hindcast.events.envelope import Fact

F = TypeVar("F", bound=type[Fact])

Role = Literal[
    "admin",
    "curriculum",
    "actor",
    "policy_server",
    "judge",
    "relabeler",
    "learner",
    "control",
    "projector",
    "archiver",
    "reader",
    "importer",
    "repairer",
]
"""Users of the broker. `projector` and `reader` append nothing, `importer` restores the events of all others."""
ROLES: tuple[Role, ...] = get_args(Role)

RefKind = Literal["episode", "task", "position", "batch", "update", "policy", "page"]
"""What a field may refer to: a requested episode, a proposed task, an earlier position, a planned batch, an update of the
policy, a published policy version, or the blob of a page snapshot or screenshot. The type of other blobs says what they are."""


class Subject(NamedTuple):
    """A family of subjects, `run.<run>.<family>.<key>`."""

    family: str
    created_once: bool
    """Whether its facts are created if absent, so that a second writer is refused."""
    per_entity: bool
    """Whether the key is the entity, so that one request finds its last fact; else it is the producer incarnation."""


SUBJECTS: dict[str, Subject] = {}
"""Subjects by family, in the order of their declaration, which is their order in the broker's configuration."""


def subject(family: str, *, created_once: bool = False, per_entity: bool = False) -> Subject:
    """Declare a family of subjects. Facts that are created once have a subject per entity."""
    if family in SUBJECTS:
        raise ValueError(f"two subjects are named {family!r}")
    SUBJECTS[family] = Subject(family, created_once, per_entity or created_once)
    return SUBJECTS[family]


class FactType(NamedTuple):
    """The declaration of an event type."""

    name: str
    version: int
    cls: type[Fact]
    subject: Subject
    family: str
    """Family of its subject."""
    roles: tuple[Role, ...]
    """Roles that append it."""
    refs: tuple[tuple[str, RefKind], ...]
    """Pairs of a field and what it refers to; `episodes.episode` is a field of a nested struct, or of each in a list."""


BY_NAME: dict[str, FactType] = {}
BY_CLASS: dict[type[Fact], FactType] = {}


def fact(
    name: str,
    *,
    subject: Subject,
    roles: Role | tuple[Role, ...],
    version: int = 1,
    refs: Mapping[str, RefKind] = {},
) -> Callable[[F], F]:
    """Declare an event type: its stable name (`step.taken`), subject, roles, schema version and references.

    Raises:
        ValueError: the name is taken, a role does not exist, or a reference names no field.

    """
    appending = (roles,) if isinstance(roles, str) else roles

    def register(cls: F) -> F:
        if name in BY_NAME:
            raise ValueError(f"two facts are named {name!r}: {BY_NAME[name].cls.__name__} and {cls.__name__}")
        for role in appending:
            if role not in ROLES:
                raise ValueError(f"{name} is appended by {role!r}, which is no role")
        for path in refs:
            if path.partition(".")[0] not in cls.__struct_fields__:
                raise ValueError(f"{name} has no field {path!r} that could refer to anything")
        BY_NAME[name] = BY_CLASS[cls] = FactType(
            name, version, cls, subject, subject.family, appending, tuple(refs.items())
        )
        return cls

    return register
