"""Values that are each allowed but do not go together, in words: what the schema of one setting cannot say."""

from urllib.parse import urlsplit

from hindcast.actors.scaffold.files import check_states
from hindcast.app.alerts.alert import alert_conflicts
from hindcast.app.settings.checks.computing import computing_conflicts
from hindcast.app.settings.checks.endpoint import endpoint_conflicts
from hindcast.app.settings.checks.prompts import prompt_conflicts
from hindcast.app.settings.checks.storage_places import place_conflicts
from hindcast.app.settings.checks.trained_models import learned_conflicts
from hindcast.core.errors import SettingsError
from hindcast.core.models.engine import engine_conflicts
from hindcast.core.rl.algorithm import find_algorithm
from hindcast.core.settings.schema import Settings


def find_conflicts(settings: Settings) -> list[str]:
    """Every pair of settings that contradict each other, one sentence each; empty: they go together."""
    return [
        *_acting_conflicts(settings),
        *prompt_conflicts(settings),
        *_scaffold_conflicts(settings),
        *_algorithm_conflicts(settings),
        *_evolution_conflicts(settings),
        *learned_conflicts(settings),
        *_database_conflicts(settings.storage.database),
        *_collector_conflicts(settings.telemetry.otlp_endpoint),
        *alert_conflicts(settings),
        *place_conflicts(settings),
        *endpoint_conflicts(settings),
        *engine_conflicts(settings),
        *computing_conflicts(settings.learner),
    ]


def _acting_conflicts(settings: Settings) -> list[str]:
    """What actors are told against what the curriculum and the prompt expect of them."""
    curriculum, actors = settings.curriculum, settings.actors
    found = []
    if actors.episode_timeout_s >= curriculum.lease_s:
        found.append(
            f"actors.episode_timeout_s = {actors.episode_timeout_s:g} must be shorter than curriculum.lease_s = "
            f"{curriculum.lease_s:g}, else episodes that still run are given up"
        )
    if actors.demonstration_reasoning and actors.answer_format != "thinking":
        found.append(
            "actors.demonstration_reasoning needs actors.answer_format = 'thinking': a plain answer has no place for a thought"
        )
    return found


def _algorithm_conflicts(settings: Settings) -> list[str]:
    """What an algorithm needs of the curriculum, of the actors and of its own settings."""
    curriculum, actors, learner = settings.curriculum, settings.actors, settings.learner
    algorithm = find_algorithm(learner.algorithm)
    found = algorithm.check(settings)
    if learner.cloning_updates and curriculum.demonstrations == 0:
        found.append("curriculum.demonstrations = 0 leaves learner.cloning_updates nothing to imitate")
    if learner.loss_on == "answer" and actors.answer_format != "thinking":
        found.append(
            "learner.loss_on = 'answer' needs actors.answer_format = 'thinking': a plain answer has no thought to leave out"
        )
    return found


def _evolution_conflicts(settings: Settings) -> list[str]:
    """Tasks that are generated against phases that would use them."""
    evolution, learner = settings.evolution, settings.learner
    found = []
    if evolution.generator and not learner.phase_episodes:
        found.append(
            f"evolution.generator = {evolution.generator!r} makes tasks for every phase after the first, and "
            "learner.phase_episodes = 0 leaves the run one phase: say how many episodes fill a phase"
        )
    if evolution.value_low > evolution.value_high:
        found.append(
            f"evolution.value_low = {evolution.value_low:g} is above evolution.value_high = {evolution.value_high:g}: no "
            "task would be admitted"
        )
    return found


def _scaffold_conflicts(settings: Settings) -> list[str]:
    scaffold = settings.scaffold
    found = []
    try:
        check_states(scaffold.states)
    except SettingsError as error:
        found.append(str(error))
    if scaffold.states and scaffold.constrained and settings.actors.answer_format != "plain":
        found.append(
            f"scaffold.constrained knows answers of the form 'plain' alone, and actors.answer_format = "
            f"{settings.actors.answer_format!r}: its own form of thinking first is scaffold.stages = 2"
        )
    return found


def _database_conflicts(address: str) -> list[str]:
    if not address:
        return []
    from hindcast.storage.readmodel.address import parse  # SQLAlchemy, which most processes never need

    try:
        parse(address)
    except SettingsError as error:
        return [str(error)]
    return []


def _collector_conflicts(endpoint: str) -> list[str]:
    if not endpoint:
        return []
    parts = urlsplit(endpoint)
    if parts.password is not None or parts.username is not None:
        return [
            "telemetry.otlp_endpoint holds a password or a token, which settings do not: they are recorded. Give it to the "
            "processes in their environment instead: OTEL_EXPORTER_OTLP_HEADERS=authorization=…"
        ]
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        return [
            f"telemetry.otlp_endpoint = {endpoint!r} must be the address of a collector that takes OTLP over HTTP, such as "
            "http://127.0.0.1:4318"
        ]
    return []
