"""Finds settings that are each allowed but contradict each other."""

import math

from hindcast.actors.environments.plugin import find_environment
from hindcast.actors.scaffold.files import check_states
from hindcast.app.alerts.alert import alert_conflicts
from hindcast.app.settings.checks.endpoint import endpoint_conflicts
from hindcast.app.settings.checks.prompts import prompt_conflicts
from hindcast.app.settings.checks.storage_places import place_conflicts
from hindcast.app.settings.checks.trained_models import learned_conflicts
from hindcast.core.errors import SettingsError
from hindcast.core.models.engine import engine_conflicts
from hindcast.core.rl.algorithm import find_algorithm
from hindcast.core.settings.computing import ComputingSettings
from hindcast.core.settings.schema import Settings
from hindcast.core.text.addresses import split_address


def find_conflicts(settings: Settings) -> list[str]:
    """Describe every contradiction between settings in one sentence each; empty if there is none."""
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
        *_computing_conflicts(settings.learner),
    ]


def _acting_conflicts(settings: Settings) -> list[str]:
    """Contradictions between the actors' settings, the curriculum and the prompt."""
    curriculum, actors = settings.curriculum, settings.actors
    found = []
    if actors.episode_timeout_s >= settings.episode_lease_s:
        found.append(
            f"actors.episode_timeout_s = {actors.episode_timeout_s:g} must be shorter than curriculum.lease_s = "
            f"{curriculum.lease_s:g}, otherwise running episodes are given up; leave out curriculum.lease_s"
        )
    if actors.demonstration_reasoning and actors.answer_format != "thinking":
        found.append(
            "actors.demonstration_reasoning needs actors.answer_format = 'thinking': a plain answer contains no thought"
        )
    return [*found, *(_agent_conflicts(settings) if actors.agent else [])]


def _agent_conflicts(settings: Settings) -> list[str]:
    """What an agent of the user's own does not go together with."""
    curriculum, actors = settings.curriculum, settings.actors
    found = []
    if actors.answer_format != "text":
        found.append(
            f"actors.agent needs actors.answer_format = 'text', found {actors.answer_format!r}: the agent gets the whole answer. "
            "hindcast start --agent sets both"
        )
    closed = [name for name in curriculum.environments if not find_environment(name).takes_agents]
    if closed:
        found.append(
            f"actors.agent cannot play {', '.join(closed)}, whose pages are in our own browser: choose store, agent, or a Python "
            "class in curriculum.environments"
        )
    if curriculum.demonstrations:
        found.append(
            f"actors.agent needs curriculum.demonstrations = 0, found {curriculum.demonstrations}: demonstrations are played by "
            "our own actors"
        )
    if actors.screenshot_observation != "off":
        found.append(
            "actors.agent needs actors.screenshot_observation = 'off': what the agent sees is its own"
        )
    low, high = actors.agent_reward_range
    if not -math.inf < low < high < math.inf:
        found.append(
            f"actors.agent_reward_range = [{low:g}, {high:g}] must be two finite numbers, the lower one first"
        )
    if settings.scaffold.states:
        found.append("actors.agent needs scaffold.states = '': a scaffold chooses among actions on our pages")
    return found


def _algorithm_conflicts(settings: Settings) -> list[str]:
    """Contradictions between the algorithm, its options, the curriculum and the actors."""
    curriculum, actors, learner = settings.curriculum, settings.actors, settings.learner
    algorithm = find_algorithm(learner.algorithm)
    found = algorithm.check(settings)
    if learner.cloning_updates and curriculum.demonstrations == 0:
        found.append(
            "curriculum.demonstrations = 0 leaves no demonstrations for learner.cloning_updates to imitate"
        )
    if learner.loss_on == "answer" and actors.answer_format != "thinking":
        found.append(
            "learner.loss_on = 'answer' needs actors.answer_format = 'thinking': a plain answer contains no thought"
        )
    return found


def _evolution_conflicts(settings: Settings) -> list[str]:
    """Contradictions between task generation and the phases that use the tasks."""
    evolution, learner = settings.evolution, settings.learner
    found = []
    if evolution.generator and not learner.phase_episodes:
        found.append(
            f"evolution.generator = {evolution.generator!r} generates tasks for every phase after the first, and "
            "with learner.phase_episodes = 0 a run has one phase: set it to the number of episodes of a phase"
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
            f"scaffold.constrained needs actors.answer_format = 'plain', found {settings.actors.answer_format!r}; scaffold.stages = 2 "
            "lets the policy think before it answers"
        )
    return found


def _computing_conflicts(learner: ComputingSettings) -> list[str]:
    """Contradictions between the learner's device, precision, attention and processes."""
    found = []
    if learner.attention == "flash_attention_2" and (learner.precision, learner.device) != ("bf16", "cuda"):
        found.append(
            f"learner.attention = 'flash_attention_2' needs learner.precision = 'bf16' and learner.device = 'cuda', not "
            f"{learner.precision!r} and {learner.device!r}"
        )
    if learner.processes > 1 and learner.offload_optimizer:
        found.append(
            f"learner.offload_optimizer reduces the memory of a single process, and with learner.processes = {learner.processes} "
            "each process already holds only its part of AdamW's state: leave it off"
        )
    return found


def _database_conflicts(address: str) -> list[str]:
    if not address:
        return []
    from hindcast.storage.readmodel.address import (
        parse,  # imports SQLAlchemy, which most processes never need
    )

    try:
        parse(address)
    except SettingsError as error:
        return [str(error)]
    return []


def _collector_conflicts(endpoint: str) -> list[str]:
    if not endpoint:
        return []
    parts = split_address(endpoint)
    if parts.password is not None or parts.username is not None:
        return [
            "telemetry.otlp_endpoint contains a password or a token, and settings are recorded in the log. Set it in the "
            "environment of the processes instead: OTEL_EXPORTER_OTLP_HEADERS=authorization=…"
        ]
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        return [
            f"telemetry.otlp_endpoint = {endpoint!r} must be the address of a collector that takes OTLP over HTTP, such as "
            "http://127.0.0.1:4318"
        ]
    return []
