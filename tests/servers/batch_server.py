"""An OpenAI-compatible server that also takes batches: files, batches, and each question answered by the rule of chats."""

import asyncio
import json
import threading
from typing import Any

from servers.chat_server import ChatServer, Reaction, Response, Rule, _http


class BatchServer(ChatServer):
    """Answers a batch once `finish` is set; questions whose reaction is no response are missing from its output."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self.files: dict[str, bytes] = {}
        """By name; what answers stand in has another kind of name than what was sent."""
        self.batches: dict[str, dict[str, Any]] = {}
        self.polled = threading.Event()
        self.finish = True
        """Whether batches have ended when they are looked at."""
        self.forgets_to_say = False
        """Whether the connection is lost in the moment in which a batch is begun."""
        self.takes_key = True
        self.down_for = 0
        """Looks at batches and files that come to nothing before one does not."""
        self.written = json.dumps
        """How a line of a file of answers is written."""
        self.refuses = ""
        """Why batches are not begun; empty: they are."""

    def sent(self) -> list[list[str]]:
        """What was asked in each file that came in."""
        files = [content.splitlines() for name, content in self.files.items() if name.startswith("file-")]
        return [[json.loads(line)["body"]["messages"][-1]["content"] for line in lines] for lines in files]

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            content = await reader.readexactly(int(headers.get("content-length", 0)))
            method, path, _ = head.split(" ", 2)
            said = self._said(method, path.partition("?")[0].removeprefix("/v1"), content)
            if said is not None:
                writer.write(_http(said))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # who asked has gone
        finally:
            writer.close()

    def _said(self, method: str, path: str, content: bytes) -> Response | None:
        if not self.takes_key:
            return Response(b'{"error": {"message": "no such key"}}', 401)
        if method == "GET" and self.down_for:
            self.down_for -= 1
            return None if self.down_for % 2 else _json({"error": {"message": "down"}}, 503)
        match (method, path.strip("/").split("/")):
            case ("POST", ["files"]):
                name = f"file-{len(self.files)}"
                self.files[name] = _uploaded(content)
                return _json({"id": name, "object": "file", "purpose": "batch"})
            case ("POST", ["batches"]):
                return self._begun(json.loads(content))
            case ("GET", ["batches"]):
                return _json({"data": list(self.batches.values())[::-1], "has_more": False})
            case ("GET", ["batches", name]):
                self.polled.set()
                return _json(self._looked_at(name)) if name in self.batches else _none(name)
            case ("GET", ["files", name, "content"]):
                return Response(self.files[name])
        raise AssertionError(f"nobody asks for {method} {path}")

    def _begun(self, body: dict[str, Any]) -> Response | None:
        name = f"batch-{len(self.batches)}"
        assert (body["endpoint"], body["completion_window"]) == ("/v1/chat/completions", "24h")
        batch = {"id": name, "status": "failed" if self.refuses else "in_progress", **body}
        if self.refuses:
            batch["errors"] = {"data": [{"message": self.refuses}]}
        self.batches[name] = batch
        return None if self.forgets_to_say else _json(batch)

    def _looked_at(self, name: str) -> dict[str, Any]:
        batch = self.batches[name]
        if batch["status"] == "in_progress" and self.finish:
            batch["status"] = "completed"
            good, bad = [], []
            for line in self.files[batch["input_file_id"]].splitlines():
                question = json.loads(line)
                self.asked.append(question["body"])
                answer = _line(question["custom_id"], self.rule(question["body"]))
                (good if answer["error"] is None else bad).append(self.written(answer))
            for kind, lines in (("output_file_id", good), ("error_file_id", bad)):
                if lines:
                    batch[kind] = f"{kind}-{name}"
                    self.files[batch[kind]] = "\n".join(lines).encode()
        return batch


def _line(name: str, reaction: Reaction) -> dict[str, Any]:
    if not isinstance(reaction, Response):
        return {"custom_id": name, "response": None, "error": {"code": "batch_expired", "message": "late"}}
    response = {"status_code": reaction.status, "body": json.loads(reaction.content)}
    return {"custom_id": name, "response": response, "error": None}


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value).encode(), status)


def _none(name: str) -> Response:
    return Response(json.dumps({"error": {"message": f"no batch {name}"}}).encode(), 404)


def _uploaded(content: bytes) -> bytes:
    """The part `file` of a form."""
    boundary = content.partition(b"\r\n")[0]
    for part in content.split(boundary):
        head, _, body = part.partition(b"\r\n\r\n")
        if b'name="file"' in head:
            return body.removesuffix(b"\r\n")
    raise AssertionError("the form has no file")
