"""Opens the judges of a run, including trained ones and those behind an endpoint. Loads only what the settings ask for."""

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager

from hindcast.actors.judges.base import AnyJudge
from hindcast.actors.judges.registry import JUDGES, judge_named
from hindcast.actors.judges.trained_judges import JudgeVersions
from hindcast.app.runs.sources import Source
from hindcast.app.settings.checks.trained_models import require_webrl_orm
from hindcast.app.system.home import home_folder
from hindcast.core.prompts.webrl_verdict_prompt import WEBRL_ORM
from hindcast.core.rl.combined_state import ORM
from hindcast.core.settings.endpoint import ENDPOINT, FUZZY
from hindcast.core.settings.schema import Settings
from hindcast.storage.blobs.store import BlobStore

MEMORY = "endpoint"
"""Folder in the home that stores answers of endpoints, so that an equal question of any run is asked once."""


def shelf_for(names: Collection[str], settings: Settings, blobs: BlobStore) -> JudgeVersions | None:
    """The published versions of the reward model `orm`; None if it is not among these judges.

    Raises:
        ModelFileError: the policy's folder cannot be loaded.

    """
    if ORM not in names:
        return None
    from hindcast.actors.judges.orm import OrmVersions
    from hindcast.core.models.folders import policy_folder

    return OrmVersions(policy_folder(settings.policy.base), blobs=blobs, settings=settings)


@asynccontextmanager
async def open_judges(
    names: Collection[str], settings: Settings, blobs: BlobStore
) -> AsyncIterator[dict[str, AnyJudge]]:
    """Open the judges with one fixed version: those of every run, and the optional ones among the named judges.

    Raises:
        SettingsError: a named judge lacks its endpoint or its model in the settings.
        ModelFileError: the folder of `judge.webrl_orm` cannot be loaded.

    """
    judges = dict(JUDGES)
    async with AsyncExitStack() as opened:
        if {ENDPOINT, FUZZY} & set(names):
            from hindcast.actors.endpoint.client import Endpoint
            from hindcast.actors.judges.endpoint import EndpointJudge
            from hindcast.actors.judges.fuzzy import FuzzyJudge

            endpoint = await opened.enter_async_context(
                Endpoint(settings.endpoint, memory=home_folder() / MEMORY, content=settings.telemetry.content)
            )
            judges |= {ENDPOINT: EndpointJudge(endpoint, blobs=blobs), FUZZY: FuzzyJudge(endpoint)}
        if WEBRL_ORM in names:
            require_webrl_orm(names, settings)
            from hindcast.actors.judges.webrl_orm import open_webrl_orm

            judges[WEBRL_ORM] = await opened.enter_async_context(open_webrl_orm(settings, blobs))
        yield judges


@asynccontextmanager
async def open_judge(name: str, source: Source, settings: Settings) -> AsyncIterator[AnyJudge]:
    """Open one judge by name under these settings; `orm` in the newest version that the run has published.

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
        yield judge_named(name, judges)
