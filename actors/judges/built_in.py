"""The judges that Hindcast brings. Each but `inspect` and `recorded`, whose options are their own, loads its module only when it is opened: two load torch."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hindcast.actors.judges.base import Judge, JudgeVersions
from hindcast.actors.judges.inspect_score import InspectOptions, InspectScoreJudge
from hindcast.actors.judges.plugin import JudgeContext, JudgePlugin, JudgeTraits
from hindcast.actors.judges.recorded_reward import RecordedOptions, RecordedRewardJudge
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import Settings
from hindcast.storage.blobs.store import BlobStore

NO_FOLDER = (
    "the judge webrl_orm has no model: judge.webrl_orm is empty. Set it to the folder of WebRL's published outcome reward "
    "model (docs/planners/orm.md)"
)


@asynccontextmanager
async def _open_rules(context: JudgeContext) -> AsyncIterator[Judge]:
    from hindcast.actors.judges.rules import RuleJudge

    yield RuleJudge()


@asynccontextmanager
async def _open_strict(context: JudgeContext) -> AsyncIterator[Judge]:
    from hindcast.actors.judges.strict import StrictJudge

    yield StrictJudge()


@asynccontextmanager
async def _open_endpoint(context: JudgeContext) -> AsyncIterator[Judge]:
    from hindcast.actors.judges.endpoint import EndpointJudge

    yield EndpointJudge(await context.endpoint())


@asynccontextmanager
async def _open_fuzzy(context: JudgeContext) -> AsyncIterator[Judge]:
    from hindcast.actors.judges.fuzzy import FuzzyJudge

    yield FuzzyJudge(await context.endpoint())


@asynccontextmanager
async def _open_inspect(context: JudgeContext) -> AsyncIterator[Judge]:
    yield InspectScoreJudge(context.options)


@asynccontextmanager
async def _open_recorded(context: JudgeContext) -> AsyncIterator[Judge]:
    yield RecordedRewardJudge(context.options)


@asynccontextmanager
async def _open_webrl_orm(context: JudgeContext) -> AsyncIterator[Judge]:
    _require_webrl_orm(context.settings)
    from hindcast.actors.judges.webrl_orm import open_webrl_orm

    async with open_webrl_orm(context.settings) as judge:
        yield judge


def _open_orm(settings: Settings, blobs: BlobStore) -> JudgeVersions:
    from hindcast.actors.judges.orm import OrmVersions
    from hindcast.core.models.folders import policy_folder

    return OrmVersions(policy_folder(settings.policy.base), blobs=blobs, settings=settings)


def _check_webrl_orm(settings: Settings) -> list[str]:
    return [] if settings.judge.webrl_orm else [NO_FOLDER]


def _require_webrl_orm(settings: Settings) -> None:
    """Assert that the folder of the judge `webrl_orm` holds a model here. Raises SettingsError."""
    folder = settings.judge.webrl_orm
    if not folder:
        raise SettingsError(NO_FOLDER)
    required = ["config.json", "tokenizer.json", "tokenizer_config.json"]
    missing = [name for name in required if not (Path(folder) / name).is_file()]
    if missing:
        raise SettingsError(
            f"judge.webrl_orm = {folder!r} is no folder of a model here: it lacks {', '.join(missing)}. Download WebRL's published "
            "outcome reward model (docs/planners/orm.md) and name its folder."
        )
    _require_positions(Path(folder) / "config.json", settings.judge.webrl_orm_tokens)


def _require_positions(config: Path, tokens: int) -> None:
    """Assert that a model's positions hold a prompt of so many tokens, where its configuration names them."""
    try:
        content = json.loads(config.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(
            f"{config} (judge.webrl_orm) cannot be read: {error}. Download it again."
        ) from error
    positions = content.get("max_position_embeddings") if isinstance(content, dict) else None
    if isinstance(positions, int) and positions < tokens:
        raise SettingsError(
            f"judge.webrl_orm_tokens = {tokens} is more than the {positions} positions of the model in {config.parent}: lower it"
        )


RULES = JudgePlugin(open=_open_rules)
STRICT = JudgePlugin(open=_open_strict)
ENDPOINT = JudgePlugin(open=_open_endpoint, traits=JudgeTraits(asks_endpoint=True, judges_any_goal=True))
FUZZY = JudgePlugin(open=_open_fuzzy, traits=JudgeTraits(asks_endpoint=True))
INSPECT = JudgePlugin(open=_open_inspect, options=InspectOptions)
RECORDED = JudgePlugin(open=_open_recorded, options=RecordedOptions)
ORM = JudgePlugin(versions=_open_orm, traits=JudgeTraits(judges_any_goal=True))
WEBRL_ORM = JudgePlugin(
    open=_open_webrl_orm,
    traits=JudgeTraits(judges_any_goal=True),
    check=_check_webrl_orm,
    require=_require_webrl_orm,
)
