"""Where an episode may navigate: the site's allowed origins, enforced on every request and checked after every action.

There are three layers. The route refuses requests outside the list. A proxy handles what a route does not see (redirect
hops, web sockets, prefetches) and checks every connection (`proxy`). The address of the page is checked after each
action.
"""

import re
from urllib.parse import unquote, urljoin, urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}
DIRECT = "127.0.0.1"
"""The only host that Chromium connects to without the proxy; it needs no name resolution."""


def is_allowed(url: str, origins: tuple[str, ...]) -> bool:
    """Whether an address lies within the allowed origins.

    An origin is `scheme://host[:port]`, or a folder such as `file:///…` for pages from disk. Empty tabs are always allowed.

    >>> is_allowed("http://127.0.0.1:80/cart", ("http://127.0.0.1",))
    True
    >>> is_allowed("http://127.0.0.1.example/", ("http://127.0.0.1",))
    False
    """
    if url.split("#")[0] in ("", "about:blank", "about:srcdoc"):
        return True
    if url.startswith("blob:"):
        return is_allowed(url.removeprefix("blob:"), origins)
    return any(_is_within(url, origin) for origin in origins)


def _is_within(url: str, origin: str) -> bool:
    try:
        address, allowed = urlsplit(url), urlsplit(origin)
    except ValueError:  # invalid, such as http://[x
        return False
    if address.scheme != allowed.scheme:
        return False
    if allowed.scheme == "file":
        path, folder = unquote(address.path), unquote(allowed.path).rstrip("/") + "/"
        return not address.netloc and path.startswith(folder) and "/../" not in path
    return address.hostname == allowed.hostname and _port(url) == _port(origin)


def _port(url: str) -> int | None:
    address = urlsplit(url)
    try:
        return address.port or _DEFAULT_PORTS.get(address.scheme)
    except ValueError:
        return None


def resolve(address: str, *, current: str) -> str:
    """The absolute address of an agent's input: full, relative to the current page, or a bare host.

    An invalid address is returned unchanged, and lies within no origins.
    """
    address = address.strip()
    try:
        return _resolved(address, current)
    except ValueError:
        return address


def _resolved(address: str, current: str) -> str:
    if urlsplit(address).scheme in ("http", "https", "file", "about"):
        return address
    if address.startswith(("/", "?", "#", "./", "../")):
        return urljoin(current, address)
    if "." in address.split("/")[0] or ":" in address.split("/")[0]:
        return f"http://{address}"
    return urljoin(current, address)


def questionable(origins: tuple[str, ...]) -> re.Pattern[str]:
    """A pattern that matches every address except those clearly within the origins, as a browser spells them.

    The route thus sees only doubtful addresses and decides on them with `is_allowed`.

    >>> bool(questionable(("http://127.0.0.1:80",)).search("http://127.0.0.1:80/cart"))
    False
    >>> bool(questionable(("http://127.0.0.1:80",)).search("http://127.0.0.1:80.example/"))
    True
    """
    return re.compile(f"^(?!{'|'.join(map(_certain, origins))})")


def _certain(origin: str) -> str:
    inside = re.escape(origin.rstrip("/") + "/")
    # dots or their escapes could leave the folder
    return inside if urlsplit(origin).scheme in _DEFAULT_PORTS else rf"{inside}(?!.*(?:\.\.|%))"


def authorities(origins: tuple[str, ...]) -> frozenset[tuple[str, int]]:
    """Host and port of every served origin: the allowed targets of a connection.

    >>> sorted(authorities(("https://shop.example", "file:///srv/pages")))
    [('shop.example', 443)]
    """
    hosts_and_ports = ((urlsplit(origin).hostname, _port(origin)) for origin in origins)
    return frozenset((host, port) for host, port in hosts_and_ports if host and port is not None)


def bypass_list(origins: tuple[str, ...]) -> str:
    """What Chromium reaches without the proxy, in its own syntax: sites on the literal address 127.0.0.1, port by port.

    There a name cannot mean anything else, and a redirect to another port is another address. So the proxy would add only
    its cost: 1.5 ms of an actor's CPU for each page of the store. Everything else goes through the proxy, this machine under
    any other name included.

    >>> bypass_list(("http://127.0.0.1:8000", "http://localhost:8000"))
    '<-loopback>,127.0.0.1:8000'
    """
    direct = sorted(port for host, port in authorities(origins) if host == DIRECT)
    return ",".join(["<-loopback>", *(f"{DIRECT}:{port}" for port in direct)])
