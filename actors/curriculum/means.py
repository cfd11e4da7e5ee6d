"""What the curriculum draws from under given settings; made anew when they change."""

from collections.abc import Callable, Collection, Mapping

import msgspec

from actors.curriculum.choice import demonstrated_pool
from actors.curriculum.evolving import Evolver
from actors.curriculum.inventing import Inventor
from actors.curriculum.pool import Pool, configured_pool, demonstrable_pool
from actors.curriculum.projection import PAIRING
from actors.curriculum.valuing import Valuer
from actors.environments.base import TaskSource
from actors.environments.web.tasks import ENVIRONMENT as RECORDED
from core.settings import Settings
from storage.blobs import BlobStore


class Means(msgspec.Struct, frozen=True):
    """Tasks, and who makes more of them."""

    pool: Pool
    demonstrable: Pool
    """The part of it that has a demonstrator."""
    evolver: Evolver


MakeMeans = Callable[[Settings], Means]


def pools(
    sources: Mapping[str, TaskSource], demonstrators: Collection[tuple[str, str]], settings: Settings
) -> tuple[Pool, Pool]:
    """The run's tasks, and those of them that can be shown.

    Raises:
        SettingsError: the settings name an environment or a family that does not exist, or want demonstrations where
            nobody can show any.

    """
    pool = configured_pool(sources, settings.curriculum)
    wanted = settings.curriculum.demonstrations
    recordable = any(family.partition("/")[0] == RECORDED for family in pool)
    early = 0 if recordable and settings.learner.algorithm != PAIRING else wanted
    shown = demonstrable_pool(pool, demonstrators, wanted=early)
    if settings.learner.algorithm == PAIRING:
        # a failure is compared with a demonstration of the same task: nothing else is attempted
        pool = shown = demonstrated_pool(shown, wanted=wanted, run_seed=settings.run.seed)
    return pool, shown


def means_by(
    *,
    sources: Mapping[str, TaskSource],
    demonstrators: Collection[tuple[str, str]],
    blobs: BlobStore,
    valuer: Valuer | None,
    inventor: Inventor | None,
) -> MakeMeans:
    """Makes the means for any settings, as `pools` raises."""

    def make(settings: Settings) -> Means:
        pool, shown = pools(sources, demonstrators, settings)
        evolver = Evolver(
            sources=sources, pool=pool, settings=settings, blobs=blobs, valuer=valuer, inventor=inventor
        )
        return Means(pool=pool, demonstrable=shown, evolver=evolver)

    return make
