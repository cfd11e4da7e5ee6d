"""What a relabeler is to all of the system, and those that Hindcast brings.

A relabeler is one plugin, a `RelabelerPlugin` object that `relabeler.kind` names. Settings ask its traits, never its name.
Its module imports torch and clients of servers only where the relabeler is opened.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from hindcast.actors.published_versions import PublishedVersions
from hindcast.actors.relabelers.base import Relabeler
from hindcast.core.plugins import NoOptions, find_plugin, read_options
from hindcast.core.settings.schema import Settings
from hindcast.storage.blobs.store import BlobStore

if TYPE_CHECKING:
    from hindcast.actors.endpoint.client import Endpoint

RELABELERS = "relabelers"
"""The kind of plugin."""


class RelabelerTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What others need to know of a relabeler."""

    asks_endpoint: bool = False
    """Whether it asks the server of the section `endpoint`."""
    names_families: bool = False
    """Whether its goals have a family. `relabeler.families = "run"` needs one: it drops goals without."""


class RelabelerContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a relabeler is opened with."""

    name: str
    """Name in the settings. The relabeler's identity must have it."""
    settings: Settings
    options: Any
    """`relabeler.options`, as the plugin's `options`."""
    blobs: BlobStore
    """Where the weights of the run's own models are kept."""
    pages: BlobStore
    """Where the episodes' pages are kept."""
    endpoint: Callable[[], Awaitable["Endpoint"]]
    """Returns the client of the settings' endpoint."""


class RelabelerPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """One way to find the goals that episodes achieved."""

    open: Callable[[RelabelerContext], AbstractAsyncContextManager[Relabeler | PublishedVersions[Any]]]
    """Opens the relabeler, or the published versions of one that the run itself trains."""
    traits: RelabelerTraits = RelabelerTraits()
    options: type[msgspec.Struct] = NoOptions
    """What `relabeler.options` may hold."""
    state_version: int = 1
    """Version of the plugin. Relabels carry the version of the relabeler's identity, which is another."""
    check: Callable[[Settings], list[str]] = lambda settings: []
    """What does not go together when settings name this relabeler, one sentence each."""


def find_relabeler(name: str) -> RelabelerPlugin:
    """The relabeler of this name. Raises PluginError where there is none."""
    return find_plugin(RELABELERS, name, RelabelerPlugin)


def options_of(settings: Settings) -> Any:
    """`relabeler.options` as the relabeler's own struct. Raises SettingsError where they are not what it allows."""
    name, option_values = settings.relabeler.kind, settings.relabeler.options
    return read_options(
        find_relabeler(name).options, option_values, of=f"relabeler.options of the relabeler {name!r}"
    )


def wanted_families(settings: Settings) -> frozenset[str] | None:
    """Families of the goals that are kept, such as `store/find_price`; None: all."""
    curriculum = settings.curriculum
    if settings.relabeler.families == "all":
        return None
    task_families = frozenset(name.rpartition(":")[0] for name in curriculum.tasks)
    return task_families or frozenset(curriculum.families) or None


@asynccontextmanager
async def _open_rules(context: RelabelerContext) -> AsyncIterator[Relabeler]:
    from hindcast.actors.relabelers.rules import RuleRelabeler

    yield RuleRelabeler(
        max_goals=context.settings.relabeler.goals, families=wanted_families(context.settings)
    )


@asynccontextmanager
async def _open_endpoint(context: RelabelerContext) -> AsyncIterator[Relabeler]:
    from hindcast.actors.relabelers.endpoint import EndpointRelabeler

    max_goals = context.settings.relabeler.goals
    yield EndpointRelabeler(await context.endpoint(), blobs=context.pages, max_goals=max_goals)


@asynccontextmanager
async def _open_learned(context: RelabelerContext) -> AsyncIterator[PublishedVersions[Any]]:
    from hindcast.actors.relabelers.learned import LearnedVersions
    from hindcast.actors.relabelers.rules import RuleRelabeler
    from hindcast.core.models.folders import policy_folder

    settings = context.settings
    teacher = None
    if settings.relabeler.teacher:
        teacher = RuleRelabeler(max_goals=settings.relabeler.goals, families=wanted_families(settings))
    folder = policy_folder(settings.policy.base)
    yield await asyncio.to_thread(
        LearnedVersions,
        folder,
        blobs=context.blobs,
        pages=context.pages,
        settings=settings,
        teacher=teacher,
    )


RULES = RelabelerPlugin(open=_open_rules, traits=RelabelerTraits(names_families=True))
ENDPOINT = RelabelerPlugin(open=_open_endpoint, traits=RelabelerTraits(asks_endpoint=True))
LEARNED = RelabelerPlugin(open=_open_learned, traits=RelabelerTraits(names_families=True))
