"""The read-only pages: everything a link leads to. Each appends one fact to the journal."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from hindcast.actors.environments.store.catalogue import (
    MAX_QUERY_CHARS,
    SORTS,
    Catalogue,
    Product,
    Sort,
    StoreSearchIndex,
    money,
    sorted_by,
    stars_text,
)
from hindcast.actors.environments.store.session import (
    CartLine,
    Listed,
    Order,
    OrderViewed,
    RequestRefused,
    Session,
    Sessions,
    Viewed,
    Visited,
)

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

    def message_page(self, title: str, text: str, *, status: int) -> Response:
        """A message page for a visitor without a session."""
        body = self._templates.get_template("plain.html").render(title=title, text=text)
        return HTMLResponse(body, status_code=status, headers=_NO_STORE)

    def refuse(self, session: Session, to: str, note: str) -> Response:
        """Record that a request was refused, and show `to` with the notice."""
        session.record(RequestRefused(note=note))
        return go(f"{to}{'&' if '?' in to else '?'}note={note}")

    def not_found_page(self, session: Session, noun: str) -> Response:
        """A message page for something that does not exist."""
        return self.page(
            session, "message.html", "Not found", status=404, text=f"The store has no such {noun}."
        )

    def product(self, request: Request) -> Product | None:
        """The product that an address names; None when there is none."""
        number = number_of(request.path_params["number"])
        return None if number is None else self.catalogue.get(number)

    def order(self, request: Request, session: Session) -> Order | None:
        """The visitor's order that an address names; None when there is none."""
        number = number_of(request.path_params["number"])
        return next((order for order in session.state.orders if order.number == number), None)

    def visitor(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Give a handler the session that the request's cookie names; without one, answer with a message page."""

        async def handle(request: Request) -> Response:
            session = self.sessions.get(request.cookies.get(COOKIE, ""))
            if session is None:
                return self.message_page("No visit", "This visit has ended or never began.", status=403)
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
    return ", ".join(option for option in (line.colour, line.size) if option)


def note_of(request: Request) -> str:
    """The notice that an address names; empty when it names none."""
    return NOTES.get(request.query_params.get("note", ""), "")


def number_of(text: str) -> int | None:
    """A whole number of at most nine digits; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


PER_PAGE = 8
PRICE_BANDS: dict[str, tuple[str, int, int]] = {
    "25": ("under $25", 0, 2500),
    "50": ("$25 to $50", 2500, 5000),
    "100": ("$50 to $100", 5000, 10_000),
    "more": ("over $100", 10_000, 1_000_000_000),
}
"""Value in the address -> label, lowest price, first price above."""
PARTS = {
    "description": "Description",
    "features": "Features",
    "reviews": "Reviews",
    "write": "Write a review",
}
SORT_LABELS: dict[Sort, str] = {
    "relevance": "Relevance",
    "price": "Cheapest first",
    "rating": "Best rated first",
}


class ListingFilter(msgspec.Struct, frozen=True, kw_only=True):
    """How a list of products is filtered, sorted and paged."""

    query: str
    category: str
    noun: str
    sort: Sort
    band: str
    page: int

    @classmethod
    def of(cls, request: Request, *, category: str | None = None) -> "ListingFilter":
        """Parse an address; invalid values count as absent."""
        parameters = request.query_params
        sort = parameters.get("sort", "")
        band = parameters.get("price", "")
        return cls(
            query=" ".join(parameters.get("q", "")[:MAX_QUERY_CHARS].split()),
            category=parameters.get("category", "")[:40] if category is None else category,
            noun=parameters.get("noun", "")[:40],
            sort=next((order for order in SORTS if order == sort), "relevance"),
            band=band if band in PRICE_BANDS else "",
            page=max(1, number_of(parameters.get("page", "1")) or 1),
        )

    def keeps(self, product: Product) -> bool:
        """Whether a product passes the filters."""
        low, high = PRICE_BANDS[self.band][1:] if self.band else (0, 1_000_000_000)
        return (
            self.category in ("", product.category)
            and self.noun in ("", product.noun)
            and low <= product.price_cents < high
        )

    def address(self, path: str, **changes: str | int) -> str:
        """The address of this list with changes; a changed filter or order leads to the first page."""
        parameters: dict[str, str | int] = {
            "q": self.query,
            "noun": self.noun,
            "sort": self.sort,
            "price": self.band,
        }
        if path == "/search":
            parameters["category"] = self.category
        parameters |= changes
        non_default = {key: value for key, value in parameters.items() if value not in ("", "relevance")}
        return f"{path}?{urlencode(non_default)}" if non_default else path


class StorePages:
    """Handlers of all GET requests."""

    def __init__(self, shop: StoreShop) -> None:
        self._shop = shop

    async def home(self, request: Request, session: Session) -> Response:
        """Categories and a few products."""
        session.record(Visited(page="home"))
        popular = sorted_by(self._shop.catalogue.products, "rating")[:4]
        return self._shop.page(session, "home.html", "Store", popular=popular)

    async def search(self, request: Request, session: Session) -> Response:
        """Results of a full-text search."""
        choice = ListingFilter.of(request)
        result = self._shop.index.search(choice.query, sort=choice.sort)
        title = f"Results for {choice.query}" if choice.query else "Search"
        return self._list(session, choice, result.products, path="/search", title=title, exact=result.exact)

    async def category(self, request: Request, session: Session) -> Response:
        """Products of a category, optionally of one noun."""
        name = request.path_params["name"].capitalize()
        if name not in self._shop.catalogue.categories:
            session.record(Visited(page="missing"))
            return self._shop.not_found_page(session, "category")
        choice = ListingFilter.of(request, category=name)
        products = sorted_by(self._shop.catalogue.products, choice.sort)
        return self._list(session, choice, products, path=f"/category/{name.lower()}", title=name, exact=True)

    def _list(
        self,
        session: Session,
        choice: ListingFilter,
        products: tuple[Product, ...],
        *,
        path: str,
        title: str,
        exact: bool,
    ) -> Response:
        matching = [product for product in products if choice.keeps(product)]
        pages = max(1, -(-len(matching) // PER_PAGE))
        page = min(choice.page, pages)
        shown = matching[(page - 1) * PER_PAGE : page * PER_PAGE]
        is_search = path == "/search"
        session.record(
            Listed(
                query=choice.query if is_search else "",
                category=choice.category,
                sort=choice.sort,
                page=page,
                exact=exact,
                shown=tuple(product.id for product in shown),
            )
        )
        sorts = [(SORT_LABELS[s], "" if s == choice.sort else choice.address(path, sort=s)) for s in SORTS]
        if is_search:
            present = tuple(dict.fromkeys(p.category for p in products))
            narrower = [] if choice.category or len(present) < 2 else present
            filters = [(f"Only {name}", choice.address(path, category=name)) for name in narrower]
        else:
            nouns = () if choice.noun else self._shop.catalogue.categories[choice.category]
            filters = [(f"Only {noun}", choice.address(path, noun=noun)) for noun in nouns]
        return self._shop.page(
            session,
            "list.html",
            title,
            query=choice.query,
            choice=choice,
            path=path,
            shown=shown,
            exact=exact,
            count=len(matching),
            number=page,
            pages=pages,
            previous=choice.address(path, page=page - 1) if page > 1 else "",
            next=choice.address(path, page=page + 1) if page < pages else "",
            sorts=sorts,
            filters=filters,
            bands=PRICE_BANDS,
        )

    async def product(self, request: Request, session: Session) -> Response:
        """A product with its options."""
        product = self._shop.product(request)
        if product is None:
            session.record(Visited(page="missing"))
            return self._shop.not_found_page(session, "product")
        session.record(Viewed(product=product.id))
        colour, size = request.query_params.get("colour", ""), request.query_params.get("size", "")
        return self._shop.page(
            session,
            "product.html",
            product.title,
            item=product,
            colour=colour,
            size=size,
            note=note_of(request),
        )

    async def product_part(self, request: Request, session: Session) -> Response:
        """Description, features, reviews, or the form to write one."""
        product, part = self._shop.product(request), request.path_params["part"]
        if product is None or part not in PARTS:
            session.record(Visited(page="missing"))
            return self._shop.not_found_page(session, "page")
        session.record(Viewed(product=product.id, part=part))
        own = next((review for review in session.state.reviews if review.product == product.id), None)
        return self._shop.page(
            session,
            f"{part}.html",
            f"{PARTS[part]}: {product.title}",
            item=product,
            own=own,
            note=note_of(request),
        )

    async def cart(self, request: Request, session: Session) -> Response:
        """The content of the cart."""
        session.record(Visited(page="cart"))
        return self._shop.page(
            session, "cart.html", "Cart", total=self._total(session), note=note_of(request)
        )

    async def checkout(self, request: Request, session: Session) -> Response:
        """The address and the price of the order to be placed."""
        session.record(Visited(page="checkout"))
        return self._shop.page(session, "checkout.html", "Checkout", total=self._total(session))

    def _total(self, session: Session) -> int:
        return sum(
            self._shop.catalogue[line.product].price_cents * line.quantity for line in session.state.cart
        )

    async def wishes(self, request: Request, session: Session) -> Response:
        """The page of the wish list."""
        session.record(Visited(page="wishes"))
        return self._shop.page(session, "wishes.html", "Wish list")

    async def orders(self, request: Request, session: Session) -> Response:
        """All orders, newest first."""
        session.record(Visited(page="orders"))
        return self._shop.page(session, "orders.html", "Orders")

    async def order(self, request: Request, session: Session) -> Response:
        """One order with its status."""
        order = self._shop.order(request, session)
        if order is None:
            session.record(Visited(page="missing"))
            return self._shop.not_found_page(session, "order")
        session.record(OrderViewed(number=order.number))
        total = sum(self._shop.catalogue[line.product].price_cents * line.quantity for line in order.lines)
        return self._shop.page(
            session, "order.html", f"Order {order.number}", order=order, total=total, note=note_of(request)
        )

    async def account(self, request: Request, session: Session) -> Response:
        """The page with name and address."""
        session.record(Visited(page="account"))
        return self._shop.page(session, "account.html", "Account", note=note_of(request))

    async def address(self, request: Request, session: Session) -> Response:
        """The form that changes the address."""
        session.record(Visited(page="address"))
        return self._shop.page(session, "address.html", "Change address", note=note_of(request))

    async def not_found_page(self, request: Request, session: Session) -> Response:
        """The "not found" page for every other address."""
        session.record(Visited(page="missing"))
        return self._shop.not_found_page(session, "page")
