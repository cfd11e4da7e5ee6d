"""What a judge is to all of the system: how to open it, what it needs, and its checks of settings.

A judge is one plugin, a `JudgePlugin` object that `judge.judges` names. Settings ask its traits, never its name. Its module
imports torch and clients of servers only where the judge is opened, so that others may ask without loading them.
"""

from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from hindcast.actors.judges.base import Judge, JudgeVersions
from hindcast.core.errors import PluginError
from hindcast.core.plugins import NoOptions, find_plugin, read_options
from hindcast.core.settings.schema import Settings
from hindcast.storage.blobs.store import BlobStore

if TYPE_CHECKING:
    from hindcast.actors.endpoint.client import Endpoint

JUDGES = "judges"
"""The kind of plugin."""


class JudgeTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What others need to know of a judge."""

    asks_endpoint: bool = False
    """Whether it asks the server of the section `endpoint`."""
    judges_any_goal: bool = False
    """Whether it can judge a goal that is only written in words, as a generated task's is."""


class JudgeContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge is opened with."""

    name: str
    """Name in the settings. The judge's identity must have it."""
    settings: Settings
    options: Any
    """The entry of `judge.options` for this judge, as the plugin's `options`."""
    blobs: BlobStore
    """Where pages are kept."""
    endpoint: Callable[[], Awaitable["Endpoint"]]
    """Returns the client of the settings' endpoint. All judges of a process share one, with its rate limit and its memory."""


class JudgePlugin(msgspec.Struct, frozen=True, kw_only=True):
    """One way to judge episodes. It has either `open` or `versions`."""

    open: Callable[[JudgeContext], AbstractAsyncContextManager[Judge]] | None = None
    """Opens a judge that stays the same during a run."""
    versions: Callable[[Settings, BlobStore], JudgeVersions] | None = None
    """Opens the published versions of a judge that the run itself trains."""
    traits: JudgeTraits = JudgeTraits()
    options: type[msgspec.Struct] = NoOptions
    """What the judge's entry of `judge.options` may hold."""
    state_version: int = 1
    """Version of the plugin. Verdicts carry the version of the judge's identity, which is another."""
    check: Callable[[Settings], list[str]] = lambda settings: []
    """What does not go together when settings name this judge, one sentence each."""
    require: Callable[[Settings], None] = lambda settings: None
    """Asserts that this machine has what the judge needs, for instance its files. Raises SettingsError."""


def find_judge(name: str) -> JudgePlugin:
    """The judge of this name. Raises PluginError where there is none."""
    return find_plugin(JUDGES, name, JudgePlugin)


def installed_judges(names: Collection[str]) -> dict[str, JudgePlugin]:
    """The named judges that can be loaded here: a recorded run may name one that cannot."""
    installed = {}
    for name in names:
        try:
            installed[name] = find_judge(name)
        except PluginError:
            continue
    return installed


def options_of(name: str, settings: Settings) -> Any:
    """A judge's entry of `judge.options` as its own struct. Raises SettingsError where it is not what the judge allows."""
    option_values = settings.judge.options.get(name, {})
    return read_options(find_judge(name).options, option_values, of=f"judge.options of the judge {name!r}")


def require_judges(names: Collection[str], settings: Settings) -> None:
    """Assert that this machine has what these judges need. Raises SettingsError."""
    for name in names:
        find_judge(name).require(settings)
