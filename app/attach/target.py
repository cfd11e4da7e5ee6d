"""What `MODULE:NAME` names, made into one thing: something that takes an event within a transaction.

Modules are found as Python finds them, and in the current folder. Mistakes show here, before anything is read.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol, get_type_hints, runtime_checkable

import msgspec
from sqlalchemy import Connection

from hindcast.core.errors import HindcastError, SettingsError
from hindcast.core.text.nearest import advice
from hindcast.core.text.printable import one_line
from hindcast.events.envelope import Recorded
from hindcast.events.log.projection import Projection


class TargetFailed(HindcastError):
    """The module of a consumer fails when it is imported, or its class when it is made."""


class WritingConsumer(Protocol):
    """A consumer that writes its effect into a database."""

    def __call__(self, event: Recorded, db: Connection, /) -> None:
        """Take in one event. Whatever it raises undoes what it wrote about this event."""
        ...


@runtime_checkable
class FoldConsumer(Projection[Any], Protocol):
    """A consumer that is a state and nothing else: `events.log.projection.Projection`."""


Prepare = Callable[[Connection], None]
"""What a consumer does at every start, before the first event, in a transaction of its own."""


class Attached:
    """A consumer with its state: what takes events, one by one, in one thread."""

    def __init__(self, target: str, consumer: Any, *, prepare: Prepare | None = None) -> None:
        """Raises SettingsError when `consumer` is of no known form."""
        self.target = target
        self._consumer = consumer
        self._prepare = prepare
        self._fold: FoldConsumer | None = consumer if isinstance(consumer, FoldConsumer) else None
        self._state: Any = None
        if self._fold is None:
            _check_callable(target, consumer)
        else:
            self._type = _state_type(self._fold)
            self.restore(None)
            self._check_state()

    @property
    def doc(self) -> str:
        """The first line of what the consumer says about itself."""
        return (inspect.getdoc(self._consumer) or "").partition("\n")[0]

    def prepare(self, db: Connection) -> None:
        """Let it make its tables."""
        if self._prepare is not None:
            self._prepare(db)

    def take(self, event: Recorded, db: Connection) -> None:
        """One event."""
        if self._fold is not None:
            self._state = self._fold.apply(self._state, event)
        else:
            self._consumer(event, db)

    def snapshot(self) -> bytes | None:
        """The state of a fold, encoded; None where there is none."""
        return None if self._fold is None else msgspec.msgpack.encode(self._state)

    def restore(self, snapshot: bytes | None) -> None:
        """Go back to a snapshot, or to the beginning.

        Raises:
            SettingsError: the state has another shape than when it was written.

        """
        if self._fold is None:
            return
        if snapshot is None:
            self._state = self._fold.initial()
            return
        try:
            self._state = msgspec.msgpack.decode(snapshot, type=self._type)
        except msgspec.ValidationError as error:
            raise SettingsError(
                f"{self.target}: the state kept for it is no {self._type} any more ({error}). Attach it under another "
                "--name, or drop what it kept: hindcast consumer forget NAME"
            ) from error

    def _check_state(self) -> None:
        snapshot = None
        try:
            snapshot = self.snapshot()
            self.restore(snapshot)
        except (TypeError, SettingsError) as error:
            raise SettingsError(
                f"{self.target}: its state cannot be kept ({error}). Let initial() say what it returns, made of plain "
                "values, dataclasses or msgspec structs."
            ) from error
        assert snapshot is not None


def load(target: str) -> Attached:
    """The consumer named `MODULE:NAME`; a class is called without arguments.

    Raises:
        SettingsError: there is no such module or name, or it is no consumer.
        TargetFailed: the module's own code failed; its error is the cause.

    """
    module_name, _, name = target.partition(":")
    if not name or not all(part.isidentifier() for part in module_name.split(".")):
        raise SettingsError(f"{target!r} names no consumer: give MODULE:NAME, such as watch:consumer")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return _made(target, module_name, name)
    except HindcastError:
        raise
    except (Exception, SystemExit) as error:  # the module's own code
        raise TargetFailed(
            f"{target} cannot be attached: its own code fails before the first event, with {one_line(_said(error))} Try: "
            f"python -c 'import {module_name}'"
        ) from error


def _made(target: str, module_name: str, name: str) -> Attached:
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise SettingsError(
            f"there is no module {error.name!r}, neither installed nor in {os.getcwd()}. Start from the folder that "
            f"holds it, or install it; the name is written as in `import {module_name}`."
        ) from error
    found = getattr(module, name, None)
    if found is None:
        public = [key for key in vars(module) if not key.startswith("_")]
        raise SettingsError(f"module {module_name} has no {name!r}; {advice(name, public)}")
    consumer = found() if inspect.isclass(found) else found
    beside = module if inspect.isfunction(consumer) else consumer
    return Attached(target, consumer, prepare=getattr(beside, "prepare", None))


def _said(error: BaseException) -> str:
    """An error's kind and its message, ended by a full stop."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text if text.endswith(".") else f"{text}."


def _check_callable(target: str, consumer: Any) -> None:
    problem = None
    if not callable(consumer):
        problem = f"it is a {type(consumer).__name__}"
    elif inspect.iscoroutinefunction(consumer) or inspect.iscoroutinefunction(consumer.__call__):
        problem = "it is async; it runs in a thread of its own and may simply block"
    else:
        try:
            inspect.signature(consumer).bind(None, None)
        except TypeError as error:
            problem = f"it cannot be called with an event and a connection ({error})"
    if problem is not None:
        raise SettingsError(
            f"{target} is no consumer: {problem}. A consumer is a function of (event, db), or has initial() and "
            "apply(state, event). See docs/attach.md"
        )


def _state_type(fold: FoldConsumer) -> Any:
    """What `initial` says it returns, else the type of what it returns."""
    hinted = get_type_hints(fold.initial).get("return")
    return type(fold.initial()) if hinted in (None, Any) else hinted
