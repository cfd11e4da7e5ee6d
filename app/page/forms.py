"""Forms of the page. Each appends one fact to a run, except that for the index of pages, which writes a file of its own.

Three checks keep other sites from sending a form in a visitor's name: the browser's `Origin` must be this page, the form
must contain the CSRF token of this server, and the guard must have admitted the visitor (`app.page.guard`).
"""

import asyncio
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from hindcast.app.page.runs import OpenRuns
from hindcast.app.runs.controls import Command, ask_run, dispute, this_user
from hindcast.core.errors import SettingsError
from hindcast.core.text.addresses import split_address

FIELD = "form"
"""Name of the form field with the CSRF token."""
MOST_BYTES = 16_384
"""Largest form in bytes."""
COMMANDS: dict[str, Command] = {"pause": "pause", "resume": "resume", "drain": "drain"}
"""Commands that a page offers."""
FORM = "application/x-www-form-urlencoded"


class FormHandler:
    """Handles forms."""

    def __init__(self, runs: OpenRuns) -> None:
        self._runs = runs
        self._one_at_a_time = asyncio.Lock()
        """Lock: each fact is folded into the read model at once, one at a time."""
        self.word = secrets.token_urlsafe(16)
        """CSRF token of this server process; it changes at a restart."""

    def routes(self) -> list[Route]:
        """Routes of the forms."""
        return [
            Route("/{run}/control", self.control, methods=["POST"]),
            Route("/{run}/page-index", self.page_index, methods=["POST"]),
            Route("/{run}/episodes/{episode}/dispute", self.dispute, methods=["POST"]),
        ]

    async def control(self, request: Request) -> Response:
        """Pause, resume or drain the run. Raises HindcastError."""
        said = await self._form(request)
        run = self._runs.open(request.path_params["run"]).handle
        asked, reason = said.get("command", ""), said.get("reason", "").strip()
        command = COMMANDS.get(asked)
        if command is None:
            raise SettingsError(f"a page can pause, resume and drain a run, not {asked[:40]!r} it")
        given = {"of": said["of"]} if command == "resume" and said.get("of") else {}
        async with self._one_at_a_time:
            await ask_run(run, command, author=this_user(), reason=reason, arguments=given)
        return _back(f"/{run.name}/")

    async def dispute(self, request: Request) -> Response:
        """Dispute a verdict on an episode. Raises HindcastError."""
        said = await self._form(request)
        run = self._runs.open(request.path_params["run"]).handle
        episode = request.path_params["episode"]
        async with self._one_at_a_time:
            await dispute(
                run,
                episode,
                outcome=said.get("outcome", ""),
                author=said.get("author", "").strip() or this_user(),
                reason=said.get("reason", ""),
                judge=said.get("judge") or None,
            )
        return _back(f"/{run.name}/episodes/{episode}")

    async def page_index(self, request: Request) -> Response:
        """Begin to index the texts of the run's pages, or delete the index. Raises HindcastError."""
        said = await self._form(request)
        run = self._runs.open(request.path_params["run"]).handle
        match said.get("command", ""):
            case "index":
                self._runs.indexing.start(run)
            case "delete":
                await self._runs.indexing.delete(run)
            case other:
                raise SettingsError(f"a page can index pages and delete the index, not {other[:40]!r}")
        return _back(f"/{run.name}/episodes")

    async def _form(self, request: Request) -> Mapping[str, str]:
        """The fields of a valid form. Raises HTTPException."""
        origin = split_address(request.headers.get("origin", "")).netloc
        if not origin or origin != request.headers.get("host"):
            raise HTTPException(403, "This form was not sent from this page; nothing was recorded.")
        if request.headers.get("content-type", "").partition(";")[0] != FORM:
            raise HTTPException(415, f"A form is sent as {FORM}.")
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise HTTPException(413, f"A form is at most {MOST_BYTES} bytes long; nothing was recorded.")
        said = dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
        if not secrets.compare_digest(said.get(FIELD, "").encode(), self.word.encode()):
            raise HTTPException(
                403, "This form is of an earlier start of this page. Reload it; nothing was recorded."
            )
        return said


def _back(path: str) -> Response:
    return RedirectResponse(quote(path), status_code=303)
