"""A server with the pages of the original WebShop's (its addresses, forms, ids and last page), to play on by URL.

Made for tests after the original's templates; the original itself needs Java and was not at hand.
"""

from collections.abc import Mapping
from html import escape
from json import dumps, loads
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from hindcast.actors.environments.webshop.evaluators import record_at
from hindcast.actors.environments.webshop.goals import WebshopGoal
from hindcast.actors.environments.webshop.reward import reward_of
from hindcast.actors.environments.webshop.shop import WebshopShop
from hindcast.actors.environments.webshop.views import WebshopLocation


def address(*parts: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in parts)


def button(text: str, to: str) -> str:
    return f'<form method="post" action="{escape(to)}"><button type="submit" class="btn">{escape(text)}</button></form>'


class OriginalPages:
    """Handlers; goals by their number in the test part."""

    def __init__(self, shop: WebshopShop) -> None:
        self._shop = shop
        self._goals = shop.families["test"]

    def _goal(self, session: str) -> WebshopGoal:
        return self._goals[int(session.split("_")[-1])]

    def _page(self, session: str, *body: str) -> Response:
        told = f'<div id="instruction-text"><h4>Instruction:<br>{escape(self._goal(session).instruction)}</h4></div>'
        return HTMLResponse(f"<!doctype html><html><body>{told}{''.join(body)}</body></html>")

    async def index(self, request: Request) -> Response:
        session = request.path_params["session"]
        if request.method == "POST":
            sent = (await request.body()).decode()
            if "search_query=" in sent:
                words = sent.partition("search_query=")[2].replace("+", " ")
                return RedirectResponse(address("search_results", session, words, "1"), status_code=302)
        form = '<input id="search_input" name="search_query" placeholder="Search..." required><button>Search</button>'
        return self._page(session, f'<form method="post" action="{address(session)}">{form}</form>')

    async def results(self, request: Request) -> Response:
        session, words, page = (request.path_params[name] for name in ("session", "keywords", "page"))
        found = self._shop.index.search(words)[(int(page) - 1) * 10 : int(page) * 10]
        links = [
            f'<h4><a class="product-link" href="{address("item_page", session, one.asin, words, page, "{}")}">'
            f"{one.asin}</a></h4><h4>{escape(one.title)}</h4>"
            for one in found
        ]
        next_page = address("search_results", session, words, str(int(page) + 1))
        return self._page(
            session, button("Back to Search", address(session)), button("Next >", next_page), *links
        )

    async def item(self, request: Request) -> Response:
        given: Mapping[str, str] = request.path_params
        session, asin, words, page = (given[name] for name in ("session", "asin", "keywords", "page"))
        options: dict[str, str] = loads(given["options"])
        product = self._shop.get(asin)
        assert product is not None
        radios = [
            f'<input type="radio" name="{escape(name)}" id="{number}{escape(name)}" '
            f'{"checked" if options.get(name) == value else ""} onclick="location.href=this.dataset.url" '
            f'data-url="{address("item_page", session, asin, words, page, dumps(options | {name: value}))}">'
            f'<label for="{number}{escape(name)}">{escape(value)}</label>'
            for name, values in product.options.items()
            for number, value in enumerate(values)
        ]
        buy = button("Buy Now", address("done", session, asin, dumps(options)))
        return self._page(session, *radios, f"<h2>{escape(product.title)}</h2>", buy)

    async def done(self, request: Request) -> Response:
        given: Mapping[str, str] = request.path_params
        goal = self._goal(given["session"])
        bought = WebshopLocation(
            goal=goal.digest, kind="done", asin=given["asin"], options=loads(given["options"])
        )
        record = record_at(self._shop, bought, goal)
        assert record.bought is not None
        assert record.nouns is not None
        score = reward_of(record.bought, goal, record.nouns).total
        return HTMLResponse(
            '<html><body><div id="thankyou"><h1>Thank you for shopping with us!</h1></div><div id="stats">'
            f'<h3 id="reward">Your score (min 0.0, max 1.0)<pre>{score}</pre></h3></div></body></html>'
        )


def original_app(shop: WebshopShop) -> Starlette:
    """The server as an ASGI application."""
    pages = OriginalPages(shop)
    both = ["GET", "POST"]
    return Starlette(
        routes=[
            Route("/search_results/{session}/{keywords}/{page}", pages.results, methods=both),
            Route("/item_page/{session}/{asin}/{keywords}/{page}/{options}", pages.item, methods=both),
            Route("/done/{session}/{asin}/{options}", pages.done, methods=both),
            Route("/{session}", pages.index, methods=both),
        ]
    )
