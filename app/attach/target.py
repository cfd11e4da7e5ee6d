"""Resolves `MODULE:NAME` to an attached consumer, which applies an event within a transaction.

Modules are imported from Python's path and from the current folder. Mistakes are reported before any event is read.
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
from hindcast.core.structs import decode_msgpack
from hindcast.core.text.nearest import advice
from hindcast.core.text.printable import one_line
from hindcast.events.envelope import Recorded
from hindcast.events.log.projection import Projection


class TargetFailed(HindcastError):
    """Importing the consumer's module or calling its class raised an error."""


class WritingConsumer(Protocol):
    """A consumer that writes its effect into a database."""

    def __call__(self, event: Recorded, db: Connection, /) -> None:
        """Apply one event. Any exception rolls back its writes for this event."""
        ...


@runtime_checkable
class FoldConsumer(Projection[Any], Protocol):
    """A consumer whose only effect is its state: `events.log.projection.Projection`."""


Prepare = Callable[[Connection], None]
"""Function that is called at every start before the first event, in its own transaction."""


class Attached:
    """A consumer and its state; applies events one by one in one thread."""

    def __init__(self, target: str, consumer: Any, *, prepare: Prepare | None = None) -> None:
        """Raises SettingsError if `consumer` is neither a function of (event, db) nor a fold."""
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
        """First line of the consumer's docstring."""
        return (inspect.getdoc(self._consumer) or "").partition("\n")[0]

    def prepare(self, db: Connection) -> None:
        """Let the consumer create its tables."""
        if self._prepare is not None:
            self._prepare(db)

    def take(self, event: Recorded, db: Connection) -> None:
        """Apply one event."""
        if self._fold is not None:
            self._state = self._fold.apply(self._state, event)
        else:
            self._consumer(event, db)

    def snapshot(self) -> bytes | None:
        """Encoded state of a fold; None for other consumers."""
        return None if self._fold is None else msgspec.msgpack.encode(self._state)

    def restore(self, snapshot: bytes | None) -> None:
        """Restore a snapshot; None: the initial state.

        Raises:
            SettingsError: the state has another type than when it was written.

        """
        if self._fold is None:
            return
        if snapshot is None:
            self._state = self._fold.initial()
            return
        try:
            self._state = decode_msgpack(snapshot, self._type)
        except msgspec.ValidationError as error:
            raise SettingsError(
                f"{self.target}: its stored state is not a {self._type} any more ({error}). Attach it under another "
                "--name, or delete its state: hindcast consumer forget NAME"
            ) from error

    def _check_state(self) -> None:
        snapshot = None
        try:
            snapshot = self.snapshot()
            self.restore(snapshot)
        except (TypeError, SettingsError) as error:
            raise SettingsError(
                f"{self.target}: its state cannot be stored ({error}). Annotate what initial() returns, and use plain "
                "values, dataclasses or msgspec structs."
            ) from error
        assert snapshot is not None


def load(target: str) -> Attached:
    """Load the consumer named `MODULE:NAME`; a class is called without arguments.

    Raises:
        SettingsError: there is no such module or name, or it is not a consumer.
        TargetFailed: the module's own code failed; its error is the cause.

    """
    module_name, _, name = target.partition(":")
    if not name or not all(part.isidentifier() for part in module_name.split(".")):
        raise SettingsError(f"{target!r} names no consumer: give MODULE:NAME, such as watch:consumer")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return _create(target, module_name, name)
    except HindcastError:
        raise
    except (Exception, SystemExit) as error:  # the module's own code
        raise TargetFailed(
            f"{target} cannot be attached: its own code fails before the first event, with {one_line(_describe(error))} Try: "
            f"python -c 'import {module_name}'"
        ) from error


def _create(target: str, module_name: str, name: str) -> Attached:
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
    owner = module if inspect.isfunction(consumer) else consumer
    return Attached(target, consumer, prepare=getattr(owner, "prepare", None))


def _describe(error: BaseException) -> str:
    """Describe an error by type and message, with a full stop."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text if text.endswith(".") else f"{text}."


def _check_callable(target: str, consumer: Any) -> None:
    problem = None
    if not callable(consumer):
        problem = f"it is a {type(consumer).__name__}"
    elif inspect.iscoroutinefunction(consumer) or inspect.iscoroutinefunction(consumer.__call__):
        problem = "it is async, but a consumer is an ordinary function: it has its own thread and may block"
    else:
        try:
            inspect.signature(consumer).bind(None, None)
        except TypeError as error:
            problem = f"it cannot be called with an event and a connection ({error})"
    if problem is not None:
        raise SettingsError(
            f"{target} is not a consumer: {problem}. A consumer is a function of (event, db), or has initial() and "
            "apply(state, event). See docs/attach.md"
        )


def _state_type(fold: FoldConsumer) -> Any:
    """The annotated return type of `initial`, else the type of its value."""
    hinted = get_type_hints(fold.initial).get("return")
    return type(fold.initial()) if hinted in (None, Any) else hinted
