"""Settings of the endpoint that are each allowed but do not go together, in words."""

from urllib.parse import urlsplit

from core.settings import Settings


def endpoint_conflicts(settings: Settings) -> list[str]:
    """What is wrong with how the endpoint is named and used."""
    endpoint = settings.endpoint
    if not endpoint.base_url:
        return []
    parts = urlsplit(endpoint.base_url)
    if parts.password is not None or parts.username is not None or parts.query:
        return [
            "endpoint.base_url holds a password, a token or a query, which settings do not: they are recorded. Put the key into "
            f"the environment variable {endpoint.key_variable} (endpoint.key_variable)"
        ]
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return [
            f"endpoint.base_url = {endpoint.base_url!r} must be the address of an OpenAI-compatible server, such as "
            "http://127.0.0.1:8000/v1"
        ]
    return []
