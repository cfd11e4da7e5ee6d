"""Registry of facts: the stable name, version and subject family of each."""

from collections.abc import Callable
from typing import TypeVar

from hindcast.events.envelope import Fact

F = TypeVar("F", bound=type[Fact])


class FactType:
    """One entry of the catalogue."""

    __slots__ = ("cls", "family", "name", "version")

    def __init__(self, name: str, version: int, family: str, cls: type[Fact]) -> None:
        self.name = name
        self.version = version
        self.family = family
        self.cls = cls


BY_NAME: dict[str, FactType] = {}
BY_CLASS: dict[type[Fact], FactType] = {}


def fact(name: str, *, family: str, version: int = 1) -> Callable[[F], F]:
    """Declare a fact's stable name (`step.taken`), its subject family and its schema version."""

    def register(cls: F) -> F:
        if name in BY_NAME:
            raise ValueError(f"two facts are named {name!r}: {BY_NAME[name].cls.__name__} and {cls.__name__}")
        entry = FactType(name, version, family, cls)
        BY_NAME[name] = entry
        BY_CLASS[cls] = entry
        return cls

    return register
