"""What a policy engine is to all of the system: its traits, its checks of settings, and how to open it.

An engine is one plugin, an `Engine` object that `policy.engine` names. Settings, model checks and `hindcast start` ask its
traits, never its name. Its module imports torch inside `open` alone, so that they may ask without loading it.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec

from hindcast.core.errors import PluginError, SettingsError
from hindcast.core.plugins import NoOptions, find_plugin, read_options
from hindcast.core.settings.schema import PolicySettings, Settings

ENGINES = "engines"
"""The kind of plugin."""


class EngineTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What others need to know of an engine."""

    computes_here: bool = False
    """Whether the model is computed in the actor's own process, so that a new model is tried there first."""
    reads_pictures: bool = False
    """Whether it is an `actors.engines.base.SeeingEngine`."""
    uses_policy_servers: bool = False
    """Whether it samples on the run's vLLM servers, which the role `policy_server` keeps."""


class EngineContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is opened with, in an actor's process."""

    folder: Path
    """The policy's folder: the weights of version 0, and the tokenizer."""
    settings: Settings
    log_name: Callable[[], Awaitable[str]]
    """Reads the name of the run's log, unique across homes."""
    server_addresses: Callable[[], Sequence[str]]
    """Returns the current addresses of the run's policy servers."""
    report: Callable[[Any], Awaitable[None]]
    """Publishes an `events.catalogue.PolicyServerTroubled`."""


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """One way to sample from the policy."""

    traits: EngineTraits
    open: Callable[[EngineContext], AbstractAsyncContextManager[Any]]
    """Opens an `actors.engines.base.PolicyEngine` that is ready to answer, and closes it."""
    options: type[msgspec.Struct] = NoOptions
    """What `policy.options` may hold; `engine_options` reads it."""
    state_version: int = 1
    """To be raised when runs that were recorded with it cannot be resumed with this one."""
    check: Callable[[Settings], list[str]] = lambda settings: []
    """What does not go together when settings name this engine, one sentence each."""
    require: Callable[[Settings], None] = lambda settings: None
    """Asserts before a start that this machine has what the engine needs. Raises SettingsError."""


def find_engine(name: str) -> Engine:
    """The engine that `policy.engine` names. Raises PluginError where there is none."""
    return find_plugin(ENGINES, name, Engine)


def engine_options(policy: PolicySettings) -> Any:
    """`policy.options` as the engine's own struct. Raises SettingsError where they are not what it allows."""
    of = f"policy.options of policy.engine = {policy.engine!r}"
    return read_options(find_engine(policy.engine).options, policy.options, of=of)


def engine_conflicts(settings: Settings) -> list[str]:
    """What is wrong with `policy.engine` and with its options, one sentence each."""
    try:
        engine = find_engine(settings.policy.engine)
        engine_options(settings.policy)
    except SettingsError as error:
        return [f"policy.engine: {error}" if isinstance(error, PluginError) else str(error)]
    return engine.check(settings)
