"""Where an episode may go: the site's allowed origins, enforced on every request and checked after every action.

Three layers: the route refuses requests outside the list; a proxy that leads nowhere takes whatever a route does not
see (redirect hops, web sockets, prefetches), since only the allowed hosts bypass it; and the address of the page is
checked after each action.
"""

import re
import socket
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urljoin, urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_allowed(url: str, origins: tuple[str, ...]) -> bool:
    """Whether an address lies within the allowed origins.

    An origin is `scheme://host[:port]`, or a folder as `file:///…` for pages from disk. Empty tabs are always allowed.

    >>> is_allowed("http://127.0.0.1:80/cart", ("http://127.0.0.1",))
    True
    >>> is_allowed("http://127.0.0.1.example/", ("http://127.0.0.1",))
    False
    """
    if url.split("#")[0] in ("", "about:blank", "about:srcdoc"):
        return True
    if url.startswith("blob:"):
        return is_allowed(url.removeprefix("blob:"), origins)
    return any(_within(url, origin) for origin in origins)


def _within(url: str, origin: str) -> bool:
    parts, wanted = urlsplit(url), urlsplit(origin)
    if parts.scheme != wanted.scheme:
        return False
    if wanted.scheme == "file":
        path, folder = unquote(parts.path), unquote(wanted.path).rstrip("/") + "/"
        return not parts.netloc and path.startswith(folder) and "/../" not in path
    return parts.hostname == wanted.hostname and _port(url) == _port(origin)


def _port(url: str) -> int | None:
    parts = urlsplit(url)
    try:
        return parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None


def resolve(address: str, *, current: str) -> str:
    """The absolute address of what an agent typed: full, relative to the current page, or a bare host."""
    address = address.strip()
    if urlsplit(address).scheme in ("http", "https", "file", "about"):
        return address
    if address.startswith(("/", "?", "#", "./", "../")):
        return urljoin(current, address)
    if "." in address.split("/")[0] or ":" in address.split("/")[0]:
        return f"http://{address}"
    return urljoin(current, address)


def questionable(origins: tuple[str, ...]) -> re.Pattern[str]:
    """Matches every address but those that lie within the origins beyond doubt, as a browser spells them.

    So that what is certain need not be asked about: the route hears of the rest alone and decides with `is_allowed`.

    >>> bool(questionable(("http://127.0.0.1:80",)).search("http://127.0.0.1:80/cart"))
    False
    >>> bool(questionable(("http://127.0.0.1:80",)).search("http://127.0.0.1:80.example/"))
    True
    """
    return re.compile(f"^(?!{'|'.join(map(_certain, origins))})")


def _certain(origin: str) -> str:
    inside = re.escape(origin.rstrip("/") + "/")
    # a folder could be left again, by dots or by their escapes
    return inside if urlsplit(origin).scheme in _DEFAULT_PORTS else rf"{inside}(?!.*(?:\.\.|%))"


class DeadEnd:
    """A loopback port that is taken and never answers: the proxy of everything that is not allowed.

    Bound without listening, so that a connection to it is refused at once and nobody else can open the port.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the port."""
        self._socket.close()


def bypass_list(origins: tuple[str, ...]) -> str:
    """Hosts that do not go through the dead end, in Chromium's bypass syntax; loopback is not exempt by itself."""
    hosts = [urlsplit(origin).netloc for origin in origins if urlsplit(origin).scheme in _DEFAULT_PORTS]
    return ",".join(["<-loopback>", *hosts])
