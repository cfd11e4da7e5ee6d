"""Opens the judges and the relabeler of a run, including trained ones and those behind an endpoint.

Loads only what the settings ask for.
"""

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from hindcast.actors.judges.base import Judge, JudgeVersions, judge_problems
from hindcast.actors.judges.plugin import JudgeContext, find_judge, options_of
from hindcast.actors.published_versions import PublishedVersions
from hindcast.actors.relabelers.base import Relabeler
from hindcast.actors.relabelers.plugin import RELABELERS, RelabelerContext, find_relabeler
from hindcast.actors.relabelers.plugin import options_of as relabeler_options
from hindcast.app.runs.sources import Source
from hindcast.app.system.home import home_folder
from hindcast.core.errors import PluginError, SettingsError
from hindcast.core.plugins import plugin_names
from hindcast.core.settings.schema import Settings
from hindcast.storage.blobs.store import BlobStore

if TYPE_CHECKING:
    from hindcast.actors.endpoint.client import Endpoint

MEMORY = "endpoint"
"""Folder in the home that stores answers of endpoints, so that an equal question of any run is asked once."""


def endpoint_of(settings: Settings) -> "Endpoint":
    """The client of the settings' endpoint, which stores answers in this home."""
    from hindcast.actors.endpoint.client import Endpoint

    return Endpoint(settings.endpoint, memory=home_folder() / MEMORY, content=settings.telemetry.content)


class SharedEndpoint:
    """The endpoint of the settings, opened when a judge or relabeler first asks for it and shared by all."""

    def __init__(self, settings: Settings, opened: AsyncExitStack) -> None:
        self._settings = settings
        self._opened = opened
        self._client: Endpoint | None = None

    async def __call__(self) -> "Endpoint":
        """Open the client once. Raises SettingsError where the settings name no endpoint."""
        if self._client is None:
            self._client = await self._opened.enter_async_context(endpoint_of(self._settings))
        return self._client


def shelf_for(names: Collection[str], settings: Settings, blobs: BlobStore) -> JudgeVersions | None:
    """The published versions of the judge that the run trains; None if the names lack it.

    Raises:
        PluginError: a judge is not installed.
        ModelFileError: the policy's folder cannot be loaded.

    """
    for name in names:
        versions = find_judge(name).versions
        if versions is not None:
            shelf = versions(settings, blobs)
            if shelf.name != name:
                raise PluginError(
                    f"the versions of the judge {name!r} are those of {shelf.name!r}: name them as the settings do"
                )
            return shelf
    return None


@asynccontextmanager
async def open_judges(
    names: Collection[str], settings: Settings, blobs: BlobStore
) -> AsyncIterator[dict[str, Judge]]:
    """Open the named judges that stay the same during a run; `shelf_for` opens the one that it trains.

    Raises:
        PluginError: a judge is not installed, lacks a part, or has another name than the settings give it.
        SettingsError: a judge lacks its endpoint or its model in the settings.
        ModelFileError: the folder of `judge.webrl_orm` cannot be loaded.

    """
    judges: dict[str, Judge] = {}
    async with AsyncExitStack() as opened:
        endpoint = SharedEndpoint(settings, opened)
        for name in names:
            plugin = find_judge(name)
            if plugin.open is None:
                continue
            context = JudgeContext(
                name=name,
                settings=settings,
                options=options_of(name, settings),
                blobs=blobs,
                endpoint=endpoint,
            )
            judges[name] = await opened.enter_async_context(plugin.open(context))
            if problems := judge_problems(judges[name], name):
                raise PluginError(f"the judge {name!r} cannot be used: {'; '.join(problems)}")
        yield judges


@asynccontextmanager
async def open_judge(name: str, source: Source, settings: Settings) -> AsyncIterator[Judge]:
    """Open one judge by name under these settings; one that the run trains in the newest version that it has published.

    Raises:
        SettingsError: no judge has this name, or it lacks its endpoint or model.
        ModelFileError, BlobCorrupt: the model cannot be loaded.

    """
    shelf = shelf_for((name,), settings, source.blobs)
    if shelf is not None:
        async with source.connect_log() as log:
            yield await shelf.begin(log)
        return
    async with open_judges((name,), settings, source.blobs) as judges:
        yield judges[name]


@asynccontextmanager
async def open_relabeler(
    settings: Settings, blobs: BlobStore, *, pages: BlobStore | None = None
) -> AsyncIterator[Relabeler | PublishedVersions[Any]]:
    """The relabeler of the settings; its published versions if the run trains it.

    `blobs` holds its weights; `pages` holds the pages of episodes, by default `blobs`, too.

    Raises:
        SettingsError: the settings name no relabeler, or give it options that it does not have.
        PluginError: the relabeler is not installed, or has another name than the settings give it.
        ModelFileError: the policy's folder cannot be loaded.

    """
    name = settings.relabeler.kind
    if not name:
        raise SettingsError(
            f"relabeler.kind is empty: nothing is relabelled. Set it to one of {', '.join(plugin_names(RELABELERS))}."
        )
    async with AsyncExitStack() as opened:
        context = RelabelerContext(
            name=name,
            settings=settings,
            options=relabeler_options(settings),
            blobs=blobs,
            pages=pages or blobs,
            endpoint=SharedEndpoint(settings, opened),
        )
        relabeler = await opened.enter_async_context(find_relabeler(name).open(context))
        if not isinstance(relabeler, PublishedVersions) and relabeler.identity.name != name:
            raise PluginError(
                f"the relabeler {name!r} signs its relabels as {relabeler.identity.name!r}: its identity must have the name that "
                "it is opened with (RelabelerContext.name)"
            )
        yield relabeler
