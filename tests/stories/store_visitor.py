"""A visitor of the store without a browser: reads the shop's plain HTML, follows links, fills and sends forms.

Sees pages as `core.domain.observation.Page`, close enough to the browser's snapshot for the scripted demonstrators; that the
two agree is what the tests with a real Chromium show.
"""

import asyncio
import http.client
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from hindcast.actors.environments.store.families import DEMONSTRATORS
from hindcast.actors.environments.store.server import serve
from hindcast.core.domain.action import Action
from hindcast.core.domain.evidence import Evidence
from hindcast.core.domain.observation import Node, Observation, Page
from hindcast.core.domain.task import Task
from hindcast.core.settings.schema import SiteSettings

TOKEN = "control-token-of-the-tests"
VOID = {"input", "meta", "link", "br", "img"}


class _Field:
    def __init__(self, form: int, name: str, value: str) -> None:
        self.form, self.name, self.value = form, name, value
        self.options: dict[str, str] = {}
        self.checked: bool | None = None


class _Reader(HTMLParser):
    """Nodes, forms and targets of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.title, self.ordinal = "", -1
        self.nodes: list[dict[str, Any]] = []
        self.targets: list[Any] = [None]
        self.fields: list[_Field] = []
        self.forms: list[tuple[str, str]] = []
        self._stack: list[str] = []
        self._open: dict[str, Any] | None = None
        self._label = ""
        self._option: str | None = None
        self._select: tuple[_Field, dict[str, Any]] | None = None

    def _add(self, node: dict[str, Any], target: Any = None) -> dict[str, Any]:
        if target is not None:
            node["id"] = len(self.targets)
            self.targets.append(target)
        self.nodes.append(node)
        return node

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        if tag not in VOID:
            self._stack.append(tag)
        form = len(self.forms) - 1
        if tag == "meta" and given.get("name") == "world-ordinal":
            self.ordinal = int(given["content"])
        elif tag == "form":
            self.forms.append((given.get("method", "get"), given["action"]))
        elif tag == "a":
            self._open = self._add({"kind": "link", "tag": tag, "text": ""}, given["href"])
        elif tag == "button":
            self._open = self._add({"kind": "button", "tag": tag, "text": ""}, form)
        elif tag == "input":
            self._input(given, form)
        elif tag == "select":
            field = _Field(form, given["name"], "")
            self.fields.append(field)
            node = {"kind": "select", "tag": tag, "text": given.get("aria-label") or self._label, "value": ""}
            self._select = (field, self._add(node, field))
        elif tag == "option" and self._select is not None:
            field, _ = self._select
            self._option = given["value"]
            if "selected" in given or not field.options:
                field.value = given["value"]

    def _input(self, given: dict[str, str], form: int) -> None:
        field = _Field(form, given["name"], given.get("value", ""))
        self.fields.append(field)
        if given.get("type") == "hidden":
            return
        if given.get("type") == "radio":
            field.checked = "checked" in given
            node = {"kind": "radio", "tag": "input", "text": "", "checked": field.checked}
            self._open = self._add(node, field)
            return
        text = given.get("aria-label") or self._label
        self._add({"kind": "input", "tag": "input", "text": text, "value": field.value}, field)

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        inside = self._stack[-1] if self._stack else ""
        if not text or inside == "style":
            return
        if inside == "title":
            self.title = text
        elif inside == "option" and self._select is not None and self._option is not None:
            self._select[0].options[text] = self._option
        elif inside == "label" and (self._open is None or self._open["kind"] != "radio"):
            self._label = text
        elif self._open is not None:
            self._open["text"] = f"{self._open['text']} {text}".strip()
        elif inside != "html":
            kind = "heading" if inside in ("h1", "h2") else "text"
            self.nodes.append({"kind": kind, "tag": "p", "text": text})

    def handle_endtag(self, tag: str) -> None:
        if tag in self._stack:
            while self._stack.pop() != tag:
                pass
        if tag in ("a", "button", "label"):
            self._open = None
        if tag == "select" and self._select is not None:
            field, node = self._select
            node["options"] = list(field.options)
            node["value"] = next(label for label, value in field.options.items() if value == field.value)
            self._select = None


class Visitor:
    """One visit over real HTTP."""

    def __init__(self, base_url: str, task: Task | None) -> None:
        parts = urlsplit(base_url)
        assert parts.hostname is not None
        self.http = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
        self.token, self.cookie, self.url, self.body, self.status = "", "", "/", b"", 0
        self.journey: list[bytes] = []
        if task is not None:
            answer = self.control("POST", "/_control/sessions", msgspec.json.encode({"task": task}))
            self.token = answer["token"]
            self.get(f"/_enter/{self.token}")

    def control(
        self, method: str, path: str, body: bytes | None = None, token: str = TOKEN
    ) -> dict[str, Any]:
        self.http.request(method, path, body, {"x-control-token": token, "connection": "close"})
        response = self.http.getresponse()
        self.status = response.status
        decoded: dict[str, Any] = msgspec.json.decode(response.read())
        return decoded

    def record(self) -> dict[str, Any]:
        return self.control("GET", f"/_control/sessions/{self.token}")

    def request(self, method: str, url: str, body: bytes | None = None) -> None:
        for _ in range(5):
            headers = {"connection": "close"} | ({"cookie": self.cookie} if self.cookie else {})
            if body is not None:
                headers["content-type"] = "application/x-www-form-urlencoded"
            self.http.request(method, url, body, headers)
            response = self.http.getresponse()
            self.body, self.status, self.url = response.read(), response.status, url
            cookie = response.getheader("set-cookie")
            if cookie:
                self.cookie = cookie.split(";")[0]
            if self.status != 303:
                self.journey.append(self.body)
                return
            method, url, body = "GET", response.getheader("location") or "", None
        raise AssertionError("too many redirects")

    def get(self, url: str) -> None:
        self.request("GET", url)

    def post(self, url: str, **fields: str | int) -> None:
        self.request("POST", url, urlencode(fields).encode())

    def read(self) -> _Reader:
        reader = _Reader()
        reader.feed(self.body.decode())
        return reader

    def observation(self) -> Observation:
        reader = self.read()
        nodes = tuple(msgspec.convert(node, Node) for node in reader.nodes)
        page = Page(url=f"http://store{self.url}", title=reader.title, nodes=nodes, ordinal=reader.ordinal)
        return Observation(page=page, digest="")

    def ordinal(self) -> int:
        found = re.search(rb'name="world-ordinal" content="(\d+)"', self.body)
        assert found is not None
        return int(found.group(1))

    def text(self) -> str:
        return " | ".join(node["text"] for node in self.read().nodes)


class Form:
    """What has been filled in on the page that is open."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor = visitor
        self.reader = visitor.read()

    def do(self, action: Action) -> None:
        """Carry out an action; filled fields are kept until a page is loaded."""
        target = self.reader.targets[action.element or 0]
        argument = action.argument or ""
        if action.name == "Click" and isinstance(target, str):
            self.visitor.get(target)
        elif action.name == "Click" and isinstance(target, int):
            self._submit(target)
        elif action.name == "Click":
            for field in self.reader.fields:
                if (field.form, field.name) == (target.form, target.name):
                    field.checked = field is target
            return
        elif action.name == "Select Dropdown Option":
            target.value = target.options[argument]
            return
        elif action.name == "Type":
            target.value = argument
            return
        elif action.name == "Search":
            target.value = argument
            self._submit(target.form)
        else:
            raise AssertionError(f"a demonstrator is lost: {action}")
        self.reader = self.visitor.read()

    def _submit(self, form: int) -> None:
        method, address = self.reader.forms[form]
        fields = [f for f in self.reader.fields if f.form == form and f.checked is not False]
        body = urlencode([(field.name, field.value) for field in fields])
        if method == "get":
            self.visitor.get(f"{address}?{body}")
        else:
            self.visitor.request("POST", address, body.encode())

    def observation(self) -> Observation:
        seen = self.visitor.observation()
        nodes = []
        for node in seen.page.nodes:
            target = self.reader.targets[node.id] if node.id is not None else None
            if isinstance(target, _Field) and target.checked is not None:
                nodes.append(msgspec.structs.replace(node, checked=target.checked))
            elif isinstance(target, _Field):
                shown = next(
                    (label for label, v in target.options.items() if v == target.value), target.value
                )
                nodes.append(msgspec.structs.replace(node, value=shown))
            else:
                nodes.append(node)
        return msgspec.structs.replace(seen, page=msgspec.structs.replace(seen.page, nodes=tuple(nodes)))


def demonstrate(base_url: str, task: Task) -> tuple[Evidence, list[Action], Visitor]:
    """Let the task's demonstrator do it; at most max_steps actions."""
    visitor = Visitor(base_url, task)
    form = Form(visitor)
    actions: list[Action] = []
    answer: str | None = None
    while len(actions) < task.max_steps:
        action = DEMONSTRATORS[task.family](task, task.instruction, form.observation(), actions)
        actions.append(action)
        if action.name == "exit":
            answer = action.argument
            break
        form.do(action)
    return Evidence(answer=answer, final_url=visitor.url, probes=visitor.record()), actions, visitor


@contextmanager
def running_store(settings: SiteSettings) -> Iterator[str]:
    """The real server on a free port of loopback, in a thread; gives its address."""
    ready = threading.Event()
    address: list[str] = []
    loop = asyncio.new_event_loop()
    ends = asyncio.Event()

    def listening(base_url: str) -> None:
        address.append(base_url)
        ready.set()

    async def main() -> None:
        serving = asyncio.ensure_future(
            serve(settings, host="127.0.0.1", port=0, control_token=TOKEN, ready=listening)
        )
        await ends.wait()
        serving.cancel()
        await asyncio.wait([serving], timeout=5)

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    try:
        assert ready.wait(20), "the store did not start"
        yield address[0]
    finally:
        loop.call_soon_threadsafe(ends.set)
        thread.join(10)
        assert not thread.is_alive(), "the store did not stop"
        loop.close()
