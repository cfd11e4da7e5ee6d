"""Plain HTTP calls outside of the browser: to a site's back end, for resets, checks and control.

They bypass proxies of the environment and follow no redirects: headers with secrets stay where they were sent, and a
redirect to a login page is no success. Each is bounded as a whole: a slow server delays nothing else.
"""

import asyncio
import ssl
from collections.abc import Mapping
from functools import cache

import httpx2
import msgspec

CALL_S = 10.0
"""Time limit of one call, from the first byte sent to the last one read."""
MAX_ANSWER_BYTES = 1_000_000
"""Longer answers are cut."""


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a call."""

    status: int = 0
    body: bytes = b""
    error: str = ""
    """Why there is no response; empty: there is one."""

    @property
    def text(self) -> str:
        """The body as UTF-8; invalid bytes are replaced."""
        return self.body.decode("utf-8", "replace")


async def call(
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    timeout_s: float = CALL_S,
    max_bytes: int = MAX_ANSWER_BYTES,
) -> HttpResponse:
    """Call an address; every status is an answer. Never raises for failures of the server, or for an invalid address."""
    try:
        async with (
            asyncio.timeout(timeout_s),
            httpx2.AsyncClient(verify=_certificates(), trust_env=False, timeout=None) as client,
            client.stream(method, url, headers=dict(headers or {}), content=body) as response,
        ):
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) >= max_bytes:
                    break
            return HttpResponse(status=response.status_code, body=bytes(content[:max_bytes]))
    except TimeoutError:
        return HttpResponse(error=f"no whole answer within {timeout_s:g} s")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        return HttpResponse(error=f"{type(error).__name__}: {error}")


@cache
def _certificates() -> ssl.SSLContext:
    """Trusted certificates; reading them takes longer than a call."""
    return ssl.create_default_context()
