"""Checks the endpoint's settings against each other and against the roles that send it requests."""

from contextlib import suppress

from hindcast.actors.judges.plugin import JUDGES, installed_judges
from hindcast.actors.relabelers.plugin import find_relabeler
from hindcast.core.errors import PluginError
from hindcast.core.plugins import plugin_names
from hindcast.core.settings.endpoint import ENDPOINT, EndpointSettings
from hindcast.core.settings.schema import Settings
from hindcast.core.text.addresses import split_address


def endpoint_conflicts(settings: Settings) -> list[str]:
    """Contradictions in the endpoint's settings, and between them and the judges, relabeler and task generator that use it."""
    endpoint = settings.endpoint
    found = _address_conflicts(endpoint) if endpoint.base_url else []
    bounds = {
        "judge.judges": ("judge.timeout_s", settings.judge.timeout_s),
        "relabeler.kind": ("relabeler.timeout_s", settings.relabeler.timeout_s),
    }
    asking = {
        "judge.judges": any(
            judge.traits.asks_endpoint for judge in installed_judges(settings.judge.judges).values()
        ),
        "relabeler.kind": _relabeler_asks(settings),
        "evolution.generator": settings.evolution.generator == ENDPOINT,
        "evolution.feasibility": bool(settings.evolution.generator)
        and settings.evolution.feasibility == ENDPOINT,
    }
    users = [name for name, asks in asking.items() if asks]
    if users and not (endpoint.base_url and endpoint.model):
        found.append(
            f"{' and '.join(users)} asks the endpoint, and endpoint.base_url or endpoint.model is empty: set both, for instance "
            "endpoint.base_url=http://127.0.0.1:8000/v1"
        )
    if settings.policy.base.partition(":")[0] == ENDPOINT:
        found.append(
            f"policy.base = {settings.policy.base!r}: a model behind an endpoint returns no log-probabilities of the tokens that it "
            "samples, so it cannot be trained. To evaluate it: hindcast eval --policy endpoint:MODEL"
        )
    if asking["evolution.generator"]:
        found += _text_goal_conflicts(settings)
    if endpoint.batch and not endpoint.remembered:
        found.append(
            "endpoint.batch = true needs endpoint.remembered = true: pending batches are stored with the cached answers, and "
            "without them a restart would send and pay for everything again"
        )
    for name in (one for one in users if one in bounds):
        key, limit_s = bounds[name]
        if limit_s < endpoint.timeout_s:
            found.append(
                f"{key} = {limit_s:g} is shorter than the time limit of one request (endpoint.timeout_s = {endpoint.timeout_s:g}): raise it"
            )
    return found


def _relabeler_asks(settings: Settings) -> bool:
    with suppress(PluginError):  # a recorded run may name one that is not installed
        return bool(settings.relabeler.kind) and find_relabeler(settings.relabeler.kind).traits.asks_endpoint
    return False


def _text_goal_conflicts(settings: Settings) -> list[str]:
    """Generated goals that are text need a judge of any goal and a feasibility check that can read them."""
    found = []
    first = installed_judges(settings.judge.judges[:1]).values()
    if not any(judge.traits.judges_any_goal for judge in first):
        every = installed_judges(plugin_names(JUDGES)).items()
        fitting = [name for name, judge in every if judge.traits.judges_any_goal]
        found.append(
            f"evolution.generator = 'endpoint' generates goals that are text, which not every judge can judge: judge.judges = "
            f"{list(settings.judge.judges)} must begin with {', '.join(fitting[:-1])} or {fitting[-1]}"
        )
    if settings.evolution.feasibility == "rules":
        found.append(
            "evolution.feasibility = 'rules' cannot check goals that are text and would reject every task of evolution.generator = "
            "'endpoint': set it to endpoint, which asks a model, or to none"
        )
    return found


def _address_conflicts(endpoint: EndpointSettings) -> list[str]:
    parts = split_address(endpoint.base_url)
    if parts.password is not None or parts.username is not None or parts.query:
        return [
            "endpoint.base_url contains a password, a token or a query, and settings are recorded in the log. Put the key into "
            f"the environment variable {endpoint.key_variable} (endpoint.key_variable)"
        ]
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return [
            f"endpoint.base_url = {endpoint.base_url!r} must be the address of an OpenAI-compatible server, such as "
            "http://127.0.0.1:8000/v1"
        ]
    return []
