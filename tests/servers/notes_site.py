"""A small site of somebody else's: contacts and notes behind a login, all state in one process, and a way to reset it.

Nothing of it knows of Hindcast: what a user's own site may look like. `python tests/servers/notes_site.py PORT` serves it.
"""

import html
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import cookies
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

CONTACTS = (
    ("ada", "Ada Lovelace", "555-0112", "London"),
    ("grace", "Grace Hopper", "555-0146", "Arlington"),
    ("alan", "Alan Turing", "555-0177", "Wilmslow"),
)
USER, PASSWORD = "demo", "open sesame"
RESET_KEY = "let-me-reset"


class Notes:
    """What the site remembers."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sessions: set[str] = set()
        self.resets = 0
        self.logins = 0
        self.reset()

    def reset(self) -> None:
        with self.lock:
            self.notes: list[tuple[str, str]] = [("Call the plumber", "home")]
            self.resets += 1


class Handler(BaseHTTPRequestHandler):
    """Pages for people: server-rendered, with ordinary links and forms."""

    protocol_version = "HTTP/1.1"
    notes: Notes

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path == "/login":
            self._login_page("")
        elif not self._signed_in():
            self._redirect("/login")
        elif path == "/":
            self._page("Fieldnotes", "<h1>Fieldnotes</h1><p>Your people and your notes.</p>")
        elif path == "/contacts":
            rows = "".join(f'<li><a href="/contacts/{key}">{name}</a></li>' for key, name, _, _ in CONTACTS)
            self._page("Contacts", f"<h1>Contacts</h1><ul>{rows}</ul>")
        elif path.startswith("/contacts/"):
            self._contact(path.rsplit("/", 1)[1])
        elif path == "/notes":
            self._notes(query.get("label", [""])[0])
        elif path == "/notes/new":
            self._page(
                "New note",
                '<h1>New note</h1><form method="post" action="/notes">'
                '<p><label>Text <input name="text"></label></p>'
                '<p><label>Label <select name="label"><option>home</option><option>work</option></select></label></p>'
                '<p><button type="submit">Save note</button></p></form>',
            )
        else:
            self._page("Not found", "<h1>There is no such page</h1>", status=404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        form = {key: values[0] for key, values in parse_qs(body).items()}
        if self.path == "/login":
            self._sign_in(form)
        elif self.path == "/reset":
            allowed = self.headers.get("authorization") == f"Bearer {RESET_KEY}"
            if allowed:
                self.notes.reset()
            self._send(200 if allowed else 403, "reset" if allowed else "wrong key")
        elif not self._signed_in():
            self._redirect("/login")
        elif self.path == "/notes":
            with self.notes.lock:
                self.notes.notes.append((form.get("text", ""), form.get("label", "home")))
            self._redirect("/notes")
        else:
            self._page("Not found", "<h1>There is no such page</h1>", status=404)

    def _sign_in(self, form: dict[str, str]) -> None:
        if (form.get("user"), form.get("password")) != (USER, PASSWORD):
            self._login_page("Wrong name or password.")
            return
        token = secrets.token_hex(8)
        with self.notes.lock:
            self.notes.sessions.add(token)
            self.notes.logins += 1
        self._redirect("/", cookie=f"session={token}; Path=/; HttpOnly")

    def _contact(self, key: str) -> None:
        found = next((one for one in CONTACTS if one[0] == key), None)
        if found is None:
            self._page("Not found", "<h1>There is no such page</h1>", status=404)
            return
        _, name, phone, city = found
        self._page(name, f"<h1>{name}</h1><p>Phone: <b>{phone}</b></p><p>City: {city}</p>")

    def _notes(self, label: str) -> None:
        with self.notes.lock:
            shown = [note for note in self.notes.notes if label in ("", note[1])]
        rows = "".join(
            f'<li><span class="text">{html.escape(text)}</span> <i>{html.escape(at)}</i></li>'
            for text, at in shown
        )
        self._page(
            "Notes",
            f'<h1>Notes</h1><ul id="notes">{rows}</ul><p><a href="/notes/new">New note</a></p>'
            '<form action="/notes"><label>Show <select name="label" onchange="this.form.submit()">'
            "<option></option><option>home</option><option>work</option></select></label></form>",
        )

    def _login_page(self, message: str) -> None:
        self._page(
            "Log in",
            f'<h1>Log in</h1><p>{message}</p><form method="post" action="/login">'
            '<p><label>Name <input name="user"></label></p>'
            '<p><label>Password <input name="password" type="password"></label></p>'
            '<p><button type="submit">Log in</button></p></form>',
        )

    def _signed_in(self) -> bool:
        jar = cookies.SimpleCookie(self.headers.get("cookie", ""))
        return "session" in jar and jar["session"].value in self.notes.sessions

    def _page(self, title: str, body: str, *, status: int = 200) -> None:
        menu = ""
        if self._signed_in():
            menu = (
                '<nav><a href="/">Home</a> <a href="/contacts">Contacts</a> <a href="/notes">Notes</a> '
                '<span id="who">Signed in as demo</span></nav>'
            )
        self._send(
            status,
            f"<!doctype html><title>{title}</title><body>{menu}{body}</body>",
            kind="text/html; charset=utf-8",
        )

    def _redirect(self, path: str, *, cookie: str = "") -> None:
        self.send_response(303)
        self.send_header("location", path)
        if cookie:
            self.send_header("set-cookie", cookie)
        self.send_header("content-length", "0")
        self.end_headers()

    def _send(self, status: int, text: str, *, kind: str = "text/plain") -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # silence is golden in a test's output
        """Nothing."""


def server_at(port: int) -> tuple[ThreadingHTTPServer, Notes]:
    notes = Notes()
    server = ThreadingHTTPServer(("127.0.0.1", port), type("NotesHandler", (Handler,), {"notes": notes}))
    server.daemon_threads = True
    return server, notes


@contextmanager
def serving() -> Iterator[tuple[str, Notes]]:
    """Its address and what it remembers."""
    server, notes = server_at(0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", notes
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    server_at(int(sys.argv[1]))[0].serve_forever()
