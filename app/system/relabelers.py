"""The relabelers there are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from actors.published_versions import PublishedVersions
from actors.relabelers.base import Relabeler
from actors.relabelers.rules import RuleRelabeler
from app.system.judges import MEMORY
from app.system.supervisor import home_folder
from core.errors import SettingsError
from core.settings.endpoint import ENDPOINT
from core.settings.schema import Settings
from storage.blobs.store import BlobStore

LEARNED = "learned"


@asynccontextmanager
async def open_relabeler(
    settings: Settings, blobs: BlobStore, *, pages: BlobStore | None = None
) -> AsyncIterator[Relabeler | PublishedVersions[Any]]:
    """The relabeler that the settings name; the versions of it where the run itself trains it.

    `blobs`: where its weights are; `pages`: where the pages of episodes are; None: there, too.

    Raises:
        SettingsError: they name none.
        ModelFileError: the policy's folder cannot be loaded.

    """
    kind, most = settings.relabeler.kind, settings.relabeler.goals
    if kind == "rules":
        yield RuleRelabeler(most=most)
    elif kind == ENDPOINT:
        from actors.endpoint.client import Endpoint
        from actors.relabelers.endpoint import EndpointRelabeler

        async with Endpoint(
            settings.endpoint, memory=home_folder() / MEMORY, content=settings.telemetry.content
        ) as endpoint:
            yield EndpointRelabeler(endpoint, blobs=pages or blobs, most=most)
    elif kind == LEARNED:
        from actors.relabelers.learned import LearnedVersions
        from core.models.folders import policy_folder

        teacher = RuleRelabeler(most=most) if settings.relabeler.teacher else None
        folder = policy_folder(settings.policy.base)
        yield await asyncio.to_thread(
            LearnedVersions, folder, blobs=blobs, pages=pages or blobs, settings=settings, teacher=teacher
        )
    else:
        raise SettingsError(
            "relabeler.kind is empty: nothing is relabelled. Set it to rules, endpoint or learned."
        )
