"""Serves a web application on its own socket: reports its address, and stops within a grace period."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from hindcast.core.errors import EnvironmentFailed

GRACE_S = 1
"""How long running requests may take after the stop signal, in seconds."""


async def serve_app(
    app: Starlette, *, server_name: str, host: str, port: int, ready: Callable[[str], None] | None = None
) -> None:
    """Serve until cancellation, then stop within `GRACE_S`. `ready` gets the base address.

    Port 0 takes a free one. Raises EnvironmentFailed, naming `server_name`, when the port is taken.
    """
    listener = _bind(server_name, host, port)
    host_text = f"[{host}]" if ":" in host else host
    base = f"http://{host_text}:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=GRACE_S,
        server_header=False,
    )
    server = _Server(config, on_started=lambda: ready(base) if ready else None)
    try:
        await server.serve(sockets=[listener])
    except asyncio.CancelledError:
        if server.started:
            await server.shutdown(sockets=[listener])
        raise
    finally:
        listener.close()


def _bind(server_name: str, host: str, port: int) -> socket.socket:
    # The protocol is named because asyncio disables Nagle's delay only then: 40 ms per page otherwise.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise EnvironmentFailed(
            f"{server_name} cannot listen on {host}:{port}: {error.strerror}. "
            "End the process that uses this port, or choose another one"
        ) from error
    return listener


class _Server(uvicorn.Server):
    """Reports when it accepts connections, and leaves signals to its process.

    Otherwise it would end itself on SIGINT, while episodes are played on it, and only then pass the signal on.
    """

    def __init__(self, config: uvicorn.Config, *, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()
