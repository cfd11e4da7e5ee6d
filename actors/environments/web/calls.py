"""Plain HTTP calls to a user's back end, outside of the browser: resets and checks."""

import asyncio
import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import msgspec

CALL_S = 10.0
"""One call."""
MAX_ANSWER_BYTES = 1_000_000
"""Longer answers are cut."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    status: int = 0
    text: str = ""
    error: str = ""
    """Why nothing did."""


async def call(
    url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Answer:
    """Call an address, past any proxy of the environment; every status is an answer. Never raises for what happens there."""
    return await asyncio.to_thread(_call, url, method, dict(headers or {}), body)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: headers with secrets stay where they were sent, and the login page that a stranger is led to is no
    success.
    """

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: the redirect itself is the answer."""
        return


def _call(url: str, method: str, headers: dict[str, str], body: bytes | None) -> Answer:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay())
    try:
        request = urllib.request.Request(url, data=body, method=method, headers=headers)
        with opener.open(request, timeout=CALL_S) as response:
            return _answer(response.status, response.read(MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            return _answer(error.code, error.read(MAX_ANSWER_BYTES))
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Answer(error=f"{type(error).__name__}: {error}")


def _answer(status: int, body: bytes) -> Answer:
    return Answer(status=status, text=body.decode("utf-8", "replace"))
