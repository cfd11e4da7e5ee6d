"""Opens the relabeler that a run's settings name."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from hindcast.actors.published_versions import PublishedVersions
from hindcast.actors.relabelers.base import Relabeler
from hindcast.actors.relabelers.plugin import RELABELERS, RelabelerContext, find_relabeler, options_of
from hindcast.app.system.judges import SharedEndpoint
from hindcast.core.errors import PluginError, SettingsError
from hindcast.core.plugins import plugin_names
from hindcast.core.settings.schema import Settings
from hindcast.storage.blobs.store import BlobStore


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
            options=options_of(settings),
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
