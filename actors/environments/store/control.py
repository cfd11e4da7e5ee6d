"""The control API: opens, reads and ends sessions. It requires the control token, which no page contains."""

from hmac import compare_digest
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from hindcast.actors.environments.store.catalogue import Catalogue
from hindcast.actors.environments.store.session import AnyFact, VisitorState
from hindcast.actors.environments.store.sessions import Session, Sessions
from hindcast.core.domain.task import Task

HEADER = "x-control-token"
MAX_BODY_BYTES = 64 * 1024


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """Body of POST /_control/sessions."""

    task: Task


class VisitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a visit: everything that an evaluator of the store reads (`Evidence.probes`)."""

    catalogue: str
    """Content digest of the catalogue."""
    products: int
    catalogue_seed: int
    family: str
    seed: int
    opening: VisitorState
    """State on arrival."""
    journal: tuple[AnyFact, ...]
    state: VisitorState
    """Final state: `opening` with the journal applied."""


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
        given = request.headers.get(HEADER, "").encode("utf-8", "replace")
        if compare_digest(given, self._token):
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
            task = msgspec.json.decode(body, type=Opening).task
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
