"""Stand-ins for WebArena's shop, its administration, its forum and its forge: small, with log-ins and state of their own."""

import asyncio
import html
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

USER, PASSWORD = "ann", "owl-and-lamp"
ADMIN_TOKEN = "a-token-of-the-shop"

FORM = (
    '<form method=post action="{action}"><input type=text name=user><input type=password name=password>'
    "<button>Sign in</button></form>"
)
HIDDEN_FORM = f'<div style="display:none">{FORM.format(action="/nowhere")}</div>'


class Answer(Exception):
    """What a page answers instead of its text."""

    def __init__(self, status: str, *headers: str) -> None:
        super().__init__(status)
        self.status, self.headers = status, headers


class WebArenaSites:
    """Four sites on ports of their own; `addresses` is what the setting wants."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self.log_ins: Counter[str] = Counter()
        self.requests: list[str] = []
        self.reset()

    def reset(self) -> None:
        """Back to the first state, with nobody logged in."""
        self.sessions: set[str] = set()
        self.wishes: list[str] = []
        self.orders: list[dict[str, str]] = []
        self.reviews: list[dict[str, object]] = []
        self.note = "Nothing yet"
        self.role = "Maintainer"
        self.letter = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["WebArenaSites"]:
        pages = {
            "shopping": self._shopping,
            "shopping_admin": self._admin,
            "reddit": self._reddit,
            "gitlab": self._gitlab,
        }
        servers = []
        for name, page in pages.items():
            server = await asyncio.start_server(
                lambda reader, writer, name=name, page=page: self._serve(name, page, reader, writer),  # type: ignore[misc]
                "127.0.0.1",
                0,
            )
            servers.append(server)
            self.addresses[name] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.addresses["shopping_admin"] += "/admin"
        try:
            yield self
        finally:
            for server in servers:
                server.close()

    async def _serve(self, name, page, reader, writer) -> None:  # type: ignore[no-untyped-def]
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split(" ", 2)
            headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            body = (await reader.readexactly(int(headers.get("content-length", 0)))).decode()
            self.requests.append(f"{name} {method} {target}")
            self._name, self._cookie = name, headers.get("cookie", "")
            status, extra = "200 OK", ()
            try:
                content = page(method, urlsplit(target), body, headers)
            except Answer as answer:
                status, extra, content = answer.status, answer.headers, ""
            kind = "application/json" if target.startswith("/rest/") else "text/html; charset=utf-8"
            lines = [
                f"HTTP/1.1 {status}",
                f"content-type: {kind}",
                f"content-length: {len(content.encode())}",
            ]
            writer.write(
                "\r\n".join([*lines, *extra, "connection: close", "", ""]).encode() + content.encode()
            )
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    # ---- who is there ------------------------------------------------------------------------------------------------

    def _inside(self) -> bool:
        return any(part.strip() in self.sessions for part in self._cookie.split(";"))

    def _sign_in(self, method: str, body: str, *, action: str, after: str) -> str:
        """The log-in form, and what it leads to. Cookies know no ports: each site has a name of its own."""
        given = parse_qs(body)
        if method == "POST" and (given.get("user"), given.get("password")) == ([USER], [PASSWORD]):
            self.log_ins[self._name] += 1
            session = f"{self._name}={self.log_ins[self._name]}"
            self.sessions.add(session)
            raise Answer("302 Found", f"location: {after}", f"set-cookie: {session}; Path=/")
        return HIDDEN_FORM + FORM.format(action=action)

    def _require(self, form: str) -> None:
        if not self._inside():
            raise Answer("302 Found", f"location: {form}")

    # ---- the sites ---------------------------------------------------------------------------------------------------

    def _shopping(self, method, url, body, headers) -> str:  # type: ignore[no-untyped-def]
        form = "/customer/account/login/"
        match url.path:
            case "/customer/account/login/":
                return self._sign_in(method, body, action=form, after="/")
            case "/wishlist/":
                self._require(form)
                self.wishes += parse_qs(url.query).get("add", [])
                return f"<h1>Wish list</h1><p class=wishes>{', '.join(self.wishes)}</p>"
            case "/buy":
                sku = parse_qs(url.query)["sku"][0]
                self.orders.append({"increment_id": f"{len(self.orders) + 1:09}", "sku": sku})
                return "Thank you"
            case path if path.startswith("/sales/order/view/order_id/"):
                order = self.orders[int(path.split("/")[5]) - 1]
                return f"<div class=order-details-items>{order['sku']}</div>"
            case "/cart":
                return "<p>You have no items in your cart</p>"
            case "/letter":
                self.letter = parse_qs(url.query).get("subscribe", [self.letter])[0]
                shown = "checked" if self.letter else ""
                script = f"document.body.insertAdjacentHTML('beforeend', '<input type=checkbox id=letter {shown}>')"
                return f'<button id=show onclick="{html.escape(script)}">Show</button>'
            case "/long":
                rows = "".join(f"<p id=row-{number}>{number * 7919}</p>\n" for number in range(20_000))
                return "<!DOCTYPE html>" + rows + html.escape(parse_qs(url.query)["last"][0])
            case "/reset":
                self.reset()
                return "as new"
            case "/rest/default/V1/integration/admin/token":
                given = json.loads(body)
                if (given["username"], given["password"]) != (USER, PASSWORD):
                    raise Answer("401 Unauthorized")
                return json.dumps(ADMIN_TOKEN)
            case path if path.startswith("/rest/V1/"):
                if headers.get("authorization") != f"Bearer {ADMIN_TOKEN}".lower():
                    raise Answer("401 Unauthorized")
                found = {"items": self.orders[-1:]} if path.endswith("/orders") else self.reviews
                return json.dumps(found)
            case "/" | "/lamp.html" | "/search":
                return "<h1>Shop</h1><a href=/lamp.html>Green Lamp</a>"
        raise Answer("404 Not Found")

    def _admin(self, method, url, body, headers) -> str:  # type: ignore[no-untyped-def]
        if url.path == "/admin/dashboard":
            self._require("/admin")
            return "<h1>Dashboard</h1>"
        if url.path == "/admin" and not self._inside():
            return self._sign_in(method, body, action="/admin", after="/admin/dashboard")
        return "<h1>Reports</h1>"

    def _reddit(self, method, url, body, headers) -> str:  # type: ignore[no-untyped-def]
        match url.path:
            case "/login":
                return self._sign_in(method, body, action="/login", after="/")
            case "/user/ann/account":
                self._require("/login")
                return "<a>Delete</a>"
            case path if path.startswith("/f/books/7"):
                return "<div class=submission__inner>All about owls</div><p>and what others say of owls</p>"
        return "<h1>Books</h1><div class=submission__inner>Nothing of note</div>"

    def _gitlab(self, method, url, body, headers) -> str:  # type: ignore[no-untyped-def]
        match url.path:
            case "/users/sign_in":
                return self._sign_in(method, body, action="/users/sign_in", after="/")
            case "/-/profile":
                self._require("/users/sign_in")
                return "<h1>Profile</h1>"
            case "/team/-/project_members":
                self.role = parse_qs(url.query).get("role", [self.role])[0]
                return "<table>" + "".join(
                    "<tr><td data-label=Account><span class=gl-avatar-labeled-sublabel>@{}</span></td>"
                    "<td class=col-max-role><span>{}</span></td></tr>".format(*row)
                    for row in (("koush", "Owner"), ("vinta", self.role))
                )
            case "/team":
                self.note = parse_qs(url.query).get("note", [self.note])[0]
        return f"<h1>Team</h1><p>{html.escape(self.note)}</p>"
