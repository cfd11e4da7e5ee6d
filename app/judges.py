"""Judges of a run, that one included which the run trains itself. Loads torch only where that one is asked for."""

from collections.abc import Collection

from actors.judge.base import AnyJudge
from actors.judge.judges import judge_named
from actors.judge.shelf import Shelf
from app.sources import Source
from core.settings import Settings
from core.states import ORM
from storage.blobs import BlobStore


def shelf_for(names: Collection[str], settings: Settings, blobs: BlobStore) -> Shelf | None:
    """Where `orm` comes from; None: it is not among these judges.

    Raises:
        ModelFileError: the policy's folder cannot be loaded.

    """
    if ORM not in names:
        return None
    from actors.judge.orm import OrmVersions
    from core.models.policy import policy_folder

    return OrmVersions(policy_folder(settings.policy.base), blobs=blobs, settings=settings)


async def judge_for(name: str, source: Source) -> AnyJudge:
    """A judge by its name; `orm` in the newest version that the run has published.

    Raises:
        SettingsError: there is no such judge.
        ModelFileError, BlobCorrupt: the model cannot be loaded.

    """
    shelf = shelf_for((name,), source.settings, source.blobs)
    if shelf is None:
        return judge_named(name)
    async with source.connect_log() as log:
        return await shelf.begin(log)
