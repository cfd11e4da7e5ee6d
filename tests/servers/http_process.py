"""A web server of another project, started as a process, and ended with the test."""

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.error import URLError
from urllib.request import urlopen

START_S = 120
STOP_S = 60


@contextmanager
def http_process(command: Sequence[str], *, health: str) -> Iterator[str]:
    """Run `command`, in which PORT is replaced by a free one, until the path `health` answers; yields the base address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([part.replace("PORT", str(port)) for part in command])
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + START_S
    try:
        while True:
            try:
                urlopen(f"{url}{health}", timeout=START_S).close()
                break
            except URLError:
                assert process.poll() is None, "the server ended"
                assert time.monotonic() < until, "the server does not answer"
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(STOP_S)
