"""The relabelers there are."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from actors.relabel.base import Relabeler
from actors.relabel.rules import RuleRelabeler
from app.judges import MEMORY
from app.supervisor import home_folder
from core.endpoint import ENDPOINT
from core.errors import SettingsError
from core.settings import Settings
from storage.blobs import BlobStore


@asynccontextmanager
async def open_relabeler(settings: Settings, blobs: BlobStore) -> AsyncIterator[Relabeler]:
    """The relabeler that the settings name. Raises SettingsError where they name none."""
    kind, most = settings.relabeler.kind, settings.relabeler.goals
    if kind == "rules":
        yield RuleRelabeler(most=most)
    elif kind == ENDPOINT:
        from actors.endpoint.client import Endpoint
        from actors.relabel.endpoint import EndpointRelabeler

        async with Endpoint(
            settings.endpoint, memory=home_folder() / MEMORY, content=settings.telemetry.content
        ) as endpoint:
            yield EndpointRelabeler(endpoint, blobs=blobs, most=most)
    else:
        raise SettingsError("relabeler.kind is empty: nothing is relabelled. Set it to rules or endpoint.")
