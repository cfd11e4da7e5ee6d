"""Opens the relabeler that a run's settings name."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hindcast.actors.published_versions import PublishedVersions
from hindcast.actors.relabelers.base import Relabeler
from hindcast.actors.relabelers.rules import RuleRelabeler
from hindcast.app.system.home import home_folder
from hindcast.app.system.judges import MEMORY
from hindcast.core.errors import SettingsError
from hindcast.core.settings.endpoint import ENDPOINT
from hindcast.core.settings.schema import Settings
from hindcast.storage.blobs.store import BlobStore

LEARNED = "learned"


@asynccontextmanager
async def open_relabeler(
    settings: Settings, blobs: BlobStore, *, pages: BlobStore | None = None
) -> AsyncIterator[Relabeler | PublishedVersions[Any]]:
    """The relabeler of the settings; its published versions if the run trains it.

    `blobs` holds its weights; `pages` holds the pages of episodes, by default `blobs`, too.

    Raises:
        SettingsError: the settings name no relabeler.
        ModelFileError: the policy's folder cannot be loaded.

    """
    kind, most = settings.relabeler.kind, settings.relabeler.goals
    if kind == "rules":
        yield RuleRelabeler(most=most)
    elif kind == ENDPOINT:
        from hindcast.actors.endpoint.client import Endpoint
        from hindcast.actors.relabelers.endpoint import EndpointRelabeler

        async with Endpoint(
            settings.endpoint, memory=home_folder() / MEMORY, content=settings.telemetry.content
        ) as endpoint:
            yield EndpointRelabeler(endpoint, blobs=pages or blobs, most=most)
    elif kind == LEARNED:
        from hindcast.actors.relabelers.learned import LearnedVersions
        from hindcast.core.models.folders import policy_folder

        teacher = RuleRelabeler(most=most) if settings.relabeler.teacher else None
        folder = policy_folder(settings.policy.base)
        yield await asyncio.to_thread(
            LearnedVersions, folder, blobs=blobs, pages=pages or blobs, settings=settings, teacher=teacher
        )
    else:
        raise SettingsError(
            "relabeler.kind is empty: nothing is relabelled. Set it to rules, endpoint or learned."
        )
