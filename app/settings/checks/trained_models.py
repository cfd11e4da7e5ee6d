"""Settings of the models that a run trains or judges with, apart from its policy, as far as they do not go together."""

import json
from collections.abc import Collection
from pathlib import Path
from urllib.parse import urlsplit

from hindcast.core.errors import SettingsError
from hindcast.core.prompts.webrl_verdict_prompt import WEBRL_ORM
from hindcast.core.rl.combined_state import ORM
from hindcast.core.settings.schema import Settings

NO_FOLDER = (
    f"the judge {WEBRL_ORM} has no model: judge.webrl_orm is empty. Set it to the folder of WebRL's published outcome reward "
    "model (docs/planners/orm.md)"
)


def learned_conflicts(settings: Settings) -> list[str]:
    """What is wrong with the outcome reward model's and the learned relabeler's settings, in words."""
    found: list[str] = []
    learner, evolution = settings.learner, settings.evolution
    judges = settings.judge.judges
    missing = [name for name in (ORM, learner.orm_truth) if name not in judges]
    if learner.orm_every and missing:
        found.append(
            f"learner.orm_every = {learner.orm_every} trains the judge {ORM} on what it reads and on the verdicts of "
            f"{learner.orm_truth} (learner.orm_truth), and judge.judges lacks {' and '.join(missing)}: add it"
        )
    if learner.orm_every and learner.orm_truth == ORM:
        found.append(
            f"learner.orm_truth = {ORM!r} would teach the model its own verdicts: name another judge"
        )
    if WEBRL_ORM in judges and not settings.judge.webrl_orm:
        found.append(NO_FOLDER)
    if settings.judge.webrl_orm_server and not _is_address(settings.judge.webrl_orm_server):
        found.append(
            f"judge.webrl_orm_server = {settings.judge.webrl_orm_server!r} must be the address of a vLLM server, such as "
            "http://127.0.0.1:8000"
        )
    learned = settings.relabeler.kind == "learned"
    if learned != bool(learner.relabeler_every):
        found.append(
            f"relabeler.kind = {settings.relabeler.kind!r} and learner.relabeler_every = {learner.relabeler_every} do not go "
            "together: the learner trains the relabeler learned, and that alone"
        )
    if settings.relabeler.teacher and not learned:
        found.append(
            f"relabeler.teacher = {settings.relabeler.teacher!r} teaches nobody: relabeler.kind = "
            f"{settings.relabeler.kind!r} is not learned"
        )
    if evolution.valued_by == ORM and not (evolution.generator and learner.orm_every):
        found.append(
            "evolution.valued_by = 'orm' values generated tasks by a model that the run trains: it needs evolution.generator and "
            "learner.orm_every"
        )
    return found


def require_webrl_orm(names: Collection[str], settings: Settings) -> None:
    """Assert that the folder of the judge `webrl_orm`, where that is among these judges, holds a model here.

    Raises SettingsError.
    """
    if WEBRL_ORM not in names:
        return
    named = settings.judge.webrl_orm
    if not named:
        raise SettingsError(NO_FOLDER)
    wanted = ["config.json", "tokenizer.json", "tokenizer_config.json"]
    missing = [name for name in wanted if not (Path(named) / name).is_file()]
    if missing:
        raise SettingsError(
            f"judge.webrl_orm = {named!r} is no folder of a model here: it lacks {', '.join(missing)}. Download WebRL's published "
            "outcome reward model (docs/planners/orm.md) and name its folder."
        )
    _require_positions(Path(named) / "config.json", settings.judge.webrl_orm_tokens)


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


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False
