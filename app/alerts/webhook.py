"""Sends an alert as an HTTP POST: one JSON object, with a key by which a receiver recognizes repetitions."""

import http.client
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import msgspec

from hindcast.app.alerts.incidents import AlertMessage
from hindcast.core.errors import HindcastError, SettingsError
from hindcast.core.text.addresses import split_address

TIMEOUT_S = 10.0


class WebhookFailed(HindcastError):
    """The receiver of alerts does not answer, or refuses an alert. It is sent again later."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: an alert goes only to the address that the user gave."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def require_webhook(url: str) -> None:
    """Raise SettingsError for an address that cannot receive alerts."""
    address = split_address(url)
    if address.scheme not in ("http", "https") or not address.hostname or address.port == 0:
        raise SettingsError(f"--webhook {url!r} is no address: give http://… or https://…")
    if "@" in address.netloc:  # urllib would resolve all of it as a host
        raise SettingsError(
            "--webhook takes no user and password in the address: let its path hold the secret"
        )


def post(url: str, message: AlertMessage) -> None:
    """Send a message and wait for the answer. Raises WebhookFailed."""
    key = f"{message.run}/{message.id}/{'over' if message.over else 'begun'}"
    request = urllib.request.Request(
        url,
        data=msgspec.json.encode(message),
        headers={"content-type": "application/json", "idempotency-key": key, "user-agent": "hindcast"},
        method="POST",
    )
    host = urlsplit(url).netloc.rpartition("@")[2]
    try:
        with _opener.open(request, timeout=TIMEOUT_S):
            return
    except urllib.error.HTTPError as error:
        raise WebhookFailed(f"the webhook at {host} answered {error.code} to alert {message.id}") from error
    except (OSError, http.client.HTTPException) as error:  # HTTPException: the answer is not HTTP
        raise WebhookFailed(f"the webhook at {host} does not answer: {error}") from error
