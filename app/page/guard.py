"""Access control of the page: visitors must show its token; and headers that restrict what a browser may do with it.

A browser shows the token once, in the printed address, and gets a cookie; a program sends it with each request
(`Authorization: Bearer TOKEN`). Loopback alone does not exclude other users of the machine.

Everything that a page of a site or a model wrote is shown as text. The policy below allows nothing but our own style sheet
and script, so that even a mistake in a template runs nothing.
"""

import secrets
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "hindcast"
"""Prefix of the cookie's name; the port follows, because a browser sends cookies to all ports of a machine."""
QUERY = "token"
REFUSED = """This page asks for its token.

Open the address that `hindcast start` or `hindcast page` printed; `hindcast page --address` prints it again for a system that
runs. A program sends `Authorization: Bearer TOKEN`, with the token from the file secrets/page of the home.
"""
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with none at all a browser would not say where a form comes from
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on this host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Passes requests to an application, or answers them itself."""

    def __init__(self, app: ASGIApp, *, host: str, token: str) -> None:
        """`token`: the token that a visitor must show."""
        assert token, "an empty token would let everybody in"
        self._app, self._host, self._token = app, host, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; every answer has `HEADERS`."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, sending)

    def _refusal(self, request: Request) -> Response | None:
        """The refusal, or the redirect that sets the cookie; None if the request is admitted."""
        # a foreign host name that resolves to this machine must not open it (DNS rebinding)
        try:
            name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        except ValueError:  # an unclosed bracket
            name = ""
        if is_loopback(self._host) and not is_loopback(name):
            return PlainTextResponse(
                f"This page answers under its own address only, not as {name!r}.\n", status_code=421
            )
        cookie = f"{COOKIE}-{request.scope['server'][1]}"
        if self._is_token(request.query_params.get(QUERY, "")):
            answer = RedirectResponse(str(request.url.remove_query_params(QUERY)), status_code=303)
            answer.set_cookie(cookie, self._token.decode(), httponly=True, samesite="strict")
            return answer
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        if self._is_token(request.cookies.get(cookie, "")) or (
            scheme.lower() == "bearer" and self._is_token(sent.strip())
        ):
            return None
        return PlainTextResponse(REFUSED, status_code=401, headers={"www-authenticate": "Bearer"})

    def _is_token(self, shown: str) -> bool:
        return secrets.compare_digest(shown.encode(), self._token)
