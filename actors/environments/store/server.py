"""The store's web server: routes, message pages for errors, start and stop.

It serves HTTP requests on loopback with pages and, through the control API, with the records that evaluators read. State
is in this process alone: restarting it ends all visits.
"""

import secrets
import time
from collections.abc import Callable
from hmac import compare_digest
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hindcast.actors.environments.store.catalogue import Catalogue, catalogue_of
from hindcast.actors.environments.store.forms import BodyTooLarge, Forms
from hindcast.actors.environments.store.pages import COOKIE, StorePages, StoreShop, go
from hindcast.actors.environments.store.session import (
    HEADER,
    Opening,
    Session,
    Sessions,
    VisitRecord,
)
from hindcast.actors.environments.webshop.server import webshop_routes
from hindcast.actors.web_server import serve_app
from hindcast.core.settings.schema import SiteSettings
from hindcast.core.structs import decode_json

MAX_BODY_BYTES = 64 * 1024


def _answer(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


class Control:
    """Handlers of /_control/."""

    def __init__(
        self, catalogue: Catalogue, sessions: Sessions, *, token: str, products: int, catalogue_seed: int
    ) -> None:
        self._catalogue = catalogue
        self._sessions = sessions
        self._token = token.encode()
        self._products = products
        self._catalogue_seed = catalogue_seed

    def _refused(self, request: Request) -> Response | None:
        sent_token = request.headers.get(HEADER, "").encode("utf-8", "replace")
        if compare_digest(sent_token, self._token):
            return None
        return _answer({"error": f"the header {HEADER} is missing or wrong"}, 403)

    async def open(self, request: Request) -> Response:
        """POST {task} -> {token}."""
        if (refused := self._refused(request)) is not None:
            return refused
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                return _answer({"error": f"the task is larger than {MAX_BODY_BYTES} bytes"}, 413)
        try:
            task = decode_json(body, Opening).task
        except msgspec.DecodeError as error:
            return _answer({"error": f"not a task: {error}"}, 400)
        made_for = task.goal.get("catalogue", self._catalogue.name)
        if made_for != self._catalogue.name:
            text = (
                f"task {task.id} was made for catalogue {made_for}, this store shows {self._catalogue.name}: "
                "use the same sites.products and sites.catalogue_seed for tasks and store"
            )
            return _answer({"error": text}, 409)
        return _answer(
            {"token": self._sessions.open(Session(self._catalogue, family=task.family, seed=task.seed))}
        )

    async def read(self, request: Request) -> Response:
        """GET -> VisitRecord."""
        if (refused := self._refused(request)) is not None:
            return refused
        session = self._sessions.get(request.path_params["token"])
        if session is None:
            return _answer(
                {"error": "no such session: it ended, expired, or was pushed out by newer ones"}, 404
            )
        return _answer(
            VisitRecord(
                catalogue=self._catalogue.name,
                products=self._products,
                catalogue_seed=self._catalogue_seed,
                family=session.family,
                seed=session.seed,
                opening=session.opening,
                journal=tuple(session.journal),
                state=session.state,
            )
        )

    async def close(self, request: Request) -> Response:
        """DELETE: end a session. Ending one that is gone is no error."""
        if (refused := self._refused(request)) is not None:
            return refused
        return _answer({"closed": self._sessions.close(request.path_params["token"])})


def create_app(settings: SiteSettings, *, control_token: str) -> Starlette:
    """The whole store as an ASGI application. `control_token` must not be empty."""
    if not control_token:
        raise ValueError("the store needs a control token of at least one character")
    catalogue = catalogue_of(settings)
    sessions = Sessions(clock=time.monotonic, token=lambda: secrets.token_urlsafe(18))
    shop = StoreShop(catalogue, sessions)
    pages, forms = StorePages(shop), Forms(shop)
    control = Control(
        catalogue,
        sessions,
        token=control_token,
        products=settings.products,
        catalogue_seed=settings.catalogue_seed,
    )

    async def enter(request: Request) -> Response:
        token = request.path_params["token"]
        if sessions.get(token) is None:
            return shop.message_page("No visit", "This visit has ended or never began.", status=404)
        answer = go("/")
        answer.set_cookie(COOKIE, token, httponly=True, samesite="lax", path="/")
        return answer

    async def health(request: Request) -> Response:
        return PlainTextResponse(f"ok {catalogue.name}\n")

    async def worded(request: Request, error: Exception) -> Response:
        if isinstance(error, BodyTooLarge):
            return shop.message_page("Too much", f"The store did not take this: {error}.", status=413)
        status = error.status_code if isinstance(error, HTTPException) else 500
        return shop.message_page(
            "Not possible", "The store does not take this kind of request here.", status=status
        )

    visitor = shop.visitor
    pages_by_path = {
        "/": pages.home,
        "/search": pages.search,
        "/category/{name}": pages.category,
        "/product/{number}": pages.product,
        "/product/{number}/{part}": pages.product_part,
        "/cart": pages.cart,
        "/checkout": pages.checkout,
        "/wishes": pages.wishes,
        "/orders": pages.orders,
        "/orders/{number}": pages.order,
        "/account": pages.account,
        "/account/address": pages.address,
    }
    forms_by_path = {
        "/product/{number}/cart": forms.add,
        "/product/{number}/wish": forms.wish,
        "/product/{number}/write": forms.review,
        "/cart/remove": forms.remove,
        "/cart/quantity": forms.requantify,
        "/wishes/remove": forms.unwish,
        "/checkout": forms.place_order,
        "/orders/{number}/cancel": forms.cancel,
        "/account/address": forms.move,
    }
    routes = [
        Route("/_control/sessions", control.open, methods=["POST"]),
        Route("/_control/sessions/{token}", control.read, methods=["GET"]),
        Route("/_control/sessions/{token}", control.close, methods=["DELETE"]),
        Route("/_enter/{token}", enter, methods=["GET"]),
        Route("/_health", health, methods=["GET"]),
        *(Route(path, visitor(handler), methods=["POST"]) for path, handler in forms_by_path.items()),
        *(Route(path, visitor(handler), methods=["GET"]) for path, handler in pages_by_path.items()),
        *webshop_routes(settings),
        Route("/{rest:path}", visitor(pages.not_found_page), methods=["GET"]),
    ]
    return Starlette(
        routes=routes, exception_handlers={HTTPException: worded, BodyTooLarge: worded, 500: worded}
    )


async def serve(
    settings: SiteSettings,
    *,
    host: str,
    port: int,
    control_token: str,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until cancellation, then stop within a second. `ready` gets the base address.

    Port 0 takes a free one. Raises EnvironmentFailed when the port is taken.
    """
    app = create_app(settings, control_token=control_token)
    await serve_app(app, server_name="the store", host=host, port=port, ready=ready)
