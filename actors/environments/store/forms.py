"""What buttons do. Every form ends in a redirect, so that going back or reloading repeats nothing."""

from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import Response

from hindcast.actors.environments.store.pages import StoreShop, go, number_of
from hindcast.actors.environments.store.session import (
    MAX_QUANTITY,
    Added,
    Address,
    Cancelled,
    CartLine,
    Moved,
    Order,
    Ordered,
    Removed,
    Requantified,
    Reviewed,
    Session,
    Unwished,
    Wished,
    WrittenReview,
    with_line,
)

MAX_BODY_BYTES = 16 * 1024
MAX_FIELDS = 20
MAX_LINES = 8
TODAY = "1 July"
"""The day of every order placed: the store has no clock."""


class BodyTooLarge(Exception):
    """The form's content exceeds `MAX_BODY_BYTES`."""


async def fields_of(request: Request) -> dict[str, str]:
    """Fields of an urlencoded form, with normalized white space; the last of equal names counts."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"the form is larger than {MAX_BODY_BYTES} bytes")
    pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)[:MAX_FIELDS]
    return {key: " ".join(value.replace("\0", " ").split()) for key, value in pairs}


class Forms:
    """Handlers of all POST requests."""

    def __init__(self, shop: StoreShop) -> None:
        self._shop = shop

    async def add(self, request: Request, session: Session) -> Response:
        """Put a product into the cart; every option must be chosen."""
        product = self._shop.product(request)
        if product is None:
            return self._shop.not_found_page(session, "product")
        fields = await fields_of(request)
        colour, size, quantity = fields.get("colour", ""), fields.get("size", ""), fields.get("quantity", "1")
        options = {"colour": colour, "size": size}
        product_address = f"/product/{product.id}?{urlencode({k: v for k, v in options.items() if v})}"
        if product.colours and colour not in product.colours:
            return self._shop.refuse(session, product_address, "colour")
        if product.sizes and size not in product.sizes:
            return self._shop.refuse(session, product_address, "size")
        count = number_of(quantity)
        if count is None or not 1 <= count <= MAX_QUANTITY:
            return self._shop.refuse(session, product_address, "quantity")
        line = CartLine(
            product=product.id,
            colour=colour if product.colours else "",
            size=size if product.sizes else "",
            quantity=count,
        )
        if len(with_line(session.state.cart, line)) > MAX_LINES:
            return self._shop.refuse(session, "/cart", "cart_full")
        session.record(Added(line=line))
        return go("/cart")

    async def _line_in_cart(
        self, request: Request, session: Session
    ) -> tuple[CartLine | None, dict[str, str]]:
        fields = await fields_of(request)
        key = (number_of(fields.get("product", "")), fields.get("colour", ""), fields.get("size", ""))
        cart = session.state.cart
        return next((line for line in cart if (line.product, line.colour, line.size) == key), None), fields

    async def remove(self, request: Request, session: Session) -> Response:
        """Remove a line from the cart."""
        line, _ = await self._line_in_cart(request, session)
        if line is None:
            return self._shop.refuse(session, "/cart", "not_in_cart")
        session.record(Removed(line=line))
        return go("/cart")

    async def requantify(self, request: Request, session: Session) -> Response:
        """Change the quantity of a line."""
        line, fields = await self._line_in_cart(request, session)
        if line is None:
            return self._shop.refuse(session, "/cart", "not_in_cart")
        count = number_of(fields.get("quantity", ""))
        if count is None or not 1 <= count <= MAX_QUANTITY:
            return self._shop.refuse(session, "/cart", "quantity")
        changed = CartLine(product=line.product, colour=line.colour, size=line.size, quantity=count)
        session.record(Requantified(line=changed))
        return go("/cart")

    async def wish(self, request: Request, session: Session) -> Response:
        """Add a product to the wish list."""
        product = self._shop.product(request)
        if product is None:
            return self._shop.not_found_page(session, "product")
        session.record(Wished(product=product.id))
        return go("/wishes")

    async def unwish(self, request: Request, session: Session) -> Response:
        """Remove a product from the wish list."""
        number = number_of((await fields_of(request)).get("product", ""))
        if number in session.state.wishes and number is not None:
            session.record(Unwished(product=number))
        return go("/wishes")

    async def place_order(self, request: Request, session: Session) -> Response:
        """Turn the cart into an order."""
        if not session.state.cart:
            return self._shop.refuse(session, "/cart", "cart_empty")
        number = max((order.number for order in session.state.orders), default=1000) + 1
        order = Order(
            number=number,
            date=TODAY,
            status="processing",
            lines=session.state.cart,
            address=session.state.address,
        )
        session.record(Ordered(order=order))
        return go(f"/orders/{number}?note=ordered")

    async def cancel(self, request: Request, session: Session) -> Response:
        """Cancel an order that is still in processing."""
        order = self._shop.order(request, session)
        if order is None:
            return self._shop.not_found_page(session, "order")
        to = f"/orders/{order.number}"
        if order.status != "processing":
            return self._shop.refuse(session, to, "too_late")
        session.record(Cancelled(number=order.number))
        return go(f"{to}?note=cancelled")

    async def move(self, request: Request, session: Session) -> Response:
        """Save the address."""
        fields = await fields_of(request)
        name, street, city = (fields.get(key, "")[:60] for key in ("name", "street", "city"))
        if not (name and street and city):
            return self._shop.refuse(session, "/account/address", "address")
        session.record(Moved(address=Address(name=name, street=street, city=city)))
        return go("/account?note=saved")

    async def review(self, request: Request, session: Session) -> Response:
        """Save a review."""
        product = self._shop.product(request)
        if product is None:
            return self._shop.not_found_page(session, "product")
        fields = await fields_of(request)
        stars, text = number_of(fields.get("stars", "")), fields.get("text", "")[:300]
        form_address = f"/product/{product.id}/write"
        if stars is None or not 1 <= stars <= 5:
            return self._shop.refuse(session, form_address, "stars")
        if not text:
            return self._shop.refuse(session, form_address, "text")
        session.record(Reviewed(review=WrittenReview(product=product.id, stars=stars, text=text)))
        return go(f"/product/{product.id}/reviews?note=reviewed")
