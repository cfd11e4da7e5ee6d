"""What every page of the store shares: catalogue, search, sessions, templates and notices."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from hindcast.actors.environments.store.catalogue import Catalogue, money, stars_text
from hindcast.actors.environments.store.search import StoreSearchIndex
from hindcast.actors.environments.store.session import CartLine, RequestRefused
from hindcast.actors.environments.store.sessions import Session, Sessions

COOKIE = "visit"
NOTES = {
    "colour": "Choose a colour first.",
    "size": "Choose a size first.",
    "quantity": "Choose a quantity from 1 to 5.",
    "cart_full": "The cart takes 8 different items.",
    "cart_empty": "The cart is empty.",
    "not_in_cart": "This item is not in the cart.",
    "ordered": "Thank you, the order is placed.",
    "cancelled": "The order is cancelled.",
    "too_late": "Only an order in processing can be cancelled.",
    "address": "Fill in name, street and city.",
    "saved": "The address is saved.",
    "stars": "Choose the stars first.",
    "text": "Write a few words first.",
    "reviewed": "Thank you for the review.",
}
"""Notices by the name in an address: a page never shows text from its address as a notice."""

_NO_STORE = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}

Handler: TypeAlias = Callable[[Request, Session], Awaitable[Response]]


class StoreShop:
    """The parts that the pages are made from."""

    def __init__(self, catalogue: Catalogue, sessions: Sessions) -> None:
        self.catalogue = catalogue
        self.sessions = sessions
        self.index = StoreSearchIndex(catalogue)
        self._templates = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.globals.update(
            money=money,
            stars_text=stars_text,
            product=catalogue.__getitem__,
            categories=tuple(catalogue.categories),
            options=options_text,
        )

    def page(
        self, session: Session, template: str, title: str, *, status: int = 200, **context: Any
    ) -> Response:
        """Render a page. Its `world-ordinal` counts the facts up to and including this request's."""
        body = self._templates.get_template(template).render(
            title=title,
            ordinal=len(session.journal),
            cart_count=sum(line.quantity for line in session.state.cart),
            state=session.state,
            **{"note": "", "query": "", **context},
        )
        return HTMLResponse(body, status_code=status, headers=_NO_STORE)

    def plain(self, title: str, text: str, *, status: int) -> Response:
        """A message page for a visitor without a session."""
        body = self._templates.get_template("plain.html").render(title=title, text=text)
        return HTMLResponse(body, status_code=status, headers=_NO_STORE)

    def refuse(self, session: Session, to: str, note: str) -> Response:
        """Record that a request was refused, and show `to` with the notice."""
        session.record(RequestRefused(note=note))
        return go(f"{to}{'&' if '?' in to else '?'}note={note}")

    def missing(self, session: Session, what: str) -> Response:
        """A message page for something that does not exist."""
        return self.page(
            session, "message.html", "Not found", status=404, text=f"The store has no such {what}."
        )

    def visitor(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Give a handler the session that the request's cookie names; without one, answer with a message page."""

        async def handle(request: Request) -> Response:
            session = self.sessions.get(request.cookies.get(COOKIE, ""))
            if session is None:
                return self.plain("No visit", "This visit has ended or never began.", status=403)
            if session.full:
                return self.page(
                    session,
                    "message.html",
                    "Visit over",
                    status=429,
                    text="This visit has seen too many pages.",
                )
            return await handler(request, session)

        return handle


def go(address: str) -> Response:
    """Redirect so that the next page is fetched with GET."""
    return RedirectResponse(address, status_code=303, headers=_NO_STORE)


def options_text(line: CartLine) -> str:
    """The options of a line, such as `red, large`; may be empty."""
    return ", ".join(part for part in (line.colour, line.size) if part)


def note_of(request: Request) -> str:
    """The notice that an address names; empty when it names none."""
    return NOTES.get(request.query_params.get("note", ""), "")


def number_of(text: str) -> int | None:
    """A whole number of at most nine digits; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None
